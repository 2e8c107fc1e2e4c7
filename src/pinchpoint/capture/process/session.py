"""What the hooks of one process tell, and which of it are its steps."""

import threading
from typing import Any

from pinchpoint.capture.process.policy import optimizer_exists
from pinchpoint.capture.process.stage import Stage, Stages
from pinchpoint.capture.process.step_clock import MarkingOptimizer

LOADER_FETCHES = 12  # so many batches without an optimizer step: the program does not train
LOADER_NS = 2_000_000_000  # and for so long: who accumulates gradients takes batches, too


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


class CaptureSession(Stages):
    """Hears of steps and batches. Its methods never raise."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._optimizer = MarkingOptimizer()
        self._models = ModelCalls(optimizer_decides=not self.settings.cell)

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
