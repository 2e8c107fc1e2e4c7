"""Ranks of one job without devices, by hand: each computes, then all meet in gloo's all-reduce."""

from builders import TraceBuilder
from pinchpoint.trace import Trace

MS = 1_000_000
BEGIN = 1_700_000_000 * 10**9  # Unix time of the first step


def traces_of_hosts(
    *work_ms: int,
    async_ms: int = 0,
    steps: int = 6,
    what: str = "all_reduce",
    in_turn: bool = False,
) -> list[Trace]:
    """One trace a rank, which computes for so long in train.py:7 and then stands in the all-reduce
    until the last one is there and 1 ms more; ``async_ms`` of a layer come after it is issued.
    ``in_turn``: a rank does the work of the next one in the step that follows."""
    traces, each_ms = [], max(work_ms) + async_ms + 2
    for rank in range(len(work_ms)):
        b = TraceBuilder()
        b.devices = []
        gloo = b.thread("gloo")
        for step in range(steps):
            at = step * each_ms * MS
            mine = work_ms[(rank + step * in_turn) % len(work_ms)]
            b.step(step, at, each_ms * MS)
            b.python("train.py(7): work", at + 10, mine * MS - 20)
            b.op("aten::mm", at + 20, mine * MS - 40)
            b.op("c10d::allreduce_", at + mine * MS, MS // 100)
            if async_ms:
                b.op("aten::relu", at + mine * MS + MS // 50, async_ms * MS)
            end = at + (max(work_ms) + async_ms + 1) * MS
            start = at + mine * MS + MS // 200
            b.annotation(f"gloo:{what}", start, end - start, thread=gloo)
            b.op("aten::copy_", end + 1_000, MS // 2)
        traces.append(b.trace(rank=rank, world_size=len(work_ms), origin_ns=BEGIN))
    return traces


def stages_of_hosts(
    *, first_ms: int = 40, second_ms: int = 60, exchange: bool = False
) -> list[Trace]:
    """Two ranks of steps of 112 ms that send each other one message a step: the first works 30 ms,
    sends, waits until the second has worked, and works the rest; a message takes 1 ms.
    ``exchange``: both send before they receive."""
    each_ms, traces = first_ms + second_ms + 12, []
    for rank in (0, 1):
        b = TraceBuilder()
        b.devices = []
        gloo = b.thread("gloo")
        for step in range(6):
            at = step * each_ms * MS
            b.step(step, at, each_ms * MS)
            sent = 30 if rank == 0 or exchange else 31 + second_ms
            asked, came = (30, 32 + second_ms) if rank == 0 or exchange else (1, 31)
            worked = [(0, 30), (came, each_ms)] if rank == 0 or exchange else [(31, sent)]
            for begin, end in worked:
                b.op("aten::mm", at + begin * MS + 10, (end - begin) * MS - 20)
            b.annotation("gloo:send", at + sent * MS, MS, thread=gloo)
            b.annotation("gloo:recv", at + asked * MS, (came - asked) * MS, thread=gloo)
        traces.append(b.trace(rank=rank, world_size=2, origin_ns=BEGIN))
    return traces
