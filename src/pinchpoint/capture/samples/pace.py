"""How often the looking thread wakes up and looks: as what it measured itself to cost allows."""

import time
from collections.abc import Callable

from pinchpoint.run_folder.layout import LOOKS_ONCE_NS, MOST_LOOKS_RATIO

EVERY_S = 0.02  # a look costs 20 to 100 µs: below half a percent of one core
WAKE_S = 0.02  # to see whether a step is overdue; waking up costs 10 to 30 µs
LOOK_RATIO = 0.003  # of one core, that regular looks may cost in the long run
WAKE_RATIO = 0.001  # of one core, that waking up to see whether a step is overdue may
FIRST_RATIO = 0.008
LONGEST_S = 5.0  # between two wake-ups, whatever they cost: half a percent if one takes 25 ms
JUDGE_EVERY_NS = 2_000_000_000  # between two judgements of the cost
OVERDUE_S = 0.005  # between looks at a step that is far longer than usual already


class Pace:
    """Of one looking thread, whose time on a core is the cost."""

    def __init__(self, every_s: float, overdue_in_s: Callable[[], float | None]) -> None:
        self.every_s = self._least_s = every_s
        self._overdue_in_s = overdue_in_s
        self._wake_s = WAKE_S
        self.began_ns = self._judged_ns = time.perf_counter_ns()
        self.cost_ns = 0  # in all
        self.once_ns = 0  # of it, for notes that are written seldom: a longer run has hardly more
        self._looks_ns = self._looks = self._wakes = 0
        self._last = (0, 0, 0, 0)  # all of these, when it was judged last

    def pause_s(self, now_ns: int, regular_ns: int) -> float:
        """Until it wakes up again, where the last look of the whole run was at ``regular_ns``."""
        due_s = max(self.every_s - (now_ns - regular_ns) / 1e9, OVERDUE_S)
        left_s = self._overdue_in_s()
        if left_s is not None:
            due_s = min(due_s, OVERDUE_S if left_s <= 0 else max(left_s, self._wake_s))
        return max(due_s, min(self._behind_s(now_ns), LONGEST_S))

    def _behind_s(self, now_ns: int) -> float:
        """How long nothing may be done until all that was done is no more than is allowed."""
        spent_ns = self.cost_ns - self.once_ns - LOOKS_ONCE_NS
        return (spent_ns / MOST_LOOKS_RATIO - (now_ns - self.began_ns)) / 1e9

    def woke(self, look_ns: int | None) -> None:
        """It woke up, and a look took so long on a core; None: there was none."""
        self._wakes += 1
        if look_ns is not None:
            self._looks += 1
            self._looks_ns += look_ns
        self.cost_ns = time.thread_time_ns()

    def judge(self, now_ns: int) -> bool:
        """Look as often as the cost since the last judgement allows; whether it was time for it."""
        if now_ns - self._judged_ns <= JUDGE_EVERY_NS:
            return False
        self._judged_ns = now_ns
        recurring_ns = self.cost_ns - self.once_ns
        now = (recurring_ns, self._looks_ns, self._looks, self._wakes)
        recurring, looks_ns, looks, wakes = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        wake_ns = max(recurring - looks_ns, 0) / max(wakes, 1)
        self._wake_s = min(max(wake_ns / 1e9 / WAKE_RATIO, WAKE_S), LONGEST_S)
        if looks:
            look_s = (looks_ns / looks + wake_ns) / 1e9
            ratio = FIRST_RATIO if recurring_ns < LOOKS_ONCE_NS else LOOK_RATIO
            self.every_s = min(max(look_s / ratio, self._least_s), LONGEST_S)
        return True
