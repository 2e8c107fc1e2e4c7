"""Ranks without devices that broadcast, send and receive through the host's backend."""

import pytest

from builders import TraceBuilder
from host_ranks import traces_of_hosts
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.analysis.time.accounting import breakdown

MS = 1_000_000
BEGIN = 1_700_000_000 * 10**9


def job_of(traces):
    summaries = [summarise(trace) for trace in traces]
    return reduce(lambda: iter(summaries))


def near(ms):
    return pytest.approx(ms * MS, abs=0.1 * MS)


def test_who_comes_early_to_a_broadcast_waits_in_it():
    job = job_of(traces_of_hosts(10, 20, what="broadcast"))
    assert job.between.waiting_ns[0] == near(10)
    assert job.between.waiting_ns[1] == near(0)
    assert job.between.transfer_ns == near(1)


def pipeline(rank, *, steps=4):
    """Rank 0 computes for 4 ms, sends without waiting and computes for 4 ms more; rank 1 receives
    for 5 ms and computes for 10. The send is done only when the step is."""
    b = TraceBuilder()
    b.devices = []
    for step in range(steps):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        if rank == 0:
            b.op("aten::mm", at, 4 * MS)
            b.op("c10d::send", at + 4 * MS, MS // 100)
            b.annotation("gloo:send", at + 4 * MS + MS // 50, 15 * MS)
            b.op("aten::addmm", at + 5 * MS, 4 * MS)
        else:
            b.op("c10d::recv_", at, MS // 100)
            b.annotation("gloo:recv", at + MS // 50, 5 * MS)
            b.op("aten::mm", at + 6 * MS, 10 * MS)
    return b.trace(rank=rank, world_size=2, origin_ns=BEGIN)


def test_a_thread_that_computes_stands_in_no_send():
    parts = {p.id: ns for p, ns in breakdown_of(pipeline(0)).items()}
    assert parts["host-gemm"] == near(8)
    assert "host-host-collective" not in parts
    received = {p.id: ns for p, ns in breakdown_of(pipeline(1)).items()}
    assert received["host-host-collective"] == near(5)


def breakdown_of(trace):
    found = breakdown(trace)
    return dict(zip(found.parts, found.by_step[1].tolist(), strict=True))


def test_sends_and_receives_of_unknown_ends_are_one_of_both_and_no_mismatch():
    job = job_of([pipeline(rank) for rank in (0, 1)])
    assert job.mismatches == ()
    assert job.between.untold_ns[1] == near(5)
    assert not job.between.transfer_ns.any()
    assert not job.between.untold_ns[0].any()
