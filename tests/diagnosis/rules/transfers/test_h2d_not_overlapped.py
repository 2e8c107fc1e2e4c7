import pytest

from pinchpoint.trace import MemoryKind
from program import Program


def copying(source, *, stream=7, size=64 << 20):
    """Each step copies a batch in 1 ms and computes for 3 ms on stream 7, without any wait."""
    p = Program()
    for _ in p.steps(8):
        with p.frame("data.py(30): to_device"), p.row("aten::to"):
            p.copy(size, 1_000, source, MemoryKind.DEVICE, stream=stream)
        with p.row("aten::mm"):
            p.kernel("work", 3_000)
    return p.trace()


def test_names_the_copies_their_place_and_their_time(outcome):
    (finding,) = outcome("h2d-not-overlapped", copying(MemoryKind.PINNED)).findings
    assert finding.cost_ns_per_step == 1_000_000
    assert finding.location.function == "to_device"
    assert finding.evidence[1].value == 1.0


def test_on_a_stream_of_its_own_the_copy_is_hidden(predicted):
    trace = copying(MemoryKind.PINNED)
    assert predicted(trace, "h2d-not-overlapped") == pytest.approx(3e6, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        copying(MemoryKind.PAGEABLE),
        copying(MemoryKind.PINNED, stream=9),
        copying(MemoryKind.PINNED, size=1 << 16),
    ],
    ids=["pageable", "own stream", "small"],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("h2d-not-overlapped", trace).answer == "clear"
