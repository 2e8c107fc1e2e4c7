"""The thread that looks at the stacks of all Python threads."""

import contextlib
import copy
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.samples.called import Calls
from pinchpoint.capture.samples.coroutines import with_coroutine_asleep
from pinchpoint.capture.samples.host_facts import Counters, HostFacts, opened
from pinchpoint.capture.samples.operands import Operands
from pinchpoint.capture.samples.pace import EVERY_S, OVERDUE_S, Pace
from pinchpoint.capture.samples.stacks import OTHER, StackTable, frames_of_threads, stack_of

REGULAR_RATIO = 0.75  # of the period; what comes sooner is no sample of the whole run
GAP_PERIODS = 3  # a look that comes later than this: the lock was held, or no core was free
OURS = "pinchpoint-"  # beginning of the names of our own threads
MOST_THREADS = 64  # in the document, most time on cores first
MOST_SPENT = 400  # stacks of the main thread with their times: a flat program has hundreds
MOST_KEPT = 60  # stacks of one thread in the document, most frequent first
MOST_RECENT = 1000  # different stacks of one stretch; what is more is not told apart
MOST_LATENESS = 1 << 16  # looks of about half an hour
# A look that comes so late, waits for a core left out, waited for the interpreter's lock: one that
# nobody keeps waiting comes a tenth of a millisecond late. A thread in bytecode keeps it for the
# switch interval of 5 ms, one that calls a library now and then until it gives the lock up there.
HELD_NS = 500_000
IDLE_RATIO = 0.25  # of the time between two looks on a core: with less, what it waits for is asked


class Thread:
    """What was seen of one thread."""

    def __init__(self, ident: int) -> None:
        self.name, self.native = _about(ident)
        self.ours = self.name.startswith(OURS)
        self.main = ident == threading.main_thread().ident
        self.looks = 0
        self.stacks: dict[int, int] = {}
        # By stack: microseconds between looks, of them on a core, and after which the lock was held
        self.spent: dict[int, list[int]] = {}
        self.waits: dict[tuple[int, str], int] = {}  # microseconds by stack and the system's word
        self.first_cpu_ns, self.first_queued_ns = (
            (None, None) if self.ours else times_of(self.native)
        )
        self.cpu_ns, self.queued_ns = self.first_cpu_ns, self.first_queued_ns
        self._clock = None if self.ours else _clock_of(ident)
        self._state = _StateOf(self.native) if self.main else None
        self._on_core_ns = self._now_on_core_ns()

    def on_core_us(self) -> int:
        """Microseconds on cores since the last call."""
        before, self._on_core_ns = self._on_core_ns, self._now_on_core_ns()
        return (self._on_core_ns - before) // 1000

    def look(self, number: int, took_us: int, on_core_us: int, *, held: bool) -> None:
        """Take note of one regular look."""
        self.looks += 1
        self.stacks[number] = self.stacks.get(number, 0) + 1
        on_core_us = min(on_core_us, took_us)
        spent = self.spent.setdefault(number, [0, 0, 0])
        spent[0] += took_us
        spent[1] += on_core_us
        spent[2] += took_us if held else 0
        if self._state and not held and self._clock and on_core_us < IDLE_RATIO * took_us:
            key = (number, self._state.now())
            self.waits[key] = self.waits.get(key, 0) + took_us

    def begin_anew(self) -> "Thread":
        """The same thread with nothing seen yet; ``self`` keeps what was."""
        new = copy.copy(self)
        new.looks, new.stacks, new.spent, new.waits = 0, {}, {}, {}
        new.read_times()
        new.first_cpu_ns, new.first_queued_ns = new.cpu_ns, new.queued_ns
        return new

    def read_times(self) -> None:
        """What the system counted of it by now; of one that has ended, what is known."""
        found = times_of(self.native)
        if found[0] is not None:
            self.cpu_ns, self.queued_ns = found

    def _now_on_core_ns(self) -> int:
        """Its time on cores so far, without giving the interpreter's lock away."""
        try:
            return 0 if self._clock is None else time.clock_gettime_ns(self._clock)
        except OSError:  # it has ended
            return self._on_core_ns


class Sampler:
    """Looks until it is ended. ``recent`` holds what was seen since it was last taken."""

    def __init__(
        self,
        paused: Callable[[], bool],
        every_s: float = EVERY_S,
        after_look: Callable[[], None] | None = None,
        overdue_in_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._paused, self._after_look = paused, after_look
        self.pace = Pace(every_s, overdue_in_s)
        self.table, self.operands, self.calls = StackTable(), Operands(), Calls()
        self.threads: dict[int, Thread] = {}
        self.recent: dict[tuple[int, int], int] = {}  # microseconds by thread and stack
        self.recent_looks = 0
        self.before: Thread | None = None  # what the main thread did before its third step
        self.looks = self.gaps = self.gap_ns = 0
        self.began_ns = time.perf_counter_ns()
        self.queued_ns: int | None = None  # that this thread waited for a core, in all
        self.late_ns: list[int] = []
        self._facts: HostFacts | None = None
        self.first_counters: Counters | None = None
        self.counters = Counters()  # of the thread of the steps, at the last look
        self._own_schedule: int | None = None
        self._going_on = threading.Lock()  # to wait for one costs a third of an event
        self._going_on.acquire()
        self._thread = threading.Thread(target=self._run, name=f"{OURS}samples", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        if self._going_on.locked():
            self._going_on.release()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def follow(self, thread: int) -> None:
        """Read the system's counters of this thread at each look, from now on."""
        self._facts = HostFacts(thread)

    def begin_anew(self) -> None:
        """The program's work begins now: of what was seen, the main thread's part is set aside."""
        self.before = next((t for t in list(self.threads.values()) if t.main), None)
        known = list(self.threads.items())
        self.threads = {ident: thread.begin_anew() for ident, thread in known}
        self.recent = {}
        self.looks = self.gaps = self.gap_ns = self.recent_looks = 0
        self.late_ns = []
        self.began_ns = time.perf_counter_ns()

    def take(self) -> tuple[dict[tuple[int, int], int], int]:
        """Microseconds at each thread and stack since the last call, and the number of looks."""
        if not self.recent_looks:
            return {}, 0
        taken, self.recent = self.recent, {}
        looks, self.recent_looks = self.recent_looks, 0
        return taken, looks

    def _run(self) -> None:
        self._own_schedule = opened("/proc/thread-self/schedstat")
        last_ns = regular_ns = slept_ns = time.perf_counter_ns()
        while not self._going_on.acquire(
            timeout=(pause_s := self.pace.pause_s(slept_ns, regular_ns))
        ):
            now_ns = time.perf_counter_ns()
            late_ns = max(now_ns - slept_ns - round(pause_s * 1e9), 0)
            since_ns = now_ns - last_ns
            due = now_ns - regular_ns >= REGULAR_RATIO * self.pace.every_s * 1e9
            look_ns = None
            if self._paused():
                last_ns = regular_ns = now_ns  # a recording says what happens meanwhile
            elif due or pause_s == OVERDUE_S:
                # The user's program comes first, and one look that fails is no end of the others.
                with contextlib.suppress(Exception):
                    look_ns = self._look(late_ns, since_ns, now_ns - regular_ns if due else None)
                last_ns = now_ns
                regular_ns = now_ns if due else regular_ns
            if look_ns is not None and self._after_look is not None:
                with contextlib.suppress(Exception):
                    self._after_look()
            self.pace.woke(look_ns)  # notes that were just written are among what it cost by now
            if self.pace.judge(now_ns):
                self._read_times()
            slept_ns = time.perf_counter_ns()

    def _read_times(self) -> None:
        """Read what each thread has used of a core."""
        for thread in list(self.threads.values()):
            if not thread.ours:
                thread.read_times()

    def _look(self, late_ns: int, since_ns: int, regular_ns: int | None) -> int:
        """``regular_ns``: since the last look of the whole run; None: this is none. Returns the
        nanoseconds that it took on a core."""
        began_ns = time.thread_time_ns()
        regular = regular_ns is not None
        if regular:
            self._note_lateness(late_ns)
        self.recent_looks += 1
        recent, weight = self.recent, since_ns // 1000
        seen: list[tuple[Thread, int, int]] = []
        for ident in tuple(frames_of_threads()):
            thread = self.threads.get(ident)
            if thread is None:
                thread = self.threads[ident] = Thread(ident)
            if thread.ours:
                continue
            stack = stack_of(ident)
            if not stack:
                continue
            number = self.table.number(with_coroutine_asleep(ident, stack))
            if regular:
                seen.append((thread, number, thread.on_core_us()))
                self.operands.look(ident, stack[0])
                self.calls.look(ident, stack)
            if len(recent) < MOST_RECENT:
                recent[ident, number] = recent.get((ident, number), 0) + weight
        if regular_ns is not None:
            self._note(seen, regular_ns // 1000, late_ns)
        if self._facts is not None:
            self.counters = self._facts.read()
            self.first_counters = self.first_counters or self.counters
        return time.thread_time_ns() - began_ns

    def _note(self, seen: list[tuple[Thread, int, int]], took_us: int, late_ns: int) -> None:
        """Whether this look was late for want of the lock, and not of a core, is known by now."""
        before, self.queued_ns = self.queued_ns, _queued_ns(self._own_schedule)
        late_ns -= (self.queued_ns or 0) - (before or 0)
        held = late_ns >= HELD_NS
        for thread, number, on_core_us in seen:
            thread.look(number, took_us, on_core_us, held=held)

    def _note_lateness(self, late_ns: int) -> None:
        self.looks += 1
        if late_ns > GAP_PERIODS * self.pace.every_s * 1e9:
            self.gaps += 1
            self.gap_ns += late_ns
        if len(self.late_ns) < MOST_LATENESS:
            self.late_ns.append(late_ns)

    def document(self) -> dict[str, Any]:
        """Everything seen, for the run folder; stacks by number."""
        threads = [t for t in list(self.threads.values()) if not t.ours and t.looks]
        for thread in threads:
            thread.read_times()
        threads.sort(key=lambda t: (not t.main, -(t.cpu_ns or 0)))
        lateness = sorted(self.late_ns)
        return {
            "every_s": self.pace.every_s,
            "looks": self.looks,
            "seconds": (time.perf_counter_ns() - self.began_ns) / 1e9,
            "cost_ns": self.pace.cost_ns,
            "once_ns": self.pace.once_ns,
            "late_median_ns": lateness[len(lateness) // 2] if lateness else None,
            "gaps": self.gaps,
            "gap_ns": self.gap_ns,
            "queued_ns": self.queued_ns,
            "before": None if self.before is None else _of_thread(self.before),
            "start": [] if self.before is None else most(self.before.stacks),
            "threads": [_of_thread(t) for t in threads[:MOST_THREADS]],
            "more_threads": max(len(threads) - MOST_THREADS, 0),
        }


def _of_thread(thread: Thread) -> dict[str, Any]:
    spent = [[n, *us] for n, us in list(thread.spent.items())]
    placed = sorted((row for row in spent if row[0] != OTHER), key=lambda row: -row[1])
    placed = placed[: MOST_SPENT if thread.main else MOST_KEPT]
    return {
        "name": thread.name,
        "main": thread.main,
        "native": thread.native,
        "looks": thread.looks,
        "cpu_ns": _since(thread.first_cpu_ns, thread.cpu_ns),
        "queued_ns": _since(thread.first_queued_ns, thread.queued_ns),
        "stacks": most(thread.stacks),
        "spent": placed,
        "unplaced_us": sum(row[1] for row in spent) - sum(row[1] for row in placed),
        "waits": [[n, word, us] for (n, word), us in list(thread.waits.items()) if n != OTHER],
    }


def most(stacks: dict[int, int]) -> list[tuple[int, int]]:
    """The most frequent ones."""
    known = [item for item in list(stacks.items()) if item[0] != OTHER]
    return sorted(known, key=lambda item: -item[1])[:MOST_KEPT]


def _clock_of(ident: int) -> int | None:
    """The clock of a thread that runs Python now, so that it cannot have ended."""
    try:
        return time.pthread_getcpuclockid(ident)
    except (AttributeError, OSError):  # not every system has it
        return None


class _StateOf:
    """The state of a thread, from files that stay open: reading one takes some microseconds."""

    def __init__(self, native: int | None) -> None:
        task = f"/proc/self/task/{native}"
        self._stat, self._kernel = opened(f"{task}/stat"), opened(f"{task}/wchan")

    def now(self) -> str:
        """With the kernel's function that it waits in: ``S do_futex``, ``R``; empty: not told."""
        if self._stat is None or self._kernel is None:
            return ""
        try:
            state = os.pread(self._stat, 512, 0).rpartition(b") ")[2][:1].decode()
            return state if state == "R" else f"{state} {os.pread(self._kernel, 48, 0).decode()}"
        except (OSError, ValueError):
            return ""


def _about(ident: int) -> tuple[str, int | None]:
    """Name and number of a thread; a thread that Python does not know has neither."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return ("", None) if thread is None else (thread.name, thread.native_id)


def _queued_ns(schedule: int | None) -> int | None:
    """Nanoseconds that the thread of this file was ready to run and had no core."""
    try:
        return None if schedule is None else int(os.pread(schedule, 64, 0).split()[1])
    except (OSError, ValueError, IndexError):
        return None


def times_of(native: int | None) -> tuple[int | None, int | None]:
    """Nanoseconds that a thread of this process has run on a core, and was ready to and had none;
    None where they are not known."""
    if native is None:
        return None, None
    try:
        words = Path(f"/proc/self/task/{native}/schedstat").read_text().split()
        return int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):
        return None, None


def _since(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first
