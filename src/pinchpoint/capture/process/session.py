"""What the hooks of one process tell, and which of it are its steps."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from pinchpoint.capture.process.compiled_calls import CompiledCalls
from pinchpoint.capture.process.own_loops import OwnLoops
from pinchpoint.capture.process.policy import optimizer_exists
from pinchpoint.capture.process.rounds import Rounds
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stalls import WARM_UP_S, WARM_UP_STEPS, stopped
from pinchpoint.capture.process.starting_over import Restartable
from pinchpoint.capture.process.step_clock import LOST_AFTER, MarkingOptimizer
from pinchpoint.capture.process.threaded_calls import ThreadedCalls
from pinchpoint.capture.windows.threads import graph_is_captured

LOADER_FETCHES = 12  # so many batches without an optimizer step: the program does not train
LOADER_NS = 2_000_000_000  # and for so long: who accumulates gradients takes batches, too
LATE_STEPS, LATE_NS = 3, 2_000_000_000  # of marks: more than an update now and then
BY_CALLS = ("module", "round")  # a call of a model, or a round of several
LOOP = "loop"  # what comes round in the program, where nothing else marks steps
OPTIMIZER_WITHIN_NS = 10_000_000_000  # of replays, which an optimizer's step may follow


class ModelCalls:
    """Whose calls mark steps: of modules with parameters the first, until it is no longer called.

    Calls from several threads overlap, and a recording of one thread would miss the others; so
    they mark nothing. Nor do those of a program that has an optimizer, whose steps will come.
    """

    def __init__(self, *, optimizer_decides: bool = True) -> None:
        self._optimizer_decides = optimizer_decides
        self._model = MarkingOptimizer()
        self._thread: int | None = None
        self.overlap = False

    def may_mark(self) -> bool:
        """Whether a call from this thread may be a step."""
        thread = threading.get_ident()
        self._thread = self._thread or thread
        self.overlap = self.overlap or thread != self._thread
        return not self.overlap and not (self._optimizer_decides and optimizer_exists())

    def marks(self, model: Any) -> bool:
        """Whether this call ends a step."""
        return next(model.parameters(), None) is not None and self._model.stepped(model)


class GraphReplays:
    """Which replays of CUDA graphs end a step: one of a graph that was replayed in this step.

    So a step may be one graph or many, and another one for each size of batch. Where something else
    has marked steps, replays take over once there are many without any such mark: it belonged to
    the program's warm-up. An optimizer that exists is waited for, unless a graph holds its steps.
    """

    def __init__(self) -> None:
        self._replayed: set[int] = set()
        self._thread: int | None = None
        self.holds_optimizer = False
        self._alone, self._alone_since_ns = 0, 0
        self._needed = LOST_AFTER

    def ends_step(self, graph: Any) -> bool:
        """Whether this replay does; those of other threads than the first do not."""
        thread = threading.get_ident()
        self._thread = self._thread or thread
        again = id(graph) in self._replayed
        if thread != self._thread:
            return False
        if again:
            self._replayed.clear()
        self._replayed.add(id(graph))
        return again

    def other_mark(self) -> None:
        """Something else ended a step. There may be as many replays in each."""
        self._needed = max(self._needed, 2 * self._alone)
        self._alone = 0

    def alone(self, now_ns: int, *, marked: bool) -> bool:
        """Whether a step of replays belongs to a program that has no other ``marked`` steps."""
        self._alone_since_ns = self._alone_since_ns if self._alone else now_ns
        self._alone += 1
        if optimizer_exists() and not self.holds_optimizer:
            marked = True
            if now_ns - self._alone_since_ns < OPTIMIZER_WITHIN_NS:
                return False
        return not marked or self._alone >= self._needed


# Python 3.12 has it; to find that a module lacks it takes 0.8 µs, at each step.
_MONITORING: Any = getattr(sys, "monitoring", None)


def _line_tracer() -> str | None:
    """The function or tool that is told of every line of this thread; None without any."""
    tracer = sys.gettrace()
    if tracer is not None:
        named = tracer if hasattr(tracer, "__qualname__") else type(tracer)
        return f"{named.__module__}.{named.__qualname__}"
    for tool in (0, 1) if _MONITORING else ():  # debuggers and coverage tools (PEP 669)
        if _MONITORING.get_tool(tool) and _MONITORING.get_events(tool) & _MONITORING.events.LINE:
            return str(_MONITORING.get_tool(tool))
    return None


class CaptureSession(Restartable):
    """Hears of steps and batches. Its methods never raise."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.calls = CompiledCalls(lambda: self.steps_by is not None)
        self.loops = OwnLoops(self._loop_turned)
        self.threaded = ThreadedCalls()
        super().__init__(*given, **named)
        self._optimizer = MarkingOptimizer()
        self._models = ModelCalls(optimizer_decides=not self.settings.cell)
        self._rounds = Rounds()
        self._graphs = GraphReplays()
        self.line_tracer: str | None = None  # what the last step's lines were reported to
        self.look_anew: Callable[[], None] = lambda: None  # at values, of other steps than so far
        self._late, self._late_since_ns = 0, 0  # steps of an optimizer after all was recorded

    @property
    def fetches(self) -> int:
        """Batches that the program got."""
        return self._loader.fetches

    @property
    def is_unmarked(self) -> bool:
        """Whether nothing marks steps but the program's own rounds: a model may have been called
        a few times before."""
        if self.steps_by in (None, LOOP):
            return True
        few = self.steps_by in BY_CALLS and self.clock.edges <= WARM_UP_STEPS
        return few and not self.steady_recorded and stopped(self.clock, WARM_UP_S)

    @property
    def quiet_busy(self) -> bool:
        """Whether the quiet watch records by time."""
        return self._quiet_busy

    @quiet_busy.setter
    def quiet_busy(self, busy: bool) -> None:
        self._quiet_busy = busy
        self.calls.held_up(now=busy)
        self.threaded.held_up(now=busy)
        if not busy:
            self.loops.held_up()

    # What the hooks tell

    def optimizer_stepped(self, optimizer: Any) -> None:
        """An optimizer made its step; one of them marks the program's steps."""
        if self._optimizer.stepped(optimizer):
            self.step("optimizer")

    def step_captured(self) -> None:
        """An optimizer's step became part of a CUDA graph: replays of it are steps."""
        self._graphs.holds_optimizer = True

    def graph_replayed(self, graph: Any) -> None:
        """A CUDA graph was launched."""
        try:
            self.look_after()
            if not self._graphs.ends_step(graph) or self.steps_by in ("call", "annotation"):
                return
            marked = self.steps_by is not None
            if self.steps_by == "graph" or self._graphs.alone(self.clock.now_ns(), marked=marked):
                self.step("graph")
        except Exception as error:  # the user's program comes first
            self._give_up(error)

    def model_called(self, model: Any) -> bool:
        """A model was called and is done; whether to tell of the next such call."""
        try:
            self.look_after()
            if self.steps_by not in (None, LOOP, *BY_CALLS):
                return self.stage not in (Stage.TIMING, Stage.DONE)
            if self._models.may_mark():
                if self._models.marks(model):
                    by = self._rounds.ends_step(self.clock.now_ns())
                    if by is not None:
                        self.step(by)
                return True
            thread = threading.get_ident()
            if self.steps_by in BY_CALLS and self._may_start_over("module", thread):
                self._start_over()  # what was recorded of one thread is kept until more is
                self.steps_by = None
            return self.stage is Stage.RECORDING
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
            if by != "graph":
                self._graphs.other_mark()
            other_work = self.by_time and by == "optimizer"
            if self.steps_by not in (None, by) or other_work:
                if not self._may_start_over(by, thread):
                    return
                self._start_over()
            self.steps_by = by
            self.thread = self.thread or thread
            if thread == self.thread:
                self.line_tracer = _line_tracer()
                self._edge()
        except Exception as error:  # the user's program comes first
            self._give_up(error)

    def _may_start_over(self, by: str, thread: int) -> bool:
        """Whether another kind of mark takes over: of a program that trains after all, or replays.

        In the thread of an open window only.
        """
        if by == "round":  # recordings of calls, each of which is a small part of one
            return self.stage is not Stage.RECORDING or thread == self.thread
        marks_of_any = ("loader", "graph", LOOP, *BY_CALLS)
        provisional = by in ("call", "graph") or self.steps_by in marks_of_any
        over = self.stage in (Stage.TIMING, Stage.DONE) and self.steps_by != LOOP
        if over or self.steady_recorded:
            marks = by == "optimizer" or self.steps_by == LOOP
            return marks and self._goes_on_after_all()
        return provisional and (self.stage is not Stage.RECORDING or thread == self.thread)

    def _goes_on_after_all(self) -> bool:
        """Whether marked steps go on after other work was recorded as the program's: of a loop, for
        half as long as it did, since what is evaluated at the end of a program is not its work."""
        if self.ended or self.quiet_busy or self.settings.repeat or self.stage is Stage.RECORDING:
            return False
        now_ns = self.clock.now_ns()
        self._late_since_ns = self._late_since_ns if self._late else now_ns
        self._late += 1
        loop_ns = self.clock.lasted_ns if self.steps_by == LOOP else 0
        least_ns = max(LATE_NS, loop_ns // 2)
        return self._late >= LATE_STEPS and now_ns - self._late_since_ns >= least_ns

    def yield_to_other_profiler(self, why: str) -> None:
        """Somebody else records: end our recording and open none."""
        if why not in self.problems:
            self.problems.append(why)
        self.end_quiet_watch()
        if self.stage is Stage.RECORDING:
            self._close()
        self.window = None
        self.stage, self.ended = Stage.DONE, True

    def forget_in_fork(self) -> None:
        """This is a copy of the process in a fork: it records nothing, and writes nothing."""
        self._on_termination.disarm()
        self.calls.end()
        self.loops.end()
        self.threaded.end()
        self.window, self.stage, self.ended = None, Stage.DONE, True

    # Steps

    def _loop_turned(self) -> None:
        """What comes round did so. Whatever else marks steps tells more of them."""
        if graph_is_captured():
            return  # nothing happens now, and nothing may be disturbed
        if not self.is_unmarked:
            self.loops.end()
            return
        if self.loops.changed or self.steps_by in BY_CALLS:
            self.loops.changed = False
            self.forget_rounds()
        self.step(LOOP)

    def forget_rounds(self) -> None:
        """What came round so far was no more than a part of the program's work."""
        recorded = self.steady_recorded
        self.loops.forget()
        self._start_over()
        self.steps_by = None
        if recorded:
            self.look_anew()

    @property
    def outlasts_ns(self) -> int:
        """For how long others have to come round in place of those that were recorded."""
        return max(LATE_NS, self.clock.lasted_ns // 2)

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
            self.thread = threading.get_ident()

    def _only_loads(self) -> bool:
        clock = self.fetch_clock
        return clock.edges >= LOADER_FETCHES and clock.elapsed_ns >= LOADER_NS
