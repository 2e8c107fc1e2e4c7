"""Recording from inside a program: ``pinchpoint.capture`` and ``pinchpoint.watch``.

>>> with pinchpoint.capture(out="runs/today") as cap:
...     for batch in cap.steps(loader):
...         train_step(batch)
>>> pinchpoint.diagnose(pinchpoint.load(cap.folder))
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pinchpoint.capture.launch import collect
from pinchpoint.capture.launch.folder import new_run_folder
from pinchpoint.capture.launch.launcher import Ended, begin
from pinchpoint.capture.process import loaders
from pinchpoint.capture.process.facts import save_facts
from pinchpoint.capture.process.policy import AtSteadyState, Policy, WhenSlower
from pinchpoint.capture.process.ranks import identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.settings import FOLDER_VARIABLE, STEPS, Kind, Settings
from pinchpoint.capture.windows import Window, new_window
from pinchpoint.inside import marked
from pinchpoint.inside import step as mark_step
from pinchpoint.inside.hooks import BATCH_FETCHED, ITERATOR_BUILT
from pinchpoint.monitor.environment import environment
from pinchpoint.monitor.telemetry import Rhythm, Telemetry
from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, TELEMETRY_FILE, TRACES, write_json

Batch = TypeVar("Batch")
SAVE_EVERY_NS = (
    60_000_000_000  # a document of some ms: who looks at a run, or a fleet, sees it go on
)
_NO_STEP = "no step was told: call step() of what the block gives, or pinchpoint.step(), after each"
CALM = Rhythm(1.0, 1.0)  # seconds: the sampler shares the process with the program


class Capture:
    """Times steps and data waits, and records a few steps into a run folder.

    Use it as a context manager; ``steps`` or ``step`` marks the steps, or ``pinchpoint.step()``
    where neither does. Every rank of a distributed job may use it with the same folder. Under
    ``pinchpoint run`` it does nothing: that records.
    """

    def __init__(self, settings: Settings, out: Path | None, policy: Policy) -> None:
        self._settings, self._out, self._policy = settings, out, policy
        self._session: CaptureSession | None = None
        self._telemetry: Telemetry | None = None
        self._loaders: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._stop_listening: list[Callable[[], None]] = []
        self._began, self._saved_ns = begin(), 0
        self._called = self._told = False  # ends of steps, here or by ``pinchpoint.step()``
        self.folder: Path | None = None  # the run folder, once begun
        self.problems: list[str] = []  # what went wrong, in sentences, once ended
        self.seconds_spent = 0.0  # in Pinchpoint's own hooks, recordings left out

    def __enter__(self) -> Self:
        """Make the run folder and begin. Raises UsageError if it cannot be written."""
        if FOLDER_VARIABLE in os.environ:
            return self
        me = identity()
        self.folder = new_run_folder(self._out, "capture", shared=me.world_size > 1)
        self._settings = replace(self._settings, folder=str(self.folder))
        self._session = CaptureSession(self._settings, me, self._window, self._save, self._policy)
        if me.rank == 0:
            collect.begin(self.folder, sys.argv, self._settings)
            write_json(self.folder / ENVIRONMENT_FILE, environment())
            self._telemetry = Telemetry(self.folder / TELEMETRY_FILE, CALM, root_pid=os.getpid())
        self._began = begin()
        self._saved_ns = self._began.steady_ns
        marked.append(self._ended_elsewhere)
        if "torch.utils.data.dataloader" in sys.modules:
            self._stop_listening = [
                BATCH_FETCHED.listen(self._fetched, self._hook_failed),
                ITERATOR_BUILT.listen(self._iterator_built, self._hook_failed),
            ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep what was recorded and write the documents; an exception passes through."""
        for stop in self._stop_listening:
            stop()
        session, self._session = self._session, None
        if session is None or self.folder is None:
            return
        marked.remove(self._ended_elsewhere)
        if not (self._called or self._told) and error is None:
            session.problems.append(_NO_STEP)
        session.finish()
        self.problems = session.problems
        if self._telemetry is not None:
            sampled = self._telemetry.stop()
            failed, began = int(error is not None), self._began
            ended = Ended(failed, began.unix_ns, began.now_unix_ns(), sampled)
            try:
                self.problems = collect.finish(self.folder, sys.argv, self._settings, ended)
            except OSError as problem:
                self.problems.append(f"{self.folder}: {problem.strerror}")

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, one a step; the time to get each is counted as the step's data wait."""
        iterator = iter(batches)
        by_loader = _is_torch_iterator(iterator)
        while True:
            start_ns = time.perf_counter_ns()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            if self._session is not None and not by_loader:
                self._session.waited(time.perf_counter_ns() - start_ns)
            yield batch
            self.step()

    def step(self) -> None:
        """A step has ended. Costs some microseconds."""
        session = self._session
        if session is None:
            if self.folder is None:
                mark_step()  # ``pinchpoint run`` records, and hears where steps end
            return
        again = self._told and not self._called  # ``pinchpoint.step()`` ended this one
        self._called = True
        if not again:
            self._count(session)

    def _ended_elsewhere(self) -> None:
        """``pinchpoint.step()`` was called: the end of a step unless ``step`` here says so."""
        if self._session is not None and not self._called:
            self._told = True
            self._count(self._session)

    def _count(self, session: CaptureSession) -> None:
        start_ns = time.perf_counter_ns()
        recording = session.window is not None
        session.step("call")
        if not recording and session.window is None:
            if start_ns - self._saved_ns > SAVE_EVERY_NS:
                self._saved_ns = start_ns
                session.save()
            self.seconds_spent += (time.perf_counter_ns() - start_ns) / 1e9

    def _window(self, kind: Kind) -> Window | None:
        return new_window(self._settings, self._traces, identity().stem)

    @property
    def _traces(self) -> Path:
        return Path(self._settings.folder) / TRACES

    def _save(self, session: CaptureSession) -> None:
        save_facts(session, list(self._loaders.values()))

    def _fetched(self, start_ns: int, end_ns: int, iterator: Any, got: bool) -> None:
        if got and self._session is not None:
            self._session.fetched(start_ns, end_ns, iterator)

    def _hook_failed(self, module: str, error: Exception) -> None:
        if self._session is not None:
            self._session.problems.append(f"{module} could not be watched: {error}")

    def _iterator_built(self, duration_ns: int, loader: Any) -> None:
        if self._session is not None:
            self._session.iterator_built(duration_ns)
        loaders.count_iterator(self._loaders, duration_ns, loader)


def capture(  # noqa: PLR0913 - one argument an option, as in the command
    out: str | Path | None = None,
    *,
    steps: int | None = None,
    after_steps: int | None = None,
    stacks: bool = False,
    shapes: bool = False,
    memory: bool = False,
    modules: bool = False,
    flops: bool = False,
    ranks: str = "auto",
) -> Capture:
    """Record ``steps`` steps into the folder ``out``: at steady state, or after ``after_steps``.

    Six steps by default; up to 32 if the loader has more workers or an epoch is that short.

    The other arguments are those of ``pinchpoint run``. The run folder is complete when the block
    ends; ``pinchpoint.load(cap.folder)`` reads it.
    """
    settings = Settings(
        folder="",
        steps=steps or STEPS,
        whole_round=steps is None,
        after_steps=after_steps,
        stacks=stacks or modules,
        shapes=shapes,
        memory=memory,
        flops=flops,
        ranks=ranks,
    )
    where = None if out is None else Path(out)
    return Capture(settings, where, AtSteadyState(after_steps))


def watch(
    out: str | Path | None = None,
    *,
    slower_ratio: float = 1.3,
    steps: int | None = None,
    stacks: bool = False,
    shapes: bool = False,
) -> Capture:
    """A flight recorder: time every step, record only when steps become slower than they were.

    Leave it on: a step costs some microseconds (``seconds_spent`` says how much in all). When the
    last steps take ``slower_ratio`` times as long as the two hundred before, ``steps`` of them are
    recorded, at most five times in a program. Used like ``capture``.
    """
    settings = Settings(
        folder="",
        steps=steps or STEPS,
        whole_round=steps is None,
        stacks=stacks,
        shapes=shapes,
        only_when_slower=True,
    )
    where = None if out is None else Path(out)
    return Capture(settings, where, WhenSlower(slower_ratio))


def _is_torch_iterator(iterator: object) -> bool:
    module = sys.modules.get("torch.utils.data.dataloader")
    return module is not None and isinstance(iterator, module._BaseDataLoaderIter)
