"""Steps of the program: which optimizer marks them, and how long each took on host and device."""

import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

STEADY_STEPS = 5  # two runs of so many steps must agree
# All that a run records and watches takes about 40 steps: ten seconds of steps as long as this.
LONG_STEP_NS = 250_000_000
STEADY_LONG_STEPS = 3  # of these: a program may not have many
FEWEST_ORDINARY = 3  # before a recording, to compare its steps with
FASTER_RATIO = 0.90  # below this share of those before, steps still warm up
SLOWER_RATIO = 1.50  # above this share, something other than ordinary steps is going on
RECENT_STEPS = 10  # what steps are like now
FIRST_STEPS = 2  # never judged: allocator, autotuning and lazy initialisation
USAGE_EVERY_NS = 10_000_000  # between two questions for page faults
MOST_STEPS = 4_000_000  # 64 MB of times; after that the run is described by its beginning
STALL_NS = (
    2_000_000  # schedulers take a millisecond or two now and then: what is longer is no noise
)
EDGE_NS = 20_000  # 5 to 20 µs on a core for all that is done as one step ends and the next begins
EDGES_RATIO = 0.02  # of the time of steps, at most: shorter ones are told of several at once
MOST_TOGETHER = 256  # so that even the shortest are told of every few milliseconds


class StepClock:
    """Edges between steps. An interval is the time from one edge to the next.

    Intervals in which Pinchpoint itself stalled the program, or recorded, are *disturbed*: they
    are kept in the count and left out of every figure.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._last_ns: int | None = None
        self._waited_ns = 0
        self._disturbed_now = self._watched_now = False
        self.told = 0  # of steps, alone or several together
        self._edges, self._counted, self._each = 0, 0, 1
        self.first_ns: int | None = None
        self.warm_unix_ns: int | None = None  # when the first two steps were over
        self.interval_ns, self.wait_ns = array("q"), array("q")
        self.disturbed: set[int] = set()
        self.watched: set[int] = set()  # of these, those in which operations were only listened to
        # Of the process in ordinary steps after the first: page faults, time of all threads in the
        # kernel, and outside of it.
        self.counted = self.faults = self.kernel_ns = self.user_ns = 0
        self._first_told = 0  # of the intervals that were added last
        self._usual_ns = 0  # of steps that were told of together
        self._usage: tuple[int, int, int] | None = None
        self._usage_ns, self._uncounted = 0, 0  # when that was, and steps since

    def now_ns(self) -> int:
        """The present time of this clock."""
        return self._clock_ns()

    def waited(self, wait_ns: int) -> None:
        """The program waited for data in the present step."""
        self._waited_ns += wait_ns

    def disturb(self) -> None:
        """The present interval is not an ordinary step."""
        self._disturbed_now = True

    @property
    def edges(self) -> int:
        """Ends of steps so far, also of those that were only counted."""
        return self._edges + self._counted

    def counts(self) -> bool:
        """Whether a step that has ended is only counted, until the clock is told of several."""
        waits = self._counted + 1 < self._each
        self._counted += waits
        return waits

    def spare(self, *, short: bool) -> None:
        """Be told of ``short`` steps together from now on, as many as what was just told says."""
        steps = range(self._first_told, len(self.interval_ns)) if short else range(0)
        took_ns = sum(self.interval_ns[i] for i in steps)
        wanted = int(EDGE_NS * len(steps) / (EDGES_RATIO * took_ns)) if took_ns else 1
        self._each = min(max(wanted, 1), MOST_TOGETHER)

    def watch(self) -> None:
        """The same, and all that makes it longer is that its operations are listened to: among
        themselves such steps show whether steps become faster."""
        self._disturbed_now = self._watched_now = True

    def edge(self) -> int:
        """A step ends and the next begins, or those that were only counted did so before; returns
        how many intervals there are now."""
        steps, self._counted = self._counted + 1, 0
        self._first_told, self.told = len(self.interval_ns), self.told + 1
        now_ns = self._clock_ns()
        if self._last_ns is None:
            self.first_ns = now_ns
        elif len(self.interval_ns) < MOST_STEPS:
            if self._disturbed_now:
                self.disturbed.update(range(len(self.interval_ns), len(self.interval_ns) + steps))
            if self._watched_now:
                self.watched.update(range(len(self.interval_ns), len(self.interval_ns) + steps))
            self._count_usage(now_ns, steps)
            took_ns = now_ns - self._last_ns
            self.interval_ns.append(took_ns if steps == 1 else self._last_of(steps, took_ns))
            self.wait_ns.append(self._waited_ns)
            if len(self.interval_ns) == FIRST_STEPS:
                self.warm_unix_ns = time.time_ns()
        self._last_ns, self._waited_ns = now_ns, 0
        self._disturbed_now = self._watched_now = False
        self._edges += steps
        return len(self.interval_ns)

    def _last_of(self, steps: int, took_ns: int) -> int:
        """Of steps that were told of together: keep all but the last, and return that.

        They share their time, unless they took so much longer than those before that it was one.
        """
        usual_ns, self._usual_ns = self._usual_ns, took_ns // steps
        if usual_ns and took_ns - steps * usual_ns >= STALL_NS:
            self._usual_ns = usual_ns
        self.interval_ns.extend(array("q", [self._usual_ns]) * (steps - 1))
        self.wait_ns.extend(array("q", [0]) * (steps - 1))
        return took_ns - (steps - 1) * self._usual_ns

    def _count_usage(self, now_ns: int, ended: int) -> None:
        """Of short steps, of many together: asking takes longer than all else at an edge."""
        disturbed = self._disturbed_now or len(self.interval_ns) < FIRST_STEPS
        self._uncounted += ended
        if resource is None or not (disturbed or now_ns - self._usage_ns >= USAGE_EVERY_NS):
            return
        steps, self._uncounted, self._usage_ns = self._uncounted, 0, now_ns
        usage = resource.getrusage(resource.RUSAGE_SELF)
        counted = (usage.ru_minflt, int(usage.ru_stime * 1e9), int(usage.ru_utime * 1e9))
        before, self._usage = self._usage, counted
        if before is None or disturbed:
            return
        self.counted += steps
        self.faults += counted[0] - before[0]
        self.kernel_ns += counted[1] - before[1]
        self.user_ns += counted[2] - before[2]

    def forget(self) -> None:
        """Start over: the edges so far were of another kind."""
        self.__init__(self._clock_ns)  # type: ignore[misc]

    @property
    def elapsed_ns(self) -> int:
        """Time since the first edge."""
        return 0 if self.first_ns is None else self._clock_ns() - self.first_ns

    @property
    def lasted_ns(self) -> int:
        """From the first edge to the last."""
        return 0 if self.first_ns is None else (self._last_ns or 0) - self.first_ns

    @property
    def since_last_s(self) -> float:
        """Seconds since the last edge; 0 before the first."""
        return 0.0 if self._last_ns is None else (self._clock_ns() - self._last_ns) / 1e9

    def undisturbed(self, first: int = 0, last: int | None = None) -> list[int]:
        """Positions of ordinary intervals in ``[first, last)``."""
        end = len(self.interval_ns) if last is None else min(last, len(self.interval_ns))
        return [i for i in range(max(first, 0), end) if i not in self.disturbed]

    def excess_ns(self, steps: int) -> int:
        """By how much the last steps exceed the ordinary ones before them; 0 if there are none."""
        ordinary = self.undisturbed(len(self.interval_ns) - 4 * RECENT_STEPS)
        if not ordinary or not steps:
            return 0
        usual = median(array("q", (self.interval_ns[i] for i in ordinary)))
        return sum(self.interval_ns[-steps:]) - steps * usual

    def cost_ns(self) -> int | None:
        """By how much disturbed intervals exceed ordinary ones; None where there are no others."""
        ordinary = self.undisturbed(FIRST_STEPS) or self.undisturbed()
        if not ordinary:
            return None
        usual = median(array("q", (self.interval_ns[i] for i in ordinary)))
        return max(sum(self.interval_ns[i] - usual for i in self.disturbed), 0)

    def steady(self) -> bool:
        """Whether steps no longer get faster; noise may make them a little slower.

        The middle of an odd number of steps that alternate is now one kind and now the other, so
        twice as many steps are steady also where their sums agree.
        """
        ordinary = self.undisturbed(FIRST_STEPS)
        steps = STEADY_LONG_STEPS if self.long_steps else STEADY_STEPS
        if not self.long_steps:
            return self._agree(ordinary, steps)
        watched = self.watched.difference(range(FIRST_STEPS))
        enough = len(ordinary) >= FEWEST_ORDINARY
        both = (ordinary, sorted(watched))
        return enough and any(self._agree(some, steps) for some in both)

    @property
    def long_steps(self) -> bool:
        """Whether all of the last steps are so long that a program may not have many of them."""
        recent = self.interval_ns[-RECENT_STEPS:]
        return len(recent) >= FIRST_STEPS and min(recent) >= LONG_STEP_NS

    def _agree(self, ordinary: Sequence[int], steps: int) -> bool:
        """Whether the last of these intervals are as long as so many before them."""
        if len(ordinary) < 2 * steps:
            return False
        times = array("q", (self.interval_ns[i] for i in ordinary[-4 * steps :]))
        before, recent = median(times[-2 * steps : -steps]), median(times[-steps:])
        if _no_faster(before, recent, steps):
            return True
        halves = sum(times[: 2 * steps]), sum(times[2 * steps :])
        return len(times) == 4 * steps and _no_faster(*halves, steps)


def _no_faster(before_ns: int, recent_ns: int, steps: int) -> bool:
    # Fewer steps of the same warming up.
    faster_ratio: float = FASTER_RATIO ** (steps / STEADY_STEPS)
    return faster_ratio * before_ns <= recent_ns <= SLOWER_RATIO * before_ns


def median(times: "array[int]") -> int:
    """The middle of an odd number of times; the statistics module takes long to import."""
    return sorted(times)[len(times) // 2]


KEPT_EDGES = 96  # enough for the steps before and after a recording


class CompletionClock:
    """When the device finished each step: CUDA events at the last edges, read once they happened.

    The host may run far ahead of the device, so host times of single steps say when a step was
    issued. An event costs the host 2 to 5 µs and the device nothing, and needs no synchronisation.
    Without CUDA, or inside a graph capture, an edge has none.
    """

    def __init__(self) -> None:
        self._events: dict[int, Any] = {}
        self._usable = True

    def mark(self, edge: int) -> None:
        """Record an event on the current stream at this edge."""
        torch = sys.modules.get("torch")
        if not self._usable or torch is None:
            return
        try:
            if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
                return
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        except (AttributeError, RuntimeError):
            self._usable = False
            return
        self._events[edge] = event
        self._events.pop(edge - KEPT_EDGES, None)

    def period_ns(self, edge: int) -> int | None:
        """Device time from the edge before to this one; None if not known or not over yet."""
        first, second = self._events.get(edge - 1), self._events.get(edge)
        if first is None or second is None:
            return None
        try:
            if not second.query():
                return None
            milliseconds: float = first.elapsed_time(second)
            return round(milliseconds * 1e6)
        except RuntimeError:  # other device, or the context is gone at exit
            return None


LOST_AFTER = 8  # steps of another one without one of it: it is no longer in use
MOST_OTHERS = 4096  # that are counted meanwhile: more are made anew for each step


class MarkingOptimizer:
    """Of several optimizers, or models, the one whose steps are the program's steps.

    The first one seen, until another has stepped for long without it. Others that each step once
    meanwhile, as the layers of a model do whose parts a program calls one by one, are no other.
    """

    def __init__(self) -> None:
        self._id: int | None = None
        self._others: dict[int, int] = {}  # how often, since mine

    def stepped(self, optimizer: Any) -> bool:
        """Whether this step ends a step of the program."""
        me = id(optimizer)
        if self._id is None or me == self._id or self._is_lost(me):
            self._id, self._others = me, {}
            return True
        self._others[me] = self._others.get(me, 0) + 1
        return False

    def _is_lost(self, other: int) -> bool:
        return self._others.get(other, 0) >= LOST_AFTER or len(self._others) >= MOST_OTHERS
