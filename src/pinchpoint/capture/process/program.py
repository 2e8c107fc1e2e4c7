"""Starts the hooks in the program that ``pinchpoint run`` started, and in its descendants.

Hooks are put on as the program imports torch or jax; nothing is imported for it. A process that
was forked from a hooked one is left alone.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.capture.process import loaders
from pinchpoint.capture.process.deaths import Deaths
from pinchpoint.capture.process.end import end_as_interrupted, leave_before_static_destructors
from pinchpoint.capture.process.memory import MemoryHistory
from pinchpoint.capture.process.own_profile import TAKEN, OwnProfile
from pinchpoint.capture.process.quiet_watch import QuietWatch
from pinchpoint.capture.process.ranks import identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.values import ValuesLook
from pinchpoint.capture.samples.whole_run import WholeRun
from pinchpoint.capture.samples.worker import watch_pools
from pinchpoint.capture.settings import BARE, BESIDE, Kind, Settings, from_environment, with_names
from pinchpoint.capture.windows import Window, new_window
from pinchpoint.capture.windows.nsys import NvtxRanges
from pinchpoint.capture.windows.threads import graph_is_captured, watch_captures
from pinchpoint.capture.windows.torch import GRAPHS_SAFE_SINCE_CUDA, OWN, USED, TorchWindow
from pinchpoint.inside import both_branches, jacobians, marked
from pinchpoint.inside.after_import import Action, after_import
from pinchpoint.inside.hooks import (
    BATCH_FETCHED,
    EAGER_OPTIMIZER_STEPPED,
    GRAPH_REPLAYED,
    ITERATOR_BUILT,
    MODEL_CALLED,
    STEP_ANNOTATED,
    Event,
)
from pinchpoint.run_folder.layout import (
    FRAMEWORK_MARK,
    HOOKS_MARK,
    MEMORY,
    NAMES,
    PROCESSES,
    TRACES,
)

OWN_PROFILER = (
    "the program runs its own profiler, and only one can record at a time: what that records is "
    "diagnosed once the program has ended; for a recording of ours, switch it off"
)
NOT_TAKEN = (
    "the program's own profiler kept ours from recording, and has left no recording: diagnose the "
    "trace that it wrote, if any, or switch it off"
)


class Program:
    """The hooks of this process and what they feed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = Path(settings.folder)
        self.pid = os.getpid()
        self.loaders: dict[tuple[Any, ...], dict[str, Any]] = {}
        me = identity()
        self.session = CaptureSession(settings, me, self._window, self._save)
        self._nvtx = NvtxRanges() if settings.nvtx else None
        self._whole_run = WholeRun(self.session) if settings.samples else None
        self._history = MemoryHistory(self.folder / MEMORY, me.stem) if settings.snapshot else None
        self._own_profile = OwnProfile(lambda: self.session.clock)
        self._deaths = Deaths(lambda: self._save(self.session))
        self.session.other_records = lambda: self._own_profile.records
        self._primed = False
        self._look: ValuesLook | None = None
        self._ignore_models: Callable[[], None] = _nothing
        self._take_back: list[Callable[[], None]] = []

    def start(self) -> None:
        """Put the hooks on."""
        for event, heard in self._handlers().items():
            self._take_back.append(event.listen(heard, self._hook_failed))
        self._ignore_models = MODEL_CALLED.listen(self._model_called, self._hook_failed)
        self._take_back.append(lambda: self._ignore_models())
        for module, action in self._actions().items():
            self._take_back.append(after_import(module, action, self._hook_failed))
        self._take_back.append(both_branches.watch(self._hook_failed))
        self._take_back.append(jacobians.watch(self._hook_failed))
        if self.settings.names:
            self._look_at_values()
            self.session.look_anew = self._look_at_values
        self._deaths.start()
        self._take_back.append(self._deaths.stop)
        marked.append(self._marked)
        self._take_back.append(lambda: marked.remove(self._marked))
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._after_fork)
        if self.settings.tool != "none":
            watch = QuietWatch(self.session)
            self.session.end_quiet_watch = watch.end
            watch.start()
        if self._whole_run is not None:
            self._whole_run.start()

    def _look_at_values(self) -> None:
        if self._look is not None:
            self._look.stop()
        self._look = ValuesLook(self.session)
        self._look.start()
        self._take_back.append(self._look.stop)

    def finish(self) -> None:
        """The interpreter ends."""
        if os.getpid() != self.pid:
            return
        for take_back in self._take_back:
            take_back()
        if (missing := _missing_framework()) is not None:
            self.session.problems.append(_where_it_is(missing))
        with contextlib.suppress(Exception):  # the user's program comes first
            self.session.calls.end()
            self.session.loops.end()
            self.session.threaded.end()
            self._take_own_profile()
        self.session.finish()
        if self._whole_run is not None:
            self._whole_run.finish()
        if self._history is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._history.write("end")
        if getattr(sys, "last_type", None) is KeyboardInterrupt:
            end_as_interrupted()

    def _take_own_profile(self) -> None:
        """What the program's own profiler recorded, where it has kept ours from it."""
        session = self.session
        if OWN_PROFILER not in session.problems or any(r.file for r in session.recordings):
            return
        folder = self.folder / TRACES
        folder.mkdir(exist_ok=True)
        taken = self._own_profile.recording(folder, session.identity.stem)
        if taken is not None:
            session.recordings.append(taken)
        session.problems[session.problems.index(OWN_PROFILER)] = (
            NOT_TAKEN if taken is None else TAKEN
        )

    def _handlers(self) -> dict[Event, Callable[..., None]]:
        return {
            EAGER_OPTIMIZER_STEPPED: self._optimizer_stepped,
            BATCH_FETCHED: self._fetched,
            ITERATOR_BUILT: self._iterator_built,
            GRAPH_REPLAYED: self._graph_replayed,
            STEP_ANNOTATED: lambda: self.session.step("annotation"),
        }

    def _actions(self) -> dict[str, Action]:
        return {
            "torch.utils.data._utils.fetch": self._on_fetch,
            "torch.autograd.profiler": self._on_autograd_profiler,
            "torch.profiler.profiler": self._on_torch_profiler,
            "torch.cuda.graphs": self._on_cuda_graphs,
            "torch.cuda.memory": self._on_cuda_memory,
        } | self._sampling()

    def _sampling(self) -> dict[str, Action]:
        watched: dict[str, Action] = {"torch": self._on_framework, "jax": self._on_framework}
        if self._whole_run is not None:
            watched["torch.serialization"] = self._whole_run.spans.watch_saves
            watched["multiprocessing.process"] = self._on_multiprocessing
        return watched

    def _on_multiprocessing(self, module: Any) -> None:
        watch_pools(module, self.folder, lambda: os.getpid() == self.pid)

    def _on_framework(self, module: Any) -> None:
        with contextlib.suppress(OSError):
            (self.folder / PROCESSES / FRAMEWORK_MARK).touch()

    def _after_fork(self) -> None:
        self.session.forget_in_fork()
        if self._whole_run is not None:
            self._whole_run.forget_in_fork()
        if USED.is_set():
            leave_before_static_destructors()

    def _window(self, kind: Kind) -> Window | None:
        settings = self.settings if kind in BARE else with_names(self.settings)
        if kind == "shapes":
            settings = replace(settings, stacks=self.settings.stacks)
        part = self.folder / (NAMES if kind in BESIDE else TRACES)
        stem = self.session.identity.stem + (f".{kind}" if kind in ("rare", "late") else "")
        return new_window(settings, part, stem)

    def _save(self, session: CaptureSession) -> None:
        if os.getpid() != self.pid:
            return
        try:
            from pinchpoint.capture.process.facts import save_facts  # not paid at start-up

            save_facts(session, list(self.loaders.values()), self._deaths)
        except Exception as error:  # the user's program comes first
            session.problems.append(f"{type(error).__name__}: {error}".splitlines()[0])

    def _hook_failed(self, module: str, error: Exception) -> None:
        self.session.problems.append(f"{module} could not be watched: {error}")

    # What the hooks tell

    def _optimizer_stepped(self, optimizer: Any) -> None:
        if graph_is_captured():
            self.session.step_captured()
            return  # a step that is captured does not happen now, and must not be disturbed
        self.session.optimizer_stepped(optimizer)
        if self._nvtx:
            self._nvtx.step()

    def _marked(self) -> None:
        if os.getpid() == self.pid:
            self.session.step("call")

    def _model_called(self, model: Any) -> None:
        if graph_is_captured():
            return
        if not self.session.model_called(model):
            self._ignore_models()
            self._ignore_models = _nothing

    def _graph_replayed(self, graph: Any) -> None:
        if not graph_is_captured():
            self.session.graph_replayed(graph)

    def _fetched(self, start_ns: int, end_ns: int, iterator: Any, got: bool) -> None:
        if not got:
            return
        self.session.fetched(start_ns, end_ns, iterator)
        if self._nvtx:
            self._nvtx.waited()

    def _iterator_built(self, duration_ns: int, loader: Any) -> None:
        self.session.iterator_built(duration_ns)
        loaders.count_iterator(self.loaders, duration_ns, loader)

    # Actions on modules of the program

    def _on_fetch(self, module: Any) -> None:
        loaders.watch_workers(module, self.folder, samples=self.settings.samples)

    def _on_autograd_profiler(self, module: Any) -> None:
        self._notice_construction(module.profile)

    def _on_torch_profiler(self, module: Any) -> None:
        self._own_profile.watch(module._KinetoProfile)
        self._notice_construction(module._KinetoProfile)

    def _notice_construction(self, profiler: Any) -> None:
        construct = profiler.__init__

        def __init__(made: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            if not OWN.building and os.getpid() == self.pid:
                self.session.yield_to_other_profiler(OWN_PROFILER)
                self.session.save()
            construct(made, *args, **kwargs)

        profiler.__init__ = __init__

    def _on_cuda_graphs(self, module: Any) -> None:
        """With old CUDA, a graph captured before the profiler's first use cannot be recorded.

        The program then crashes or hangs in the recording; torch itself works around that below
        CUDA 12.6. First use takes seconds, so that it is left for later where it can be.
        """
        watch_captures(module)
        enter = module.graph.__enter__

        def __enter__(context: Any) -> Any:  # noqa: N807
            if not self._primed and os.getpid() == self.pid:
                self._primed = True
                if self._must_prime() and not self.session.recordings:
                    with contextlib.suppress(RuntimeError, KeyError):
                        TorchWindow.prime()
            return enter(context)

        module.graph.__enter__ = __enter__

    def _must_prime(self) -> bool:
        cuda = str(getattr(sys.modules["torch"].version, "cuda", None) or "0.0")
        parts = tuple(int(part) for part in cuda.split(".")[:2] if part.isdigit())
        return self.settings.tool == "torch" and parts < GRAPHS_SAFE_SINCE_CUDA

    def _on_cuda_memory(self, module: Any) -> None:
        if self._history is not None:
            self._history.start(sys.modules["torch.cuda"])


def _missing_framework() -> str | None:
    """The framework that the program ended for want of."""
    error = getattr(sys, "last_value", None)
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name if name in ("torch", "jax") else None


def _where_it_is(framework: str) -> str:
    from pinchpoint.capture.process.elsewhere import interpreters_with

    others = interpreters_with(framework)
    have = f"; {' and '.join(others)} would have it" if others else ""
    return (
        f"{sys.executable} has no {framework}{have}: run the program with the Python of its "
        f"environment: pinchpoint run --python {next(iter(others), 'ENV/bin/python')} …"
    )


def _nothing() -> None:
    pass


def start() -> None:
    """Called once by the ``sitecustomize`` of ``pinchpoint.inside``."""
    settings = from_environment(os.environ)
    if settings is None:
        return
    with contextlib.suppress(OSError):
        (Path(settings.folder) / PROCESSES / HOOKS_MARK).touch()
    Program(settings).start()
