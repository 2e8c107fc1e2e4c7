import pytest

from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.trace import MemoryKind
from program import Program

CALLS = 4


def preparing(
    *, own_us=2_000, name="aten::_cudnn_rnn", kernel_us=50, waits=False, launches=1, grows=0
):
    """Each step calls an operator that works on the host before it launches its kernel."""
    p = Program()
    for number in p.steps(6):
        with p.frame("serve.py(20): forward"):
            for _ in range(CALLS):
                with p.row(name, shapes=[[32, 100 + grows * number]]):
                    p.busy(own_us)
                    for _ in range(launches):
                        p.kernel("gemm", kernel_us)
                        p.busy(15)
                    if waits:
                        p.sync()
                with p.row("aten::add"):
                    p.busy(10)
                    p.kernel("elementwise", 10)
    return p.trace()


def test_the_operator_is_named_with_its_time_in_a_call(outcome, ranked):
    trace = preparing()
    (finding,) = outcome("operator-host-time", trace).findings
    assert finding.summary.startswith("aten::_cudnn_rnn keeps the host busy for 2.00 ms")
    assert finding.location.function == "forward"
    assert finding.cost_ns_per_step == pytest.approx(CALLS * 2_000_000, rel=0.05)
    assert "operator-host-time" in ranked(trace)


@pytest.mark.parametrize(("grows", "anew", "sure"), [(0, 0.0, "low"), (1, 1.0, "medium")])
def test_shapes_that_no_step_before_had_are_said(outcome, grows, anew, sure):
    (finding,) = outcome("operator-host-time", preparing(grows=grows)).findings
    assert finding.evidence[-1].value == anew
    assert finding.confidence == sure
    assert ("pad lengths" in finding.fix) is bool(grows)


@pytest.mark.parametrize(
    "trace",
    [
        preparing(own_us=50),
        preparing(kernel_us=5_000),
        preparing(own_us=50, waits=True),
        preparing(name="CompiledFunction"),
        preparing(own_us=150, launches=100, kernel_us=2),
    ],
    ids=["dispatch", "the device is busy", "waits", "a compiler's", "many launches"],
)
def test_other_host_time_is_not_meant(outcome, trace):
    assert outcome("operator-host-time", trace).answer == "clear"


def test_many_small_copies_one_by_one(outcome):
    p = Program()
    for _ in p.steps(6):
        with p.frame("pack.py(9): upload"):
            for _ in range(100):
                with p.row("aten::copy_"):
                    p.busy(40)
                    p.copy(64, 1, MemoryKind.PINNED, MemoryKind.DEVICE)
        p.kernel("gemm", 1_000)
        p.sync()
    (finding,) = outcome("operator-host-time", p.trace()).findings
    assert finding.summary.startswith("aten::copy_ is called 100 × a step in upload (pack.py:9)")
    dropped = next(change for change in finding.changes if isinstance(change, DropDeviceOps))
    assert len(dropped.device_ops) == 5 * 99  # of the complete steps, all but the first of each
