"""What a piece of one rank is worth to the job; milliseconds."""

from types import SimpleNamespace

import numpy as np
import pytest

from host_ranks import traces_of_hosts
from pinchpoint.analysis.causal.of_job import of_job, own_gains
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from program import LAUNCH_US, Program

MS = 1_000_000
TRANSFER_US = 1_000


def profile_of(*work_us):
    """Each rank computes, all meet in one all-reduce, and wait for it."""
    traces = []
    for rank, mine in enumerate(work_us):
        p = Program()
        for step in p.steps(8):
            with p.row("aten::mm"):
                p.kernel("gemm", mine)
            args = {"Seq": step, "In msg nelems": 1 << 24, "dtype": "Float", "Group size": 2}
            args |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
            p.collective(max(work_us) - mine + TRANSFER_US, args)
            p.sync()
        traces.append(p.trace(rank=rank, world_size=len(work_us), origin_ns=1_700_000_000 * 10**9))
    summaries = [summarise(trace) for trace in traces]
    return of_job(reduce(lambda: iter(summaries)), [own_gains(trace) for trace in traces])


def near(ms):
    return pytest.approx(ms * MS, rel=0.05, abs=10 * LAUNCH_US * 1_000)


def test_the_work_of_the_slow_rank_is_worth_what_the_other_waits():
    found = profile_of(10_000, 20_000)
    assert found.base_ns == near(21)
    most = found.pieces[0]
    assert (most.rank, most.own_ns, most.least_own_ns) == (1, near(20), near(10))
    assert most.step_if_free_there_ns == near(11)  # the other rank takes 10 ms, a transfer 1 ms
    assert most.step_if_free_ns == near(1)
    assert most.step_if_even_ns == near(11)


def test_what_both_have_is_worth_nothing_on_one_alone():
    most = profile_of(10_000, 10_000).pieces[0]
    assert most.step_if_free_there_ns == near(11)
    assert most.step_if_even_ns == near(11)
    assert most.step_if_free_ns == near(1)


def host_ranks(*work_ms, async_ms=0):
    traces = traces_of_hosts(*work_ms, async_ms=async_ms)
    summaries = [summarise(trace) for trace in traces]
    return of_job(reduce(lambda: iter(summaries)), [own_gains(trace) for trace in traces])


def piece(found, name):
    return next(one for one in found.pieces if one.name == name)


def test_without_devices_the_work_of_the_slow_rank_is_worth_what_the_other_waits():
    found = host_ranks(10, 20)
    assert found.base_ns == near(22)
    most = piece(found, "aten::mm")
    assert (most.rank, most.own_ns, most.least_own_ns) == (1, near(20), near(10))
    assert most.step_if_free_there_ns == near(12)
    assert most.step_if_free_ns == near(2)
    assert most.step_if_even_ns == near(12)
    assert found.nobody_late_ns == near(12)
    assert found.no_transfers_ns == near(21)


def test_without_devices_waiting_is_no_piece():
    assert piece(host_ranks(10, 20), "aten::mm").step_if_free_there_ns == near(12)
    assert piece(host_ranks(10, 10), "aten::mm").step_if_free_there_ns == near(12)
    assert not any(one.own_ns > 11 * MS for one in host_ranks(10, 10).pieces)


def test_without_devices_what_the_thread_did_meanwhile_was_no_waiting():
    relu = piece(host_ranks(10, 20, async_ms=8), "aten::relu")
    assert relu.own_ns == near(8)


class _Facts:
    def __init__(self, window):
        self.window_ns = np.array(window, float)


@pytest.mark.parametrize(
    ("met", "window", "why"),
    [
        (False, [[1.0], [1.0]], "no collectives of the ranks"),
        (True, [[1.0, np.nan], [np.nan, 1.0]], "no step was recorded of all"),
        (True, [[1.0], [1.0]], "its collectives cannot be replayed"),
    ],
)
def test_what_cannot_be_replayed_says_why(met, window, why):
    job = SimpleNamespace(replay=None, of_hosts=None, met=met, facts=_Facts(window))
    assert of_job(job, []).why_not.startswith(why)
