"""One process of a run: from the first step to the last, with one bounded recording in between.

    WAITING -> DRAINING -> RECORDING -> RECOVERING -> TIMING -> DONE

Where names are wanted, RECORDING comes several times. The *early* window begins with the first step
that is not cold, and counts only if the program ends before its steps are steady. The window of
*times* is bare. The one for *names* follows at once, with stacks, shapes and modules; a *rare* one
comes when a step far from typical is foreseen.

First use of the profiler and the export stall the program, and a stall lets a data loader fill its
queue; so as many steps pass (DRAINING, RECOVERING) as batches may have been made meanwhile before
steps count as ordinary again, as those of WAITING and TIMING do, with nothing but the hooks on.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.end import OnTermination
from pinchpoint.capture.process.loaders import LoaderRhythm
from pinchpoint.capture.process.memory import resident_bytes
from pinchpoint.capture.process.model_calls import ModelCalls
from pinchpoint.capture.process.policy import Policy, compile_count, early_is_due, policy_of
from pinchpoint.capture.process.ranks import Agreement, Identity, identity
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.step_clock import (
    FIRST_STEPS,
    CompletionClock,
    MarkingOptimizer,
    StepClock,
)
from pinchpoint.capture.samples.foresight import Foresight
from pinchpoint.capture.settings import REQUEST_EVERY_NS, Kind, Requests, Settings, chosen
from pinchpoint.capture.windows import Window
from pinchpoint.capture.windows.recording import Recording, keep_best

TIMED_STEPS = 20  # unprofiled steps kept on each side of the recording
TIMED_NS = 30_000_000_000  # long enough for a figure when steps are slow
LOADER_FETCHES = 12  # so many batches without an optimizer step: the program does not train
LOADER_NS = 2_000_000_000  # and for so long: who accumulates gradients takes batches, too
LOOK_EVERY_NS = 100_000_000  # reading how large the program is takes microseconds
NAMED_STEPS = 3  # names repeat from step to step; a third tells a rule from an accident

MakeWindow = Callable[[Kind], Window | None]


class CaptureSession:
    """Hears of steps and batches; opens and closes the window. Its methods never raise."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        make_window: MakeWindow,
        save: Callable[["CaptureSession"], None],
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
        self.steps_by: str | None = None  # optimizer, loader, module, annotation, call
        self.stage = Stage.WAITING
        self.window: Window | None = None
        self.recordings: list[Recording] = []
        self.problems: list[str] = []
        self.before, self.after = range(0), range(0)
        self.quiet_busy = False  # the quiet watch records by time; edges leave it alone
        self.end_quiet_watch: Callable[[], None] = lambda: None
        self.stepped: Callable[[], None] = lambda: None  # told after each step, before our part
        self.foresight: Foresight | None = None
        self._kind: Kind = "times"
        self._countdown = 0
        self._optimizer, self._models = MarkingOptimizer(), ModelCalls()
        self._thread: int | None = None
        self._resident_at_open = self._looked_ns = self._timing_since_ns = 0
        self._on_termination = OnTermination(self.finish)

    @property
    def fetches(self) -> int:
        """Batches that the program got."""
        return self._loader.fetches

    # What the hooks tell

    def optimizer_stepped(self, optimizer: Any) -> None:
        """An optimizer made its step; one of them marks the program's steps."""
        if self._optimizer.stepped(optimizer):
            self.step("optimizer")

    def model_called(self, model: Any) -> bool:
        """A model was called and is done; whether to tell of the next such call."""
        try:
            self.look_after()
            if self.steps_by not in (None, "module"):
                return self.stage not in (Stage.TIMING, Stage.DONE)
            if self._models.may_mark():
                if self._models.marks(model):
                    self.step("module")
                return True
            if self.stage is Stage.WAITING and self.steps_by is not None:
                self.clock.forget()  # what was recorded of one thread is kept until more is
                self.steps_by = self._thread = None
        except Exception as error:  # the user's program comes first
            self._give_up(error)
        return False

    def fetched(self, start_ns: int, end_ns: int, iterator: Any) -> None:
        """The program asked for a batch and got it."""
        try:
            self.look_after()
            self._fetched(end_ns - start_ns, iterator)
        except Exception as error:  # the user's program comes first
            self._give_up(error)

    def waited(self, wait_ns: int) -> None:
        """The program waited for data in another way."""
        self.clock.waited(wait_ns)
        self.fetch_clock.waited(wait_ns)

    def iterator_built(self, wait_ns: int) -> None:
        """A loader made an iterator, and started its workers if it has any: an epoch begins."""
        self._loader.epoch_begins()
        self.waited(wait_ns)

    def step(self, by: str) -> None:
        """A step ended, as seen by an optimizer, a loader, an annotation or a direct call."""
        try:
            thread = threading.get_ident()
            if self.steps_by not in (None, by):
                provisional = by == "call" or self.steps_by in ("loader", "module")
                if not provisional or self.stage is not Stage.WAITING:
                    return
                self.clock.forget()  # a program that trains after all
                self._thread = None
            self.steps_by = by
            self._thread = self._thread or thread
            if thread == self._thread:
                self._edge()
        except Exception as error:  # the user's program comes first
            self._give_up(error)

    def yield_to_other_profiler(self, why: str) -> None:
        """Somebody else records: end our recording and open none."""
        if why not in self.problems:
            self.problems.append(why)
        self.end_quiet_watch()
        if self.stage is Stage.RECORDING:
            self._close()
        self.window = None
        self.stage = Stage.DONE

    def forget_in_fork(self) -> None:
        """This is a copy of the process in a fork: it records nothing, and writes nothing."""
        self._on_termination.disarm()
        self.window, self.stage = None, Stage.DONE

    def finish(self) -> None:
        """The program ends: keep what was recorded, and write down the figures."""
        try:
            self.end_quiet_watch()
            if self.stage is Stage.RECORDING:
                self._close()
            self._end_timing()
            if not self.before:
                steps = len(self.clock.interval_ns)
                self.before = range(max(FIRST_STEPS, steps - TIMED_STEPS), steps)
        except Exception as error:  # the user's program comes first
            self._give_up(error)
        self._save(self)

    def keep(self, recording: Recording) -> None:
        """Take note of a recording; one of steady steps takes the place of an early one."""
        whole = recording.steps > 0 or self.stage is not Stage.RECORDING
        folder = Path(self.settings.folder)
        kept = keep_best(self.recordings, recording, whole=whole, folder=folder)
        if kept and recording.problem:
            self.problems.append(recording.problem)

    def save(self) -> None:
        """Write down what is known so far."""
        self._save(self)

    # Steps

    def _fetched(self, wait_ns: int, iterator: Any) -> None:
        self._loader.fetched(iterator)
        self.clock.waited(wait_ns)
        if self.steps_by == "loader":
            self.step("loader")
            return
        self.fetch_clock.waited(wait_ns)
        self.fetch_clock.edge()
        if self.steps_by is None and self._only_loads():
            self.clock, self.steps_by = self.fetch_clock, "loader"
            self._thread = threading.get_ident()

    def _only_loads(self) -> bool:
        clock = self.fetch_clock
        return clock.edges >= LOADER_FETCHES and clock.elapsed_ns >= LOADER_NS

    def _find_rank(self) -> None:
        """Ranks that no launcher named are known once the process group is there."""
        if self.clock.edges:
            return
        found = identity()
        if found.world_size > self.identity.world_size:
            self.identity = found
            self._agreement = Agreement(Path(self.settings.folder), found)

    def _edge(self) -> None:
        self._find_rank()
        intervals = self.clock.edge()
        self.stepped()
        if self.quiet_busy:
            self.clock.disturb()
            return
        if self.stage in (Stage.WAITING, Stage.TIMING):
            self.completion.mark(self.clock.edges - 1)
        match self.stage:
            case Stage.WAITING:
                self._maybe_prime(intervals)
            case Stage.DRAINING:
                self._count_down(self._open)
            case Stage.RECORDING:
                self._record_step()
            case Stage.RECOVERING:
                self._count_down(self._recovered)
            case Stage.TIMING:
                self._maybe_stop_timing(intervals)
            case Stage.DONE:
                self._maybe_record_more(intervals)
        if self.stage in (Stage.DRAINING, Stage.RECORDING, Stage.RECOVERING):
            self.clock.disturb()

    def _maybe_prime(self, intervals: int) -> None:
        if self._agreement.due(self.clock.edges, self.policy.ready(self.clock)):
            self._prime(intervals)
            return
        early = early_is_due(self.settings, self.clock.edges, self.steps_by)
        if early and self.identity.world_size == 1 and self._begin("early") is not None:
            self._save(self)  # a program that is killed from now on has left its figures
            self._open()
            self._record_step()

    def _begin(self, kind: Kind) -> Window | None:
        """The window of a kind, if there is one. Stacks of a program that compiles are too many."""
        asked = "times" if kind == "early" and compile_count() else kind
        self._kind, self.window = kind, self._make_window(asked)
        if self.window is not None:
            self._on_termination.arm()
            if not self.recordings:
                self.window.prime()
        return self.window

    def _prime(self, intervals: int) -> None:
        if not self.before:
            self.before = range(max(FIRST_STEPS, intervals - TIMED_STEPS), intervals)
        if not chosen(self.settings.ranks, self.identity.rank, self.identity.world_size):
            self._recover()
            return
        began_ns = self.clock.now_ns()
        if self._begin("times") is None:
            self.stage = Stage.DONE
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
        if caught or self.window.steps == self._wanted_steps() - 1:
            self._close(step_ended=True)  # the next step is not begun
            return
        self.window.step()
        if self.window.steps > 0:
            self._end_if_grown()

    def look_after(self) -> None:
        """Between two steps there may be an evaluation of minutes: end a recording that grows."""
        now_ns = self.clock.now_ns()
        if self.stage is not Stage.RECORDING or now_ns - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = now_ns
        if self._thread == threading.get_ident():
            self._end_if_grown()

    def _end_if_grown(self) -> None:
        grown = (resident_bytes() or 0) - self._resident_at_open
        if self.window is None or grown <= self.settings.max_bytes:
            return
        if self._kind == "times":
            self.problems.append(
                f"the recording ended after {self.window.steps} of {self._wanted_steps()} steps: "
                f"the program had grown by {grown >> 20} MiB, the limit of --max-size"
            )
        self._close()

    def _wanted_steps(self) -> int:
        asked = self.settings.steps
        if self._kind != "times":
            waits = self.foresight.most_steps if self.foresight and self._kind == "rare" else None
            return waits or min(asked, NAMED_STEPS)
        return max(asked, self._loader.round_steps()) if self.settings.whole_round else asked

    def _close(self, *, step_ended: bool = False) -> None:
        window, self.window = self.window, None
        began_ns = self.clock.now_ns()
        if window is not None:
            recording = replace(window.close(step_ended=step_ended), window=self._kind)
            if self._kind == "rare" and self.foresight and not self.foresight.keeps:
                recording.remove(Path(self.settings.folder))  # what it waited for did not come
            else:
                self.keep(recording)
        self._on_termination.disarm()
        self._save(self)
        if self.policy.warm_up is not None and self.policy.repeats:
            self.stage = Stage.WAITING
            self._maybe_prime(len(self.clock.interval_ns))  # it may be the next cycle's turn
        else:
            self._recover(self.clock.now_ns() - began_ns)

    def _recover(self, stalled_ns: int = 0) -> None:
        self._countdown = self._drain_steps(stalled_ns)
        self.stage = Stage.RECOVERING

    def _recovered(self) -> None:
        """What follows a window, once the program has come back to its pace."""
        whole = bool(self.recordings) and self.recordings[-1].file is not None
        if self._kind in ("early", "rare"):
            self.stage = Stage.WAITING if self._kind == "early" else Stage.DONE
        elif self._kind == "times" and self.settings.names and whole and self._begin("names"):
            self._open()
        else:
            self._start_timing()

    def _drain_steps(self, stalled_ns: int) -> int:
        return self._loader.drain_steps(stalled_ns, self.clock.interval_ns)

    def _start_timing(self) -> None:
        first = len(self.clock.interval_ns)
        self.after = range(first, first + TIMED_STEPS)
        self.completion.mark(self.clock.edges - 1)
        self._timing_since_ns = time.monotonic_ns()
        self.stage = Stage.TIMING

    def _maybe_stop_timing(self, intervals: int) -> None:
        slow = time.monotonic_ns() - self._timing_since_ns > TIMED_NS
        if intervals >= self.after.stop or (slow and intervals > self.after.start):
            self._end_timing()
            self._save(self)

    def _end_timing(self) -> None:
        if self.stage is Stage.TIMING:
            self.after = range(self.after.start, len(self.clock.interval_ns))
            self.stage = Stage.WAITING if self.policy.repeats else Stage.DONE

    def _maybe_record_more(self, intervals: int) -> None:
        """A far step is foreseen or waited for, or somebody asks for one more recording."""
        alone = self.settings.names and self.identity.world_size == 1
        foresight = self.foresight if alone and self.recordings else None
        if foresight is not None and foresight.due(self.clock) and self._begin("rare"):
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
        self.stage = Stage.DONE
