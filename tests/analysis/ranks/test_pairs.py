"""Two stages of a pipeline: the first computes and sends, the second receives and computes."""

import json

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.ranks.collective_calls import PAIR, rank_calls
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.trace import ApiKind, DeviceKind

MS = 1_000_000
ARGUMENTS = {"In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float"}
GROUP = {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}


def stage(rank, *, says_peer=True, steps=6):
    """Stage 0 works 10 ms and sends for 1 ms; stage 1 waits in its receive and works 4 ms."""
    b = TraceBuilder()
    for i in range(steps):
        at = 20 * MS * i
        peer = {("Dst Rank", "Src Rank")[rank]: str(1 - rank)} if says_peer else {}
        transfer = {
            "kind": DeviceKind.COLLECTIVE,
            "collective": ("send", "recv")[rank],
            "stream": 20,
            "collective_args": json.dumps(ARGUMENTS | GROUP | peer),
        }
        if rank == 0:
            b.launch(at, 5_000, "gemm", at + 10_000, 10 * MS)
            b.launch(at + 6_000, 5_000, "ncclDevKernel_SendRecv", at + 10 * MS, MS, **transfer)
            end = 11 * MS
        else:
            b.launch(at, 5_000, "ncclDevKernel_SendRecv", at + 10_000, 11 * MS - 10_000, **transfer)
            b.launch(at + 6_000, 5_000, "gemm", at + 11 * MS, 4 * MS)
            end = 15 * MS
        b.api("cudaStreamSynchronize", at + 12_000, end - 12_000, kind=ApiKind.SYNC_STREAM)
        b.step(i, at, 20 * MS)
    return b.trace(rank=rank, world_size=2, origin_ns=10**18)


def job_of(**more):
    summaries = [summarise(stage(rank, **more)) for rank in (0, 1)]
    return reduce(lambda: iter(summaries))


def test_a_receive_waits_for_the_rank_that_sends():
    job = job_of()
    (kind,) = job.between.kinds
    assert (kind.kind, kind.group, kind.ranks) == (PAIR, "point to point", 2)
    assert kind.transfer_ns == MS
    assert kind.bus_bytes_per_s == pytest.approx((4 << 20) / 1e-3)
    assert job.between.waiting_ns[1].mean() == pytest.approx(10 * MS, rel=0.01)
    assert job.between.waiting_ns[0].mean() == 0
    assert job.between.was_last.tolist() == [6, 0]


def test_clocks_are_not_told_by_them():
    assert not job_of().clocks.aligned.any()


def test_without_the_other_rank_they_are_left_out_and_counted():
    job = job_of(says_peer=False)
    assert job.between.kinds == ()
    assert [r.point_to_point for r in job.facts.ranks] == [6, 6]
    assert rank_calls(stage(0)).point_to_point == 0
