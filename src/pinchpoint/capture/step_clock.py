"""Steps of the program, timed on the host: how long each took, and how much of it was waiting."""

import time
from array import array
from collections.abc import Callable

STEADY_STEPS = 5  # two runs of so many steps must agree
FASTER_RATIO = 0.90  # below this share of those before, steps still warm up
SLOWER_RATIO = 1.50  # above this share, something other than ordinary steps is going on
FIRST_STEPS = 2  # never judged: allocator, autotuning and lazy initialisation
MOST_STEPS = 4_000_000  # 64 MB of times; after that the run is described by its beginning


class StepClock:
    """Edges between steps. An interval is the time from one edge to the next.

    Intervals in which Pinchpoint itself stalled the program, or recorded, are *disturbed*: they
    are kept in the count and left out of every figure.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._last_ns: int | None = None
        self._waited_ns = 0
        self._disturbed_now = False
        self.edges = 0
        self.first_ns: int | None = None
        self.interval_ns, self.wait_ns = array("q"), array("q")
        self.disturbed: set[int] = set()

    def now_ns(self) -> int:
        """The present time of this clock."""
        return self._clock_ns()

    def waited(self, wait_ns: int) -> None:
        """The program waited for data in the present step."""
        self._waited_ns += wait_ns

    def disturb(self) -> None:
        """The present interval is not an ordinary step."""
        self._disturbed_now = True

    def edge(self) -> int:
        """A step ends and the next begins; returns how many intervals there are now."""
        now_ns = self._clock_ns()
        if self._last_ns is None:
            self.first_ns = now_ns
        elif len(self.interval_ns) < MOST_STEPS:
            if self._disturbed_now:
                self.disturbed.add(len(self.interval_ns))
            self.interval_ns.append(now_ns - self._last_ns)
            self.wait_ns.append(self._waited_ns)
        self._last_ns, self._waited_ns, self._disturbed_now = now_ns, 0, False
        self.edges += 1
        return len(self.interval_ns)

    def forget(self) -> None:
        """Start over: the edges so far were of another kind."""
        self.__init__(self._clock_ns)  # type: ignore[misc]

    @property
    def elapsed_ns(self) -> int:
        """Time since the first edge."""
        return 0 if self.first_ns is None else self._clock_ns() - self.first_ns

    @property
    def since_last_s(self) -> float:
        """Seconds since the last edge; 0 before the first."""
        return 0.0 if self._last_ns is None else (self._clock_ns() - self._last_ns) / 1e9

    def undisturbed(self, first: int = 0, last: int | None = None) -> list[int]:
        """Positions of ordinary intervals in ``[first, last)``."""
        end = len(self.interval_ns) if last is None else min(last, len(self.interval_ns))
        return [i for i in range(max(first, 0), end) if i not in self.disturbed]

    def steady(self) -> bool:
        """Whether steps no longer get faster; noise may make them a little slower."""
        count = len(self.interval_ns)
        if count < FIRST_STEPS + 2 * STEADY_STEPS:
            return False
        recent = median(self.interval_ns[count - STEADY_STEPS :])
        before = median(self.interval_ns[count - 2 * STEADY_STEPS : count - STEADY_STEPS])
        return FASTER_RATIO * before <= recent <= SLOWER_RATIO * before


def median(times: "array[int]") -> int:
    """The middle of an odd number of times; the statistics module takes long to import."""
    return sorted(times)[len(times) // 2]
