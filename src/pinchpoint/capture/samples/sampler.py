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
COST_RATIO = 0.005  # of one core; above it, looks become rarer
JUDGE_EVERY = 64  # looks between two judgements of the cost
GAP_PERIODS = 3  # a look that comes later than this: the lock was held, or no core was free
OURS = "pinchpoint-"  # beginning of the names of our own threads
MOST_KEPT = 60  # stacks of one thread in the document, most frequent first
OVERDUE = 1000  # different stacks of one stretch; what is more is not told apart


class Thread:
    """What was seen of one thread."""

    def __init__(self, ident: int) -> None:
        self.name, self.native = _about(ident)
        self.ours = self.name.startswith(OURS)
        self.main = ident == threading.main_thread().ident
        self.looks = self.moved = 0
        self.stacks: dict[int, int] = {}
        self.last = (0, 0)
        self.first_cpu_ns = self.cpu_ns = None if self.ours else cpu_of(self.native)


class Sampler:
    """Looks until it is ended. ``recent`` holds what was seen since it was last taken."""

    def __init__(
        self,
        paused: Callable[[], bool],
        every_s: float = EVERY_S,
        after_look: Callable[[], None] | None = None,
    ) -> None:
        self._paused, self._after_look = paused, after_look
        self.every_s = every_s
        self.table = StackTable()
        self.threads: dict[int, Thread] = {}
        self.recent: dict[tuple[int, int], int] = {}
        self.looks = self.gaps = self.gap_ns = self.cost_ns = self._cost_at_judgement = 0
        self.began_ns = self._judged_ns = time.perf_counter_ns()
        self.late_ns: list[int] = []
        self._facts: HostFacts | None = None
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
        """Forget what was seen: the program's work begins now."""
        self.threads, self.recent = {}, {}
        self.looks = self.gaps = self.gap_ns = 0
        self.late_ns = []
        self.began_ns = time.perf_counter_ns()

    def take(self) -> dict[tuple[int, int], int]:
        """Looks at each thread and stack since the last call."""
        if not self.recent:
            return {}
        taken, self.recent = self.recent, {}
        return taken

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # the user's program comes first
            due_ns = time.perf_counter_ns()
            while not self._end.wait(self.every_s):
                now_ns = time.perf_counter_ns()
                due_ns += round(self.every_s * 1e9)
                late_ns = max(now_ns - due_ns, 0)
                due_ns = now_ns
                if not self._paused():
                    self._look(late_ns)
                    if self._after_look is not None:
                        self._after_look()
                if self.looks % JUDGE_EVERY == 0:
                    self._judge(now_ns)

    def _look(self, late_ns: int) -> None:
        self.looks += 1
        if late_ns > GAP_PERIODS * self.every_s * 1e9:
            self.gaps += 1
            self.gap_ns += late_ns
        if len(self.late_ns) < 1 << 16:
            self.late_ns.append(late_ns)
        recent = self.recent
        frame: Any
        for ident, frame in sys._current_frames().items():
            thread = self.threads.get(ident)
            if thread is None:
                thread = self.threads[ident] = Thread(ident)
            if thread.ours:
                continue
            top = (id(frame.f_code), frame.f_lasti)
            number = self.table.number(frame)
            thread.looks += 1
            if top != thread.last:
                thread.moved += 1
                thread.last = top
            thread.stacks[number] = thread.stacks.get(number, 0) + 1
            if len(recent) < OVERDUE:
                recent[ident, number] = recent.get((ident, number), 0) + 1
        frame = None
        if self._facts is not None:
            self.counters = self._facts.read()
        self.cost_ns = time.thread_time_ns()

    def _judge(self, now_ns: int) -> None:
        """Look more rarely if looking has become dear; read what each thread has used of a core."""
        spent_ns, since_ns = self.cost_ns - self._cost_at_judgement, now_ns - self._judged_ns
        if spent_ns > COST_RATIO * since_ns:
            self.every_s = min(2 * self.every_s, SLOWEST_S)
        self._cost_at_judgement, self._judged_ns = self.cost_ns, now_ns
        for thread in list(self.threads.values()):
            if not thread.ours:
                thread.cpu_ns = cpu_of(thread.native) or thread.cpu_ns

    def document(self) -> dict[str, Any]:
        """Everything seen, for the run folder."""
        threads = [t for t in list(self.threads.values()) if not t.ours and t.looks]
        threads.sort(key=lambda t: (not t.main, -t.moved))
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
            "threads": [
                {
                    "name": t.name,
                    "main": t.main,
                    "looks": t.looks,
                    "moved": t.moved,
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
