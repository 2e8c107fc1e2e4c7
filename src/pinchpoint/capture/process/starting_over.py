"""A session whose steps turn out to be others than they seemed, longer than a trial may be, or not
as steady as they were when they were recorded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stages import Stages
from pinchpoint.capture.process.step_clock import CompletionClock
from pinchpoint.capture.process.timed_steps import TimedSteps
from pinchpoint.capture.settings import BESIDE
from pinchpoint.capture.windows.left_open import calls_back
from pinchpoint.capture.windows.recording import Recording
from pinchpoint.capture.windows.torch import TorchWindow

# Of a trial. Where nothing but operators runs, writing takes nine times as long as recording them.
LONG_TRIAL_NS = 250_000_000
WORTH_GOING_ON = 4  # times what the trial has taken so far: less adds little to what is known
# Of the shorter steps before a recording (a quarter is shorter still) to the longer ones after it
# (a quarter is longer): steps that alternate, or differ by chance, overlap. Where all are longer,
# what was recorded was still warming up: shapes that came for the first time, files not in memory.
WARMING_RATIO = 2.0
FEWEST_COMPARED = 5  # on each side


class Restartable(Stages):
    """Ends what was begun."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._trial_ends_ns: int | None = None
        self.was_early = False  # the first recording, which the next one replaces
        self._has_come_again = False

    @property
    def steady_recorded(self) -> bool:
        """Whether there is a window of times, or was an attempt at one."""
        return any(recording.window == "times" for recording in self.recordings)

    def _start_over(self) -> None:
        """Steps are marked otherwise from now on. What was recorded counts until more is."""
        self.budget.calls.end()
        if self.stage is Stage.RECORDING:
            self._close()
        for recording in [one for one in self.recordings if one.window in BESIDE]:
            recording.remove(Path(self.settings.folder))
            self.recordings.remove(recording)
        self.recordings = [replace(recording, window="early") for recording in self.recordings]
        self.window, self.stage, self.thread = None, Stage.WAITING, None
        self.by_time, self.timed = False, TimedSteps()
        self.completion = CompletionClock()
        self.clock.forget()
        self.launches.loaded_since = 0

    def keep(self, recording: Recording, *, names_follow: bool = True) -> None:
        """As of any session; a second recording of times takes the place of one that came early."""
        if self.was_early and recording.window == "times" and recording.file is not None:
            self.recordings = [_as_early(one) for one in self.recordings]
            self.was_early = False
        super().keep(recording, names_follow=names_follow)

    def _maybe_stop_timing(self, intervals: int) -> None:
        """Record once more, and once only, if steps have become far shorter than they were."""
        super()._maybe_stop_timing(intervals)
        if self.stage is not Stage.DONE or not self._came_early():
            return
        self.was_early, self._has_come_again = True, True
        self.timed = TimedSteps()
        self._prime(intervals)

    def _came_early(self) -> bool:
        """Whether what was recorded is not what the program does, and may be recorded again."""
        alone = self.settings.bounded and self.identity.world_size == 1  # ranks act together
        if not alone or self._has_come_again or self.policy.repeats or not self.steady_recorded:
            return False
        before, after = (
            [self.clock.interval_ns[i] for i in self.clock.undisturbed(side.start, side.stop)]
            for side in (self.timed.before, self.timed.after)
        )
        if min(len(before), len(after)) < FEWEST_COMPARED or self.budget.half_spent:
            return False
        quarter, rest = sorted(before)[len(before) // 4], sorted(after)[3 * len(after) // 4]
        shorter = quarter > WARMING_RATIO * rest
        return shorter and (self.budget.affords_names or not self.settings.names)

    def abandon(self) -> None:
        """Steps stopped, as after a warm-up: end what was begun for them. In their thread."""
        if self.stage is Stage.RECORDING:
            self._close()
        if self.stage in (Stage.DRAINING, Stage.RECOVERING) and not self.steady_recorded:
            self.window, self.stage = None, Stage.WAITING

    def carefully(self, act: Callable[[], None]) -> None:
        """Act, and give up where that fails: the user's program comes first."""
        try:
            act()
        except Exception as error:
            self._give_up(error)

    def trial_is_long(self) -> bool:
        """Whether it is time to look at what the open trial holds, as :meth:`bound_trial` does."""
        if self.stage is not Stage.RECORDING or self._kind != "trial":
            return False
        lasted_ns = round(1e9 * self.clock.since_last_s)
        return lasted_ns > (self._trial_ends_ns or LONG_TRIAL_NS)

    def bound_trial(self) -> None:
        """Write what the trial holds, and go on in another file if the rest of the step may be
        written, too. Else this part of a step is the trial. In the thread of the steps."""
        window = self.window
        if not self.trial_is_long() or not isinstance(window, TorchWindow):
            return
        if calls_back() or window.under_way():  # what is open would write to what has ended
            return
        lasted_ns, began_ns = round(1e9 * self.clock.since_last_s), self.clock.now_ns()
        closed = replace(window.close(), window="early")
        writing_ns = self.clock.now_ns() - began_ns
        allowed_ns = self.budget.tried(closed, lasted_ns, writing_ns)
        goes_on = self._trial_ends_ns is None and allowed_ns > WORTH_GOING_ON * lasted_ns
        self.window = self._make_window("trial") if goes_on else None
        if self.window is not None:
            closed.remove(Path(self.settings.folder))
            self._trial_ends_ns = round(1e9 * self.clock.since_last_s + allowed_ns)
            self._open()
            self.window.step()
        else:
            self.keep(closed)
            self._countdown, self.stage = 1, Stage.RECOVERING


def _as_early(recording: Recording) -> Recording:
    """One of times as one that the next may replace; one of names until others come."""
    if recording.window == "names":
        return replace(recording, provisional=True)
    return replace(recording, window="early") if recording.window == "times" else recording
