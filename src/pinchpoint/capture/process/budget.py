"""What recording may cost a program in all, and what a window of so many steps would.

Nobody can tell beforehand how much a step holds: the profiler takes 2 to 25 times as long to write
a step down as the step became longer, 5 to 30 µs an event, and a step may hold a million. So a
*trial* of one step without stacks is recorded first, in which Python calls are only counted. From
what it cost follows how many steps fit into each window, and whether stacks do. Where there was no
trial, the window of times ends once its steps have become so much longer that writing them down
would cost more than its part.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from pinchpoint.capture.samples.sampler import OURS, times_of
from pinchpoint.capture.settings import Kind, Settings
from pinchpoint.capture.windows.recording import Recording, TraceFile

# 2 % of ten minutes are 12 s. Looks at the whole run have up to 0.8 % of it for themselves.
TOTAL_NS = 7_000_000_000
PARTS_NS = {  # of it: the first three windows; the one for names may have all that is left
    "early": 1_500_000_000,
    "times": 2_000_000_000,
}
NAMED_STEPS = 3  # names repeat from step to step; a third tells a rule from an accident
# Measured on CPUs, torch 2.13, 20,000 tensor operations and 100,000 Python calls a step: shapes and
# modules 1.9 to 2.5 times the cost of a bare event; a call 0.6 to 0.9 times.
NAMES_RATIO = 2.5
EVENT_NS = 40_000  # of an event where none was measured: on a busy machine; idle it is a fifth
BUSY_RATIO = 5.0  # of being ready to run to being on a core, that this has room for
FEWEST_EVENTS = 20_000  # by which the cost of one is known
EVENT_FILE_BYTES = 17  # of an event in a file, compressed: 16 of a call to 19 of an operator
IDLE_EVENT_NS = 7_000  # at least, on an idle machine
FIXED_NS = 300_000_000  # closing a window on a device takes some tenths of a second at most
WRITING_RATIO = 15  # writing a bare window down, as a multiple of what its steps became longer by
EVENT_BYTES = 220  # by which the process grows with each bare event until it is written


def varying_ns(cost_ns: float, file: TraceFile | None) -> float:
    """The part of a window's cost that grows with what it holds."""
    return max(cost_ns - FIXED_NS, min(cost_ns, events_of(file) * IDLE_EVENT_NS))


def events_of(file: TraceFile | None) -> float:
    """About how many events a file holds: nobody counts the calls."""
    return file.bytes / EVENT_FILE_BYTES if file else 0.0


class Budget:
    """One process's. All costs are wall time by which the program becomes longer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.bounded = settings.bounded
        self.calls = CallCount()
        self.spent_ns = 0
        self.stalled_ns = 0  # beside it, by starting the profiler, which each program does once
        self.edges_ns = 0  # on a core, of what was done at edges once all was recorded
        self._bare_ns: float | None = None  # of one recorded step
        self._named_ns: float | None = None  # of one recorded step with stacks
        self._event_ns: float | None = None  # where it was measured
        self._rate: float | None = None  # of writing to the time of a part of a step

    def stalls(self, act: Callable[[], None]) -> None:
        """Do what holds the program up once, however much is recorded."""
        began_ns = time.perf_counter_ns()
        act()
        self.stalled_ns += time.perf_counter_ns() - began_ns

    def plan(self, kind: Kind, wanted: int) -> tuple[int, Kind]:
        """How many of the wanted steps fit into a window, and the kind of window to make.

        0: not one. A window for times has one unless the trial took most of the budget and has to
        do; one for names goes without stacks where these would cost too much.
        """
        if not self.bounded or self._bare_ns is None or kind in ("trial", "rare", "late"):
            return wanted, kind
        if kind == "times":
            one = not self.half_spent and self._bare_ns <= TOTAL_NS
            fit = max(int(PARTS_NS[kind] / max(self._bare_ns, 1)), int(one))
            return min(wanted, fit) if self._settings.whole_round else wanted, kind
        if kind == "first":
            return min(wanted, int(self.left_ns("early") / max(self._bare_ns, 1))), kind
        left_ns = self.left_ns(kind)
        for asked in (kind, "shapes")[: 1 + (kind == "names")]:
            steps = max(int(left_ns / max(self.named_step_ns(stacks=asked == kind), 1)), 0)
            if steps:
                break
        return min(wanted, steps), asked

    def left_ns(self, kind: Kind) -> int:
        """What a window of a kind may cost."""
        return max(min(PARTS_NS.get(kind, TOTAL_NS), TOTAL_NS - self.spent_ns), 0)

    def named_step_ns(self, *, stacks: bool = True) -> float:
        """What one step of a window with names costs; 0 where nothing was recorded so far."""
        if stacks and self._named_ns is not None:
            return self._named_ns
        event_ns = self._event_ns or EVENT_NS * max(self.calls.waited_ratio / BUSY_RATIO, 1.0)
        calls_ns = (self.calls.count or 0) * event_ns if stacks else 0.0
        return NAMES_RATIO * (self._bare_ns or 0.0) + calls_ns

    @property
    def half_spent(self) -> bool:
        """Whether what there is has to do: another as dear one would not fit."""
        return self.spent_ns > TOTAL_NS / 2

    @property
    def affords_names(self) -> bool:
        """Whether the window for names will have stacks."""
        steps, asked = self.plan("names", 1)
        return bool(steps) and asked == "names"

    @property
    def affords_early_names(self) -> bool:
        """Whether a program that ends early could have had stacks beside its bare step."""
        return bool(self.plan("early", 1)[0])

    def without_names(self, what: str = "--steps 1") -> str:
        """What a person misses because it would have cost too much, and how to get it."""
        return (
            "stacks were not recorded, as they would have cost more than the rest; lines are those "
            f"that samples saw. To record them: pinchpoint run --stacks --shapes {what} …"
        )

    def names_missing(self, recordings: Sequence[Recording], told: Sequence[str]) -> list[str]:
        """What to tell of a program that ended before its steady steps, and has one bare step that
        cost much; nothing that was told before."""
        files = [r for r in recordings if r.file is not None]
        early = bool(files) and all(r.window == "early" and not r.stacks for r in files)
        new = self.without_names() not in told and not self.affords_early_names
        return [self.without_names()] if early and new and self._settings.names else []

    def closed(self, recording: Recording, excess_ns: int, writing_ns: int) -> None:
        """A window is written: its steps became longer by ``excess_ns``."""
        events = events_of(recording.file)
        if recording.file is not None:  # among others steps become longer by more than they hold
            excess_ns = min(excess_ns, round(events * EVENT_NS) + FIXED_NS)
        cost_ns = max(excess_ns, 0) + writing_ns
        self.spent_ns += cost_ns
        varies_ns = varying_ns(cost_ns, recording.file)
        step_ns = varies_ns / max(recording.steps, 1)
        if recording.stacks:
            self._named_ns = step_ns
        elif recording.window in PARTS_NS:
            self._bare_ns = step_ns
            if events >= FEWEST_EVENTS:
                self._event_ns = varies_ns / events

    def tried(self, recording: Recording, lasted_ns: int, writing_ns: int) -> float:
        """A part of a step was tried; how long one may be recorded for what an early window may
        cost. A whole step is known to cost what it has cost so far, at least."""
        self.spent_ns += writing_ns
        varies_ns = varying_ns(writing_ns, recording.file)
        self._rate = varies_ns / max(lasted_ns, 1)
        self._bare_ns = varies_ns
        return PARTS_NS["early"] / max(self._rate, 1e-9)

    def step_took(self, interval_ns: Sequence[int]) -> None:
        """A step ended, the last of these, of which a part may have been tried."""
        if self._rate is not None and interval_ns:
            self._bare_ns = self._rate * max(interval_ns[-1] - self.spent_ns, 0)
        self._rate = None

    def exceeded(self, kind: Kind, excess_ns: int, grown_bytes: int) -> bool:
        """Whether a window without a trial should end now.

        Steps are longer for many reasons, and programs grow; both together are the recording's.
        """
        if not self.bounded or self._bare_ns is not None or kind not in PARTS_NS:
            return False
        by_time = WRITING_RATIO * excess_ns
        by_size = grown_bytes / EVENT_BYTES * EVENT_NS
        return min(by_time, by_size) > PARTS_NS[kind]


# A thread that is busy in Python makes a call in 150 to 500 ns; one in operators makes fewer.
CALL_EVERY_NS = 300
MOST_EVENTS = 300_000  # 50 ms of counting, up to 200 on a busy machine; what is more is projected
COUNTING_RATIO = 5.0  # a short Python call that is counted takes so many times as long


class CallCount:
    """Python and C calls of one step, once: counted in the thread that makes the steps.

    Those of other threads are foreseen from the time that they spent on a core.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.waited_ratio = 1.0  # of the thread's time ready to run to that on a core, meanwhile
        self._own = (0, 0)
        self._events = 0
        self._heard: Any = None
        self._began_ns = self._full_ns = 0
        self._cpu_ns: dict[int, int] = {}

    def begin(self) -> None:
        """Count from now on, unless that was done or somebody else profiles calls."""
        if self.count is not None or self._heard is not None or sys.getprofile() is not None:
            return
        events = 0

        def heard(_frame: FrameType, _event: str, _what: Any) -> None:
            nonlocal events
            events += 1
            self._events = events
            if events >= MOST_EVENTS:
                self._full_ns = time.perf_counter_ns()
                sys.setprofile(None)

        self._cpu_ns, self._own = _cpu_of_others(), _own_times()
        self._heard, self._began_ns = heard, time.perf_counter_ns()
        sys.setprofile(heard)

    def end(self) -> None:
        """The step is over."""
        heard, self._heard = self._heard, None
        if heard is None:
            return
        if sys.getprofile() is heard:
            sys.setprofile(None)
        on_core, queued = (b - a for a, b in zip(self._own, _own_times(), strict=True))
        self.waited_ratio += queued / max(on_core, 1)
        calls = self._events / 2  # each is told of when it begins and when it ends
        if self._full_ns:
            counted_ns = (self._full_ns - self._began_ns) / COUNTING_RATIO
            calls *= 1 + (time.perf_counter_ns() - self._full_ns) / max(counted_ns, 1)
        others = (now - self._cpu_ns.get(key, now) for key, now in _cpu_of_others().items())
        self.count = round(calls + sum(others) / CALL_EVERY_NS)


def _own_times() -> tuple[int, int]:
    """Nanoseconds of this thread on a core, and ready to run without one; zeros if not known."""
    on_core, queued = times_of(threading.get_native_id())
    return on_core or 0, queued or 0


def _cpu_of_others() -> dict[int, int]:
    """Time on a core of each other Python thread of the program."""
    me = threading.get_ident()
    found = {}
    for ident, thread in list(threading._active.items()):  # type: ignore[attr-defined]
        if ident != me and not thread.name.startswith(OURS):
            found[ident] = times_of(thread.native_id)[0] or 0
    return found
