"""What happens at each edge between two steps of a session: it opens and closes windows."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.budget import NAMED_STEPS, Budget
from pinchpoint.capture.process.end import OnTermination
from pinchpoint.capture.process.loaders import LoaderRhythm
from pinchpoint.capture.process.looks import Looks
from pinchpoint.capture.process.memory import resident_bytes
from pinchpoint.capture.process.policy import (
    Policy,
    compile_count,
    early_is_due,
    follows_early,
    policy_of,
)
from pinchpoint.capture.process.ranks import Agreement, Identity, identity
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.step_clock import CompletionClock, StepClock
from pinchpoint.capture.process.timed_steps import TimedSteps
from pinchpoint.capture.samples.foresight import Foresight
from pinchpoint.capture.settings import REQUEST_EVERY_NS, Kind, Requests, Settings, chosen
from pinchpoint.capture.windows import Window
from pinchpoint.capture.windows.launches import LaunchCost
from pinchpoint.capture.windows.recording import Recording, keep_best

TIMED_EDGES = 64  # one of so many is timed: asking for the time is half of what there is to do
LOOK_EVERY_NS = 100_000_000  # reading how large the program is takes microseconds

MakeWindow = Callable[[Kind], Window | None]


# Looked up once: to get a member of an enumeration takes 70 ns in Python 3.11, at each edge.
_WAITING, _DONE = Stage.WAITING, Stage.DONE
_ORDINARY = (Stage.WAITING, Stage.TIMING)
_UNSETTLED = (Stage.DRAINING, Stage.RECORDING, Stage.RECOVERING)


class Stages:
    """Opens and closes windows as steps end."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        make_window: MakeWindow,
        save: Callable[[Any], None],
        policy: Policy | None = None,
    ) -> None:
        self.policy: Policy = policy or policy_of(settings)
        self.settings, self.identity = settings, identity
        self._make_window, self._save = make_window, save
        self._agreement = Agreement(Path(settings.folder), identity)
        self._requests = Requests(Path(settings.folder))
        self.clock, self.completion = StepClock(), CompletionClock()
        self._loader = LoaderRhythm()
        self.fetch_clock = StepClock()
        # optimizer, loader, module, round, graph, annotation, call, loop
        self.steps_by: str | None = None
        self.stage = Stage.WAITING
        self.window: Window | None = None
        self.recordings: list[Recording] = []
        self.problems: list[str] = []
        self.timed = TimedSteps()
        self.ended = False  # nothing may be recorded any more
        self.complete = False  # all figures are there: the interpreter ends
        self.by_time = False  # what was recorded was found by time, and not by marks of steps
        self.quiet_busy = False  # the quiet watch records by time; edges leave it alone
        self.watching = False  # operations of steps are listened to: nothing is recorded meanwhile
        self.end_quiet_watch: Callable[[], None] = lambda: None
        self.other_records: Callable[[], bool] = lambda: False  # the program's own profiler, now
        self.stepped: Callable[[], None] = lambda: None  # told after each step, before our part
        self.foresight: Foresight | None = None
        self.looks = Looks()
        self.budget, self.launches = Budget(settings), LaunchCost()
        self._kind: Kind = "times"
        self._asked: Kind = "times"  # what was made for it, which may hold less
        self._wanted = self._countdown = 0
        self._held_open = False  # a window that records nothing more, and cannot be ended yet
        self.thread: int | None = None  # the one that makes the steps
        self._resident_at_open = self._looked_ns = 0
        self._on_termination = OnTermination(self.finish)

    def finish(self) -> None:
        """The program ends: keep what was recorded, and write down the figures."""
        try:
            self.end_quiet_watch()
            if self.stage is Stage.RECORDING:
                self._close()
            self._end_timing()
            self.problems += self.budget.names_missing(self.recordings, self.problems)
            self.timed.before_recording(len(self.clock.interval_ns))
        except Exception as error:  # the user's program comes first
            self._give_up(error)
        self.complete = True
        self._save(self)

    def keep(self, recording: Recording, *, names_follow: bool = True) -> None:
        """Take note of a recording; one of steady steps takes the place of an early one.

        ``names_follow``: another window will have the names, which an early one may have.
        """
        whole = recording.steps > 0 or self.stage is not Stage.RECORDING
        folder = Path(self.settings.folder)
        kept = keep_best(
            self.recordings, recording, whole=whole, folder=folder, names_follow=names_follow
        )
        if kept and recording.problem:
            self.problems.append(recording.problem)

    def save(self) -> None:
        """Write down what is known so far."""
        self._save(self)

    def _find_rank(self) -> None:
        """Ranks that no launcher named are known once the process group is there."""
        if self.clock.edges:
            return
        found = identity()
        if found.world_size > self.identity.world_size:
            self.identity = found
            self._agreement = Agreement(Path(self.settings.folder), found)

    def _edge(self) -> None:
        if self.stage is _DONE and not self.quiet_busy and self.clock.edges:
            self._edge_when_done()
            return
        self.budget.calls.end()
        self._find_rank()
        intervals = self.clock.edge()
        self.clock.spare(short=False)
        self.budget.step_took(self.clock.interval_ns)
        self.stepped()
        self.looks.ended()
        if self.quiet_busy:
            self.clock.disturb()
            return
        if self.stage in _ORDINARY:
            self.completion.mark(self.clock.edges - 1)
        if self.stage is _WAITING and not self.watching:
            self._maybe_prime(intervals)
        else:
            self._go_on(intervals)
        if self.stage in _UNSETTLED:
            self.clock.disturb()
        self.looks.begins()

    def _go_on(self, intervals: int) -> None:
        match self.stage:
            case Stage.DRAINING:
                self._count_down(self._open)
            case Stage.RECORDING:
                self._record_step()
            case Stage.RECOVERING:
                self._count_down(self._recovered)
            case Stage.TIMING:
                self._maybe_stop_timing(intervals)

    def _edge_when_done(self) -> None:
        """What is left to do at each of a hundred thousand edges, and about how long it takes."""
        began_ns = 0 if self.clock.told % TIMED_EDGES else time.thread_time_ns()
        if self.other_records():
            self.clock.disturb()
        intervals = self.clock.edge()
        alone = self.identity.world_size == 1  # else ranks act at the same step
        self.clock.spare(short=alone and not self.looks.due)
        self.stepped()
        self.looks.ended()
        if began_ns:
            self.budget.edges_ns += TIMED_EDGES * (time.thread_time_ns() - began_ns)
        self._maybe_record_more(intervals)
        if self.stage is not _DONE:
            self.clock.disturb()
        self.looks.begins()

    def _maybe_prime(self, intervals: int) -> None:
        if self._agreement.due(self.clock.edges, self.policy.ready(self.clock)):
            self._prime(intervals)
            return
        first: Kind = "trial" if self.settings.bounded else "early"
        if self._early_is_due() and self._begin(first) is not None:
            self._save(self)  # a program that is killed from now on has left its figures
            self._open()
            self._record_step()
            if first == "trial":
                self.budget.calls.begin()

    def _early_is_due(self) -> bool:
        me, due = self.identity, early_is_due(self.settings, self.clock.edges, self.steps_by)
        return due and chosen(self.settings.ranks, me.rank, me.world_size)

    @property
    def _has_first(self) -> bool:
        """Whether bare first steps follow the trial: ranks are compared in the same steps."""
        return self.identity.world_size > 1 and self.settings.bounded

    def _begin(self, kind: Kind) -> Window | None:
        """The window of a kind, if there is one. Stacks of a program that compiles are too many."""
        self._kind = kind
        self._wanted, self._asked = self.budget.plan(kind, self._most_steps())
        if kind == "early" and self._has_first:
            self._wanted, self._asked = 0 if compile_count() else self._wanted, "names"
        elif kind == "early" and compile_count():
            self._asked = "times"
        self.window = self._make_window(self._asked) if self._wanted else None
        if self.window is not None:
            self._on_termination.arm()
            if not self.recordings:
                self.launches.prime(self.window, self.clock, self.budget)
        return self.window

    def _prime(self, intervals: int) -> None:
        self.timed.before_recording(intervals)
        if not chosen(self.settings.ranks, self.identity.rank, self.identity.world_size):
            self._recover()
            return
        began_ns = self.clock.now_ns()
        if self._begin("times") is None:
            self._recover()  # with what there is
            self._save(self)
            return
        self._save(self)  # a program that is killed from now on has left its figures
        warm_up, self.stage = self.policy.warm_up, Stage.DRAINING
        drain = self._drain_steps(self.clock.now_ns() - began_ns)
        self._countdown = drain if warm_up is None else warm_up
        if warm_up is not None:
            self._count_down(self._open)  # the first of them is the next step

    def _count_down(self, then: Callable[[], None]) -> None:
        self._countdown -= 1
        if self._countdown <= 0:
            then()

    def _open(self) -> None:
        assert self.window is not None
        self._resident_at_open = resident_bytes() or 0
        self.window.open()
        self.stage = Stage.RECORDING

    def _record_step(self) -> None:
        assert self.window is not None
        rare = self.foresight if self._kind == "rare" else None
        caught = rare is not None and rare.caught(self.clock, self.window.steps)
        at_end = caught or self.window.steps == self._wanted - 1 or self._costs_too_much()
        if at_end or self._held_open:
            self._held_open = not self.window.may_end(step_ended=at_end)
            if not self._held_open:
                self._close(step_ended=True)  # the next step is not begun
            return
        window = self.window
        window.step()  # in which another thread may have the main one end it
        if self.window is window and window.steps > 0:
            self._end_if_grown()

    def _costs_too_much(self) -> bool:
        if self.window is None or self.window.steps < 0:
            return False
        excess_ns = self.clock.excess_ns(self.window.steps + 1)
        return self.budget.exceeded(self._kind, excess_ns, self._grown())

    def look_after(self) -> None:
        """Between two steps there may be an evaluation of minutes: end a recording that grows."""
        now_ns = self.clock.now_ns()
        if self.stage is not Stage.RECORDING or now_ns - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = now_ns
        if self.thread == threading.get_ident():
            self._end_if_grown()

    def _end_if_grown(self) -> None:
        grown = self._grown()
        if self.window is None or self._held_open or grown <= self.settings.max_bytes:
            return
        if self._kind == "times":
            self.problems.append(
                f"the recording ended after {self.window.steps} of {self._wanted} steps: "
                f"the program had grown by {grown >> 20} MiB, the limit of --max-size"
            )
        self._held_open = not self.window.may_end(step_ended=False)
        if not self._held_open:
            self._close()

    def _grown(self) -> int:
        return (resident_bytes() or 0) - self._resident_at_open

    def _most_steps(self) -> int:
        asked = self.settings.steps
        if self._kind == "trial":
            return 1
        if self._kind != "times":
            waits = self.foresight.most_steps if self.foresight and self._kind == "rare" else None
            return waits or min(asked, NAMED_STEPS)
        return max(asked, self._loader.round_steps()) if self.settings.whole_round else asked

    def _close(self, *, step_ended: bool = False) -> None:
        window, self.window, self._held_open = self.window, None, False
        began_ns = self.clock.now_ns()
        if window is not None:
            self._take(window.close(step_ended=step_ended), self.clock.now_ns() - began_ns)
        self._on_termination.disarm()
        self._save(self)
        if self._kind in ("trial", "first") and step_ended:
            self._countdown, self.stage = 1, Stage.RECOVERING
        elif self.policy.warm_up is not None and self.policy.repeats:
            self.stage = Stage.WAITING
            if not self.settings.stacks:  # torch 2.13 crashes where one with stacks follows at once
                self._maybe_prime(len(self.clock.interval_ns))  # it may be the next cycle's turn
        else:
            if step_ended:
                self.launches.after(self.budget)
            self._recover(self.clock.now_ns() - began_ns)

    def _take(self, closed: Recording, writing_ns: int) -> None:
        """Keep what a window became, and what it cost."""
        kind: Kind = "early" if self._kind in ("trial", "first") else self._kind
        recording = replace(closed, window=kind)
        if kind == "early" and self._asked == "names":  # beside the first steps, until others come
            recording = replace(recording, window="names", provisional=self.budget.affords_names)
        self.budget.closed(recording, self.clock.excess_ns(closed.steps), writing_ns)
        if kind == "rare" and self.foresight and not self.foresight.keeps:
            recording.remove(Path(self.settings.folder))  # what it waited for did not come
        else:
            self.keep(recording, names_follow=self.budget.affords_names)

    def _recover(self, stalled_ns: int = 0) -> None:
        self._countdown = self._drain_steps(stalled_ns)
        self.stage = Stage.RECOVERING
        if self._kind == "times" and self.settings.names and self.settings.bounded:
            self.budget.calls.begin()

    def _recovered(self) -> None:
        """What follows a window, once the program has come back to its pace."""
        whole = bool(self.recordings) and self.recordings[-1].file is not None
        follows = follows_early(self._kind, in_job=self._has_first)
        if follows is not None and self._begin(follows) is not None:
            # Not in the edge at which the trial ended: torch 2.13 crashes where a profile with
            # stacks follows another one at once.
            self._open()
            self._record_step()
        elif self._kind in ("trial", "first", "early", "rare", "late"):
            self.stage = Stage.DONE if self._kind in ("rare", "late") else Stage.WAITING
        elif self._kind == "times" and whole and self._begin_names():
            self._open()
        else:
            self._start_timing()

    def _begin_names(self) -> Window | None:
        """The window for names, unless they are there already, or cost too much."""
        there = [r for r in self.recordings if r.window == "names"]
        if not self.settings.names or any(not r.provisional for r in there):
            return None
        if not self.budget.affords_names:
            if there:
                return None  # with stacks, which another one would not have
            self.problems.append(self.budget.without_names())
        return self._begin("names")

    def _drain_steps(self, stalled_ns: int) -> int:
        return self._loader.drain_steps(stalled_ns, self.clock.interval_ns)

    def _start_timing(self) -> None:
        self.timed.begin(len(self.clock.interval_ns))
        self.completion.mark(self.clock.edges - 1)
        self.stage = Stage.TIMING

    def _maybe_stop_timing(self, intervals: int) -> None:
        if self.timed.enough(intervals):
            self._end_timing()
            self._save(self)

    def _end_timing(self) -> None:
        if self.stage is Stage.TIMING:
            self.timed.end(len(self.clock.interval_ns))
            self.stage = Stage.WAITING if self.policy.repeats else Stage.DONE

    def _maybe_record_more(self, intervals: int) -> None:
        """A far step is foreseen or waited for, or somebody asks for one more recording."""
        alone = self.settings.names and self.identity.world_size == 1
        foresight = self.foresight if alone and self.recordings else None
        kind = None if foresight is None else foresight.due(self.clock)
        if kind is not None and self._begin(kind):
            self._open()
        else:
            self._maybe_answer_request(intervals)

    def _maybe_answer_request(self, intervals: int) -> None:
        """Somebody may ask for one more recording; the first rank hears it for all."""
        step_ns = self.clock.interval_ns[-1] if intervals else REQUEST_EVERY_NS
        if self._agreement.asked(self.clock.edges, self._requests, step_ns):
            self._prime(intervals)

    def _give_up(self, error: Exception) -> None:
        self.problems.append(f"{type(error).__name__}: {error}".splitlines()[0])
        self.window = None
        self.stage, self.ended = Stage.DONE, True
