"""Steps that wait for a loader, by hand."""

import json

from builders import TraceBuilder
from pinchpoint.trace import MemoryKind, Trace

US = 1_000
MS = 1_000_000
RANGE = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
FETCH = "torch/utils/data/_utils/fetch.py(49): fetch"


def loading(
    waits_ms: list[float],
    *,
    workers: int = 0,
    batch: list[int] | None = None,
    size: int = 1 << 20,
    inside: list[tuple[str, float]] | None = None,
    work_ms: float = 2,
    operators: int = 0,
    calls: str | None = None,
) -> Trace:
    """A step for each wait: the loader's next(), a copy of the batch, and a kernel.

    ``inside`` are frames within next(), one after the other, with their shares of its time;
    ``operators`` as many operators of 1 µs as the first of them runs; ``calls`` what each of them
    calls for nearly all of its time.
    """
    b = TraceBuilder()
    at = 0
    starts = []
    for i, wait in enumerate(waits_ms):
        waited, period = round(wait * MS), round((wait + work_ms) * MS) + 200 * US
        starts.append(at)
        b.step(i, at, period)
        name = RANGE.format("MultiProcessing" if workers else "SingleProcess")
        b.annotation(name, at + US, waited)
        begin = at + 2 * US
        for n in range(operators):
            b.op("aten::detach_", begin + (2 + 2 * n) * US, US)
        for frame, share in inside or []:
            takes = round(share * (waited - 4 * US))
            b.python(frame, begin, takes)
            if calls:
                b.python(calls, begin + US, takes - 2 * US)
            begin += takes
        after = at + US + waited
        b.op("aten::copy_", after + US, 20 * US, shapes=json.dumps([batch or [8, 8], []]))
        host, device = MemoryKind.PINNED, MemoryKind.DEVICE
        b.copy(
            after + 2 * US, 5 * US, "Memcpy HtoD", after + 9 * US, 30 * US,
            size=size, source=host, target=device,
        )  # fmt: skip
        b.launch(after + 30 * US, 5 * US, "work", after + 50 * US, round(work_ms * MS))
        at += period
    for n in range(workers):
        thread = b.thread(f"feeder {n}")
        b.python("multiprocessing/queues.py(251): _feed", 0, at, thread=thread)
    return b.trace()
