import pytest

from pinchpoint.trace import MemoryKind
from program import LAUNCH_US, Program

PIECES, HOST_US = 40, 30


def piecemeal(*, pieces=PIECES, size=256, source=MemoryKind.PAGEABLE, kernels=False):
    """Each step sends ``pieces`` tensors to the device, HOST_US each, then computes 100 us."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(pieces):
            with p.frame("data.py(30): to_device"), p.row("aten::to"):
                if kernels:
                    p.kernel("fill", 1)
                else:
                    p.copy(size, 1, source, MemoryKind.DEVICE)
                p.busy(HOST_US - LAUNCH_US)
        p.kernel("work", 100)
    return p.trace()


def test_counts_the_pieces_and_the_host_time_of_their_calls(outcome):
    (finding,) = outcome("small-h2d-copies", piecemeal()).findings
    assert finding.summary == "40 copies a step go to the device in pieces of 256 bytes"
    assert finding.cost_ns_per_step == pytest.approx(PIECES * HOST_US * 1e3, rel=0.02)
    assert finding.location.function == "to_device"


def test_without_them_the_step_is_short(predicted):
    assert predicted(piecemeal(), "small-h2d-copies") < 0.3e6


@pytest.mark.parametrize(
    "trace",
    [
        piecemeal(pieces=8),
        piecemeal(size=4 << 20),
        piecemeal(source=MemoryKind.DEVICE),
        piecemeal(kernels=True),
    ],
    ids=["few", "large", "on the device", "kernels"],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("small-h2d-copies", trace).answer == "clear"
