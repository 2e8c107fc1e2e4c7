import pytest

from pinchpoint.diagnosis.rules.transfers.pageable_h2d import PINNED_BYTES_PER_S
from pinchpoint.trace import MemoryKind
from program import Program

SIZE = 40_000_000


def copying(source, *, copy_us, size=SIZE):
    """Each step copies a batch to the device, waits for it if it is pageable, and computes 2 ms."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("data.py(30): to_device"), p.row("aten::to"):
            waits = source == MemoryKind.PAGEABLE
            p.copy(size, copy_us, source, MemoryKind.DEVICE, waits=waits)
            if waits:
                p.sync()
        p.kernel("work", 2_000)
    return p.trace()


def test_names_rate_place_and_cost(outcome):
    trace = copying(MemoryKind.PAGEABLE, copy_us=8_000)
    (finding,) = outcome("pageable-h2d", trace).findings
    assert finding.evidence[0].value == SIZE / 8e-3
    assert finding.cost_ns_per_step == 8_000_000
    assert finding.location.function == "to_device"
    assert finding.summary == (
        "40 MB a step are copied to the device from pageable memory at 5.0 GB/s"
    )


def test_pinned_it_moves_at_the_rate_of_the_link(predicted):
    after_ns = SIZE / PINNED_BYTES_PER_S * 1e9 + 2e6
    trace = copying(MemoryKind.PAGEABLE, copy_us=8_000)
    assert predicted(trace, "pageable-h2d") == pytest.approx(after_ns, rel=0.05)


@pytest.mark.parametrize(
    ("source", "copy_us", "size"),
    [
        (MemoryKind.PINNED, 8_000, SIZE),  # the link is slow, not the memory
        (MemoryKind.PAGEABLE, 8_000, 1 << 19),
        (MemoryKind.PAGEABLE, 700, SIZE),
    ],
    ids=["pinned and slow", "small", "as fast as pinned"],
)
def test_other_copies_are_fine(outcome, source, copy_us, size):
    trace = copying(source, copy_us=copy_us, size=size)
    assert outcome("pageable-h2d", trace).answer == "clear"


@pytest.mark.parametrize(("tensors", "answer"), [(4, "found"), (60, "clear")])
def test_parameters_that_are_placed_once_are_no_batch(outcome, tensors, answer):
    p = Program()
    for _ in range(tensors):
        with p.row("aten::to"):
            p.copy(SIZE, 4_000, MemoryKind.PAGEABLE, MemoryKind.DEVICE, waits=True)
            p.sync()
    for number in range(30):
        p.kernel(f"work {number}", 200)
    assert outcome("pageable-h2d", p.trace()).answer == answer
