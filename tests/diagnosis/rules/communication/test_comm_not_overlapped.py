import pytest

from pinchpoint.diagnosis.rules.communication.comm_not_overlapped import (
    CALL_NS,
    LEAST_WON_RATIO,
    MOST_WON_RATIO,
)
from pinchpoint.trace import HostKind
from program import Program


def training(*, stream=7, trains=True, wait_us=0):
    """Backward of 2 ms and an all-reduce of 2 ms, on a stream of its own or after it."""
    p = Program()
    for _ in p.steps(6):
        p.busy(wait_us)
        p.kernel("backward", 2_000)
        p.collective(2_000, {"In msg nelems": 1 << 26, "dtype": "Float"}, stream=stream)
        if trains:
            p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
        p.sync()
    return p.trace()


def test_counts_the_time_in_which_nothing_is_computed(outcome):
    (finding,) = outcome("comm-not-overlapped", training()).findings
    assert finding.cost_ns_per_step == 2_000_000
    assert finding.evidence[0].value == 2_000_000


def test_says_no_more_than_the_typical_step_holds(outcome):
    p = Program()
    for i, _ in enumerate(p.steps(8)):
        p.kernel("backward", 2_000)
        p.collective(9_000 if i == 5 else 2_000, {"In msg nelems": 1 << 26, "dtype": "Float"})
        p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
        p.sync()
    (finding,) = outcome("comm-not-overlapped", p.trace()).findings
    assert finding.cost_ns_per_step == 2_000_000


def test_claims_the_share_that_overlap_won_where_it_was_measured(gain):
    middle = (LEAST_WON_RATIO + MOST_WON_RATIO) / 2
    assert gain(training(), "comm-not-overlapped") == pytest.approx(middle * 2e6, rel=0.01)


@pytest.mark.parametrize(
    "trace", [training(stream=9), training(trains=False)], ids=["overlapped", "inference"]
)
def test_other_collectives_are_not_meant(outcome, trace):
    assert outcome("comm-not-overlapped", trace).answer == "clear"


def exchanging(wait_us=0, *, bytes_known=True, kind="allreduce"):
    """After backward a quick all-reduce, and one of the same size that waits first."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("backward", 2_000)
        args = {"In msg nelems": 1 << 26, "dtype": "Float"} if bytes_known else {}
        p.collective(1_000, args, collective=kind)
        p.collective(1_000 + wait_us, args, collective=kind)
        p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
        p.sync()
    return p.trace()


def test_waiting_for_another_rank_is_no_transfer(outcome):
    """Half of the best rate and a call's latency are allowed; the rest of a call is waiting."""
    (finding,) = outcome("comm-not-overlapped", exchanging(20_000)).findings
    assert finding.cost_ns_per_step == 1_000_000 + (2 * 1_000_000 + CALL_NS)


def test_layers_need_what_an_all_to_all_brings(outcome):
    assert outcome("comm-not-overlapped", exchanging(kind="alltoall")).answer == "clear"


def test_cannot_tell_waiting_from_transfer_without_sizes(outcome):
    assert outcome("comm-not-overlapped", exchanging(bytes_known=False)).answer == "not checked"
