import pytest

from pinchpoint.diagnosis.rules.communication.wrong_backend import LEFT_RATIO
from pinchpoint.trace import HostKind, MemoryKind
from program import Program

SIZE, REDUCE_US, COPY_US = 8_000_000, 5_000, 400


def reducing(name="gloo:all_reduce", *, nccl=False):
    """Backward of 1 ms, then a collective on the host between two copies, or on the device."""
    p = Program()
    device, host = MemoryKind.DEVICE, MemoryKind.PAGEABLE
    for _ in p.steps(6):
        p.kernel("backward", 1_000)
        p.copy(SIZE, COPY_US, device, host, waits=True)
        p.host(name, REDUCE_US, kind=HostKind.ANNOTATION)
        p.copy(SIZE, COPY_US, host, device)
        if nccl:
            p.collective(500)
    return p.trace()


def test_names_the_backend_and_counts_the_copies(outcome):
    (finding,) = outcome("wrong-backend", reducing()).findings
    assert "of the gloo backend" in finding.summary
    assert finding.cost_ns_per_step == REDUCE_US * 1_000
    assert finding.evidence[-1].value == 2 * SIZE


def test_on_the_device_a_tenth_is_left(predicted):
    after_ns = 1e6 + LEFT_RATIO * (REDUCE_US + 2 * COPY_US) * 1e3
    assert predicted(reducing(), "wrong-backend") == pytest.approx(after_ns, rel=0.15)


def test_the_line_is_that_of_the_operator_that_begins_it(outcome):
    p = Program()
    gloo = p.builder.thread("gloo")
    for _ in p.steps(6):
        with p.frame("train.py(60): average"), p.row("c10d::allreduce_"):
            p.copy(SIZE, COPY_US, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
        begin = p.at
        p.busy(REDUCE_US)
        took = REDUCE_US * 1_000
        p.builder.op("gloo:all_reduce", begin, took, thread=gloo, kind=HostKind.ANNOTATION)
    (finding,) = outcome("wrong-backend", p.trace()).findings
    assert (finding.location.function, finding.location.line) == ("average", 60)


@pytest.mark.parametrize(
    "trace",
    [reducing("nccl:all_reduce"), reducing(nccl=True)],
    ids=["the device's backend", "a barrier beside it"],
)
def test_other_backends_are_fine(outcome, trace):
    assert outcome("wrong-backend", trace).answer == "clear"
