import pytest

from program import Program

CALLS = 4


def preparing(*, own_us=2_000, name="aten::_cudnn_rnn", kernel_us=50, waits=False):
    """Each step calls an operator that works on the host before it launches its kernel."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("serve.py(20): forward"):
            for _ in range(CALLS):
                with p.row(name):
                    p.busy(own_us)
                    p.kernel("gemm", kernel_us)
                    if waits:
                        p.sync()
                with p.row("aten::add"):
                    p.busy(10)
                    p.kernel("elementwise", 10)
    return p.trace()


def test_the_operator_is_named_with_its_time_in_a_call(outcome, ranked):
    trace = preparing()
    (finding,) = outcome("operator-host-time", trace).findings
    assert finding.summary.startswith("aten::_cudnn_rnn keeps the host busy for 1.99 ms")
    assert finding.location.function == "forward"
    assert finding.cost_ns_per_step == pytest.approx(CALLS * 2_000_000, rel=0.05)
    assert "operator-host-time" in ranked(trace)


@pytest.mark.parametrize(
    "trace",
    [
        preparing(own_us=50),
        preparing(kernel_us=5_000),
        preparing(waits=True),
        preparing(name="CompiledFunction"),
    ],
    ids=["dispatch", "the device is busy", "waits", "a compiler's"],
)
def test_other_host_time_is_not_meant(outcome, trace):
    assert outcome("operator-host-time", trace).answer == "clear"
