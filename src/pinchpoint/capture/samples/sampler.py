"""The thread that looks at the stacks of all Python threads."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.samples.host_facts import Counters, HostFacts
from pinchpoint.capture.samples.stacks import OTHER, StackTable

EVERY_S = 0.02  # a look costs 20 to 100 µs: below half a percent of one core
SLOWEST_S = 0.32  # where many deep threads make a look dear
WAKE_S = 0.02  # to see whether a step is overdue; waking up costs 10 to 30 µs
COST_RATIO = 0.004  # of one core, that regular looks may cost
MOST_COST_RATIO = 0.008  # of one core; above it, overdue steps are looked at no more often
JUDGE_EVERY_NS = 2_000_000_000  # between two judgements of the cost
OVERDUE_S = 0.005  # between looks at a step that is far longer than usual already
REGULAR_RATIO = 0.75  # of the period; what comes sooner is no sample of the whole run
GAP_PERIODS = 3  # a look that comes later than this: the lock was held, or no core was free
OURS = "pinchpoint-"  # beginning of the names of our own threads
MOST_KEPT = 60  # stacks of one thread in the document, most frequent first
MOST_RECENT = 1000  # different stacks of one stretch; what is more is not told apart
MOST_LATENESS = 1 << 16  # looks of about half an hour


class Thread:
    """What was seen of one thread."""

    def __init__(self, ident: int) -> None:
        self.name, self.native = _about(ident)
        self.ours = self.name.startswith(OURS)
        self.main = ident == threading.main_thread().ident
        self.looks = 0
        self.stacks: dict[int, int] = {}
        self.first_cpu_ns = self.cpu_ns = None if self.ours else cpu_of(self.native)


class Sampler:
    """Looks until it is ended. ``recent`` holds what was seen since it was last taken."""

    def __init__(
        self,
        paused: Callable[[], bool],
        every_s: float = EVERY_S,
        after_look: Callable[[], None] | None = None,
        overdue: Callable[[], bool] = lambda: False,
    ) -> None:
        self._paused, self._after_look, self._overdue = paused, after_look, overdue
        self.every_s = self._every_s = every_s
        self.table = StackTable()
        self.threads: dict[int, Thread] = {}
        self.recent: dict[tuple[int, int], int] = {}  # microseconds by thread and stack
        self.recent_looks = 0
        self.start_looks: dict[int, int] = {}  # by stack, of the main thread in its cold steps
        self.looks = self.gaps = self.gap_ns = self.cost_ns = self._all_looks = 0
        self.began_ns = self._started_ns = self._judged_ns = time.perf_counter_ns()
        self.late_ns: list[int] = []
        self._facts: HostFacts | None = None
        self.first_counters: Counters | None = None
        self.counters = Counters()  # of the thread of the steps, at the last look
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{OURS}samples", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._end.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def follow(self, thread: int) -> None:
        """Read the system's counters of this thread at each look, from now on."""
        self._facts = HostFacts(thread)

    def begin_anew(self) -> None:
        """The program's work begins now: of what was seen, the main thread's part is set aside."""
        main = next((t for t in list(self.threads.values()) if t.main), None)
        self.start_looks = {} if main is None else dict(main.stacks)
        self.threads, self.recent = {}, {}
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
        with contextlib.suppress(Exception):  # the user's program comes first
            last_ns = woke_ns = time.perf_counter_ns()
            while not self._end.wait(pause_s := self._pause_s()):
                now_ns = time.perf_counter_ns()
                late_ns = max(now_ns - woke_ns - round(pause_s * 1e9), 0)
                woke_ns, since_ns = now_ns, now_ns - last_ns
                due = since_ns >= REGULAR_RATIO * self.every_s * 1e9
                if (due or pause_s == OVERDUE_S) and not self._paused():
                    self._look(late_ns, since_ns, regular=due)
                    last_ns = now_ns
                    if self._after_look is not None:
                        self._after_look()
                if now_ns - self._judged_ns > JUDGE_EVERY_NS:
                    self._judge(now_ns)

    def _pause_s(self) -> float:
        """Until it wakes up again: shorter while a step is overdue, if looking stays cheap."""
        cheap = self.cost_ns <= MOST_COST_RATIO * (time.perf_counter_ns() - self._started_ns)
        return OVERDUE_S if cheap and self._overdue() else WAKE_S

    def _look(self, late_ns: int, since_ns: int, *, regular: bool) -> None:
        self._all_looks += 1
        if regular:
            self._note_lateness(late_ns)
        self.recent_looks += 1
        recent, weight = self.recent, since_ns // 1000
        frame: Any
        for ident, frame in sys._current_frames().items():
            thread = self.threads.get(ident)
            if thread is None:
                thread = self.threads[ident] = Thread(ident)
            if thread.ours:
                continue
            number = self.table.number(frame)
            if regular:
                thread.looks += 1
                thread.stacks[number] = thread.stacks.get(number, 0) + 1
            if len(recent) < MOST_RECENT:
                recent[ident, number] = recent.get((ident, number), 0) + weight
        frame = None
        if self._facts is not None:
            self.counters = self._facts.read()
            self.first_counters = self.first_counters or self.counters
        self.cost_ns = time.thread_time_ns()

    def _note_lateness(self, late_ns: int) -> None:
        self.looks += 1
        if late_ns > GAP_PERIODS * self.every_s * 1e9:
            self.gaps += 1
            self.gap_ns += late_ns
        if len(self.late_ns) < MOST_LATENESS:
            self.late_ns.append(late_ns)

    def _judge(self, now_ns: int) -> None:
        """Look as often as the cost of a look allows; read what each thread has used of a core."""
        self._judged_ns = now_ns
        look_ns = self.cost_ns / max(self._all_looks, 1)
        self.every_s = min(max(look_ns / 1e9 / COST_RATIO, self._every_s), SLOWEST_S)
        for thread in list(self.threads.values()):
            if not thread.ours:
                thread.cpu_ns = cpu_of(thread.native) or thread.cpu_ns

    def document(self) -> dict[str, Any]:
        """Everything seen, for the run folder."""
        threads = [t for t in list(self.threads.values()) if not t.ours and t.looks]
        threads.sort(key=lambda t: (not t.main, -(t.cpu_ns or 0)))
        kept = {id(t): _most(t.stacks) for t in threads}
        lateness = sorted(self.late_ns)
        return {
            "every_s": self.every_s,
            "looks": self.looks,
            "seconds": (time.perf_counter_ns() - self.began_ns) / 1e9,
            "cost_ns": self.cost_ns,
            "late_median_ns": lateness[len(lateness) // 2] if lateness else None,
            "gaps": self.gaps,
            "gap_ns": self.gap_ns,
            "start": _most(self.start_looks),
            "threads": [
                {
                    "name": t.name,
                    "main": t.main,
                    "looks": t.looks,
                    "cpu_ns": None
                    if t.cpu_ns is None or t.first_cpu_ns is None
                    else t.cpu_ns - t.first_cpu_ns,
                    "stacks": kept[id(t)],
                }
                for t in threads
            ],
        }


def _most(stacks: dict[int, int]) -> list[tuple[int, int]]:
    known = [item for item in list(stacks.items()) if item[0] != OTHER]
    return sorted(known, key=lambda item: -item[1])[:MOST_KEPT]


def _about(ident: int) -> tuple[str, int | None]:
    """Name and number of a thread; a thread that Python does not know has neither."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return ("", None) if thread is None else (thread.name, thread.native_id)


def cpu_of(native: int | None) -> int | None:
    """Nanoseconds that a thread of this process has run on a core; None where not known."""
    if native is None:
        return None
    try:
        return int(Path(f"/proc/self/task/{native}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
