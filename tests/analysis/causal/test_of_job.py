"""What a piece of one rank is worth to the job; milliseconds."""

from types import SimpleNamespace

import pytest

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


@pytest.mark.parametrize(
    ("devices", "why"),
    [((None, None), "its ranks have no device"), (("H200", None), "no collectives of the ranks")],
)
def test_what_cannot_be_replayed_says_why(devices, why):
    ranks = [SimpleNamespace(device=device) for device in devices]
    job = SimpleNamespace(replay=None, facts=SimpleNamespace(ranks=ranks))
    assert of_job(job, []).why_not.startswith(why)
