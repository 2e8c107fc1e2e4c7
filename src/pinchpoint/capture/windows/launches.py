"""What a small launch costs the host, before the profiler first runs in a process and after.

CUPTI stays loaded after a recording of torch, and launches go through it from then on: one of 8 or
10 µs then takes 13 to 15 (H200s, torch 2.11). Steps timed "without the profiler" have that, and
the difference of the two figures tells how much it is.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from pinchpoint.capture.windows.torch import USED, TorchWindow

BATCHES, LAUNCHES = 16, 16  # 2 to 4 ms in all; the least batch is the one that nobody disturbed
LONGEST_NS = 10_000_000  # then no other batch begins: launches wait for room in a full queue
# Of one launch: a few µs for the driver, some more for the operator. More is a wait.
MOST_NS = 100_000
ROOM_BYTES = (
    64 << 20
)  # free on the device: with less, even a tiny tensor may make torch free others

Clock = Callable[[], int]


class Budget(Protocol):
    """Who counts what holds the program up."""

    def stalls(self, act: Callable[[], None]) -> None:
        """Do it, and count how long it took."""
        ...


class Steps(Protocol):
    """Who counts steps."""

    interval_ns: Any


class LaunchCost:
    """One process's. Its methods never raise; all are for an edge, in the thread of the steps."""

    def __init__(self, clock_ns: Clock = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._primed = False
        self.before_ns: int | None = None
        self.after_ns: int | None = None
        self.why: str | None = "no recording began between two steps"
        self.loaded_since = 0  # steps until the profiler first ran

    def prime(self, window: Any, steps: Steps, budget: Budget) -> None:
        """Prime the window; the first time, measure before. Raises what that raises."""
        if not self._primed:
            self._primed = True
            budget.stalls(lambda: self._begin(window, len(steps.interval_ns)))
        budget.stalls(window.prime)

    def _begin(self, window: Any, intervals: int) -> None:
        if not isinstance(window, TorchWindow):
            self.why = "not a recording by torch"
        elif USED.is_set():
            self.why = "the profiler had run before"
        else:
            self.loaded_since = intervals
            self.before_ns, self.why = launch_ns(self._clock_ns)

    def after(self, budget: Budget) -> None:
        """A recording ended with a step; of several, the least counts."""
        if self.before_ns is not None:
            budget.stalls(self._end)

    def _end(self) -> None:
        found, why = launch_ns(self._clock_ns)
        if found is not None:
            self.after_ns = min(found, self.after_ns or found)
        self.why = why if self.after_ns is None else None

    def note(self, rows: list[int]) -> dict[str, Any]:
        """For the figures of the process; ``rows``: its steps timed before the recording."""
        why = self.why
        if why is None and self.after_ns is None:
            why = "no recording ended with a step"
        return {
            "before": self.before_ns,
            "after": self.after_ns,
            "why": why,
            "unloaded_steps": sum(row < self.loaded_since for row in rows),
        }


def launch_ns(clock_ns: Clock) -> tuple[int | None, str | None]:
    """The time of one small launch, or why it is not known.

    Nothing waits for the device. A tensor of one element is there meanwhile; gradients, random
    numbers and streams stay as they are.
    """
    torch = sys.modules.get("torch")
    try:
        why = _why_not(torch)
        found = None if why else _least_ns(torch, clock_ns)
    except Exception as error:  # the user's program comes first
        return None, f"{type(error).__name__}: {error}".splitlines()[0]
    if found is not None and found > MOST_NS:
        return None, "launches waited for the device"
    return found, why


def _why_not(torch: Any) -> str | None:
    if torch is None or not torch.cuda.is_initialized() or torch.version.cuda is None:
        return "no CUDA device in use by torch"
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph was being captured"
    if torch.autograd._profiler_enabled():
        return "another profiler was recording"
    tracing = getattr(sys.modules.get("torch._guards"), "TracingContext", None)
    if torch.compiler.is_compiling() or (tracing is not None and tracing.try_get() is not None):
        return "a compilation was under way"
    modes = torch._C._len_torch_dispatch_stack()
    if modes or torch._C._functorch.peek_interpreter_stack() is not None:
        return "operators were being rewritten by the program"
    if torch.cuda.mem_get_info()[0] < ROOM_BYTES:
        return "the memory of the device was full"
    return None


def _least_ns(torch: Any, clock_ns: Clock) -> int:
    with ExitStack() as within:
        within.enter_context(torch._C.DisableTorchFunction())
        within.enter_context(torch.inference_mode())
        device = torch.device("cuda", torch.cuda.current_device())
        value = torch.zeros(1, dtype=torch.float32, device=device)
        value.add_(1.0)  # its first launch loads the kernel
        least, began_ns = 0, clock_ns()
        start_ns = began_ns
        for _ in range(BATCHES):
            for _ in range(LAUNCHES):
                value.add_(1.0)
            now_ns = clock_ns()
            each = (now_ns - start_ns) // LAUNCHES
            least, start_ns = min(least or each, each), now_ns
            if now_ns - began_ns > LONGEST_NS:
                break
    return least
