import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import MemoryKind
from program import Program

SIZE = 200_000_000
SLOW_US, LINK_US = 40_000, 4_000  # 5 and 50 GB/s


def copying(*, size=SIZE, took_us=SLOW_US, waits=True, around="train.py(60): keep", work=None):
    """Each step computes 10 ms and copies an activation to ordinary memory."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("forward", 10_000)
        with p.frame(around), p.row("aten::to"), p.row("aten::copy_"):
            p.copy(size, took_us, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=waits)
        if work:
            p.host(work, 5_000)
    return p.trace()


def test_counts_bytes_and_the_wait(outcome):
    (finding,) = outcome("large-d2h-copies", copying()).findings
    assert finding.summary.startswith("200 MB a step are copied to the host")
    assert finding.cost_ns_per_step == pytest.approx((10_000 + SLOW_US) * 1e3, rel=0.01)


def test_between_no_copy_and_one_at_the_rate_of_the_link_without_the_wait():
    after = diagnose(copying()).found[0].predicted
    assert after.step_ns == pytest.approx((10_000 + LINK_US / 2) * 1e3, rel=0.05)
    assert after.range_ns[0] <= 10_000e3 < (10_000 + LINK_US) * 1e3 <= after.range_ns[1]


@pytest.mark.parametrize(
    "trace",
    [copying(size=400_000, took_us=100), copying(around="torch/serialization.py(9): save")],
    ids=["some values", "a save"],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("large-d2h-copies", trace).answer == "clear"
