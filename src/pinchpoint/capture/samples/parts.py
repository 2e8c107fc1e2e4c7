"""The run in chronological parts of equally many steps: how long they were, and what was seen."""

import sys
import threading
import time
from array import array
from typing import Any

from pinchpoint.capture.process.memory import resident_bytes
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.frozen import dataclass

# Then two become one: 16 or more tell a trend from noise, and take a few hundred kB.
MOST_PARTS = 32
MOST_STACKS = 40  # of one part in the document, most time first
# To count what Python holds takes 0.1 ms for a program of half a million blocks, 10 for one of five
# million: at first so much in all, which is enough for parts of the former, then as a part of the
# run.
COUNTING_NS = 20_000_000
COUNTING_RATIO = 0.001


@dataclass
class Part:
    """Steps one after the other; those that were recorded or far from typical are left out."""

    first: int  # number of its first step
    objects: int | None  # small blocks that Python held when it began
    resident_bytes: int | None
    device_bytes: int | None
    seen: dict[int, int]  # microseconds by stack, of the thread of the steps
    beside: dict[int, int]  # of threads that Python did not start, such as autograd's
    steps: int = 0
    timed: int = 0  # of them
    cpu_ns: int = 0  # of the thread of the steps, in timed ones


class Parts:
    """Hears of every typical step."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._each = 1  # steps of a part that is full
        self._cpu_ns: int | None = None
        self._untimed = 0  # steps since it was read
        self._blocks = _Blocks()

    @property
    def full(self) -> bool:
        """Whether the next step begins another part."""
        return not self._parts or self._parts[-1].steps >= self._each

    def skip(self) -> None:
        """The step that ended does not count."""
        self._cpu_ns, self._untimed = time.thread_time_ns(), 0

    def count_unseen(self, steps: int = 1) -> None:
        """Typical steps ended in which nobody looked: asking how long they had a core is dear."""
        if self._parts:
            self._parts[-1].steps += steps
            self._untimed += steps

    def add(self, number: int, seen: dict[tuple[int, int], int]) -> None:
        """A typical step ended; ``seen``: microseconds by thread and stack."""
        now_ns = time.thread_time_ns()
        if self.full:
            self._begin(number)
        part = self._parts[-1]
        part.steps += 1
        if self._cpu_ns is not None:
            part.timed += 1 + self._untimed
            part.cpu_ns += now_ns - self._cpu_ns
        for (thread, stack), us in seen.items():
            where = part.seen if thread == threading.get_ident() else part.beside
            if where is part.seen or _is_foreign(thread):
                where[stack] = where.get(stack, 0) + us
        self._cpu_ns, self._untimed = time.thread_time_ns(), 0

    def _begin(self, number: int) -> None:
        if len(self._parts) == MOST_PARTS:
            pairs = zip(self._parts[::2], self._parts[1::2], strict=True)
            self._parts = [_both(first, second) for first, second in pairs]
            self._each *= 2
        new = Part(number, self._blocks.count(), resident_bytes(), _device_bytes(), {}, {})
        self._parts.append(new)

    def document(self, clock: StepClock) -> list[dict[str, Any]]:
        """For the run folder; one whose last step is under way counts as it is."""
        ends = [*(part.first for part in self._parts), len(clock.interval_ns)][1:]
        return [
            {
                "first": part.first,
                "steps": part.steps,
                **_quartiles(clock, part.first, end),
                "cpu_ns": part.cpu_ns // max(part.timed, 1),
                "objects": part.objects,
                "resident_bytes": part.resident_bytes,
                "device_bytes": part.device_bytes,
                "seen": _most(part.seen),
                "beside": _most(part.beside),
            }
            for part, end in zip(self._parts, ends, strict=True)
        ]


class _Blocks:
    """How many small blocks Python holds, as often as counting them is cheap."""

    def __init__(self) -> None:
        self._began_ns, self._spent_ns, self._took_ns = time.perf_counter_ns(), 0, 0

    def count(self) -> int | None:
        now_ns = time.perf_counter_ns()
        allowed_ns = COUNTING_NS + COUNTING_RATIO * (now_ns - self._began_ns)
        if self._spent_ns + self._took_ns > allowed_ns:
            return None
        blocks = sys.getallocatedblocks()
        self._took_ns = time.perf_counter_ns() - now_ns
        self._spent_ns += self._took_ns
        return blocks


def _both(first: Part, second: Part) -> Part:
    for mine, other in ((first.seen, second.seen), (first.beside, second.beside)):
        for stack, us in other.items():
            mine[stack] = mine.get(stack, 0) + us
    first.steps += second.steps
    first.timed += second.timed
    first.cpu_ns += second.cpu_ns
    return first


def _quartiles(clock: StepClock, first: int, end: int) -> dict[str, int | None]:
    times = sorted(array("q", (clock.interval_ns[i] for i in clock.undisturbed(first, end))))
    if not times:
        return {"p25": None, "p50": None, "p75": None}
    return {f"p{100 * q // 4}": times[q * len(times) // 4] for q in (1, 2, 3)}


def _most(seen: dict[int, int]) -> list[tuple[int, int]]:
    return sorted(seen.items(), key=lambda one: -one[1])[:MOST_STACKS]


def _is_foreign(ident: int) -> bool:
    """Python knows such a thread not at all, or as a dummy."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return thread is None or isinstance(thread, threading._DummyThread)


def _device_bytes() -> int | None:
    """What torch's allocator holds of the device; None without one."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        return int(torch.cuda.memory_allocated())
    except (AttributeError, RuntimeError):
        return None
