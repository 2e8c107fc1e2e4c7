import pytest

from pinchpoint.trace import HostKind
from program import Program

ITER = "torch/utils/data/dataloader.py(477): __iter__"
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def epochs(*, forks=4, every=1, waits_ms=10):
    """Each step is an epoch that may start workers, 20 ms each, and waits for the first batch."""
    p = Program()
    for i in p.steps(6):
        if forks and i % every == 0:
            with p.frame(ITER):
                for _ in range(forks):
                    p.host("<built-in function fork>", 20_000)
        p.host(NEXT, waits_ms * 1_000, kind=HostKind.ANNOTATION)
        p.kernel("work", 2_000)
        p.sync()
    return p.trace()


def test_counts_starts_and_the_first_wait(outcome):
    (finding,) = outcome("worker-respawn", epochs()).findings
    assert finding.evidence[0].value == 4
    assert finding.cost_ns_per_step == pytest.approx(4 * 20e6 + 10e6, rel=0.001)
    assert finding.location.function == "step"


def test_kept_workers_leave_the_epoch_to_the_device(gain):
    assert gain(epochs(), "worker-respawn") == pytest.approx(90e6, rel=0.05)


@pytest.mark.parametrize(
    "trace", [epochs(forks=0), epochs(forks=1, every=6)], ids=["starved", "the first epoch"]
)
def test_other_waits_are_no_respawn(outcome, trace):
    assert outcome("worker-respawn", trace).answer == "clear"
