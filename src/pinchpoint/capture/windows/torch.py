"""A bounded recording with ``torch.profiler``, opened, stepped and closed on one thread."""

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.known_messages import quiet_beside_main
from pinchpoint.capture.windows.left_open import let_ranges_go
from pinchpoint.capture.windows.recording import NOT_BEGUN, BrokenTrace, Recording, TraceFile, pack
from pinchpoint.capture.windows.threads import begin_with_stacks
from pinchpoint.capture.windows.works import Works

OTHER_THREAD = (
    "the program ended while the thread of its steps was being recorded, which no other thread can "
    "end: give it more steps, or record fewer (--steps 2)"
)
HOLDS_UP_S = 0.05  # the program, for other threads to leave their modules: less than a start costs
GRAPHS_SAFE_SINCE_CUDA = (12, 6)  # pytorch pull request 151124


class OwnProfiler(threading.local):
    """True while we build a profiler ourselves, so that ours is told from the program's."""

    building = False


OWN = OwnProfiler()
USED = threading.Event()  # the profiler has been started by us in this process or before its fork


class Ends(threading.local):
    """What a thread has to end before it ends itself."""

    window: "EndsWithThread | None" = None


ENDS = Ends()


class EndsWithThread:
    """Ends a window in its own thread, with the variables of which it goes away."""

    def __init__(self, window: "TorchWindow") -> None:
        self._window, self._pid = window, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked copy records nothing
        with contextlib.suppress(Exception):  # the user's program comes first
            self._window.thread_ends()


class _WithoutCompiler:
    """torch, as its profiler sees it while it starts, without a compiler that nobody uses.

    The profiler asks ``hasattr(torch, "_inductor")`` to read one setting, which has its default
    where nobody has compiled. The question imports the compiler: with torch 2.13 these are 819
    modules, and 1.71 of the 1.72 seconds that the first start takes of a core.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "_inductor" and "torch._inductor" not in sys.modules:
            raise AttributeError(name)
        return getattr(sys.modules["torch"], name)


@contextmanager
def _building() -> Iterator[None]:
    """What happens in the block is ours: it imports nothing, and warns nobody.

    torch 2.11 warns at each beginning that a profiler clears its events between cycles.
    """
    names = vars(sys.modules["torch.profiler.profiler"])
    seen = {name: names[name] for name in ("torch", *_WARNS) if name in names}
    OWN.building = True
    try:
        names.update({name: _say_nothing for name in _WARNS if name in seen})
        if _graphs_are_safe():
            names["torch"] = _WithoutCompiler()
        yield
    finally:
        names.update(seen)
        OWN.building = False


_WARNS = ("_warn_once", "warn")  # of torch.profiler.profiler, by its version


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _reads_gradients_silently() -> None:
    """torch's tracer reads ``.grad`` of all parameters of a module that is called, and torch warns
    of one that is no leaf (a target network that was updated in place): where modules are called,
    which is no line of the program's."""
    warnings.filterwarnings(
        "ignore",
        message=r"The \.grad attribute of a Tensor that is not a leaf",
        category=UserWarning,
        module=r"pinchpoint\.inside\.hooks|torch\.nn\.modules\.module",
    )


def _graphs_are_safe() -> bool:
    """Whether the setting is about nothing: it is for old CUDA alone."""
    cuda = str(getattr(sys.modules["torch"].version, "cuda", None) or "99.0")
    parts = tuple(int(part) for part in cuda.split(".")[:2] if part.isdigit())
    return parts >= GRAPHS_SAFE_SINCE_CUDA


class TorchWindow:
    """One recording. ``prime`` early, ``open``, ``step`` at each edge, ``close``."""

    def __init__(self, settings: Settings, folder: Path, stem: str) -> None:
        self._settings, self._folder, self._stem = settings, folder, stem
        self._profiler: Any = None
        self._start_unix_ns = 0
        self._thread: int | None = None  # that opened it: no other one can end it
        self._ended_early: Recording | None = None  # with its thread
        self._heard: Any = None  # the function that the program itself profiles calls with
        self._works, self._paused = Works(), False
        self.steps = -1

    @staticmethod
    def prime() -> None:
        """Initialise the profiler with an empty recording.

        The first use stalls a program that uses a device: one or two seconds, on a busy H100
        machine up to seven, some of it for what ``_WithoutCompiler`` says. On a CPU it is 1 ms.
        """
        _refuse_second_profiler()
        USED.set()
        profile = sys.modules["torch.profiler"].profile
        with _building(), quiet_beside_main(), profile(activities=_activities()):
            pass

    def open(self) -> None:
        """Begin: the profiler warms up until the first ``step``. Raises RuntimeError."""
        torch_profiler = sys.modules["torch.profiler"]
        action = torch_profiler.ProfilerAction
        _refuse_second_profiler()
        self._thread = threading.get_ident()
        settings, self._heard = self._settings, sys.getprofile()
        if settings.stacks:
            _reads_gradients_silently()
        with _building():
            self._profiler = torch_profiler.profile(
                activities=_activities(),
                schedule=lambda number: action.WARMUP if number == 0 else action.RECORD,
                record_shapes=settings.shapes or settings.flops,
                profile_memory=settings.memory,
                with_stack=settings.stacks,
                with_flops=settings.flops,
                experimental_config=_written_only(settings),
            )
            with quiet_beside_main():
                self._profiler.start()
            ENDS.window = EndsWithThread(self)
        self._works.watch()

    def step(self) -> None:
        """A step ends; the recording itself begins at the first call."""
        with _building():  # the profiler builds an inner one when it begins
            first = self.steps < 0 and self._settings.stacks
            if not (first and self._begins_with_stacks()):
                self._profiler.step()
        self.steps += 1
        self._start_unix_ns = self._start_unix_ns or time.time_ns()

    def _begins_with_stacks(self) -> bool:
        """Begin so, or see to it that the recording, which still has to begin, has none."""
        if begin_with_stacks(self._profiler.step, HOLDS_UP_S, in_main=False):
            return True
        self._settings = replace(self._settings, stacks=False)
        self._profiler.profiler.with_stack = False
        return False

    def may_end(self, *, step_ended: bool) -> bool:
        """Whether nothing is under way that writes to what was recorded (``Works``).

        If something is, no more is recorded: what the program begins from now on has no event.
        """
        if self._thread != threading.get_ident():
            return True  # it is not ended from here, see ``close``
        if not self._paused and self._works.under_way():
            self._pause(step_ended)
        return not (self._paused and self._works.under_way())

    def under_way(self) -> bool:
        """Whether a collective or message that began in it is not over."""
        return self._works.under_way()

    def _pause(self, step_ended: bool) -> None:
        self._works.leave()
        step = getattr(self._profiler, "step_rec_fn", None)
        if step is not None:  # the mark of the step that would begin now
            step.__exit__(None, None, None)
            self._profiler.step_rec_fn = None
        if self._settings.stacks:
            sys.setprofile(None)
        sys.modules["torch"].autograd._enable_record_function(False)
        self.steps += step_ended
        self._paused = True

    def thread_ends(self) -> None:
        """Its thread ends: a profiler that nobody has ended there ends the program (torch 2.13)."""
        if self._thread == threading.get_ident():
            self._ended_early = self.close()

    def close(self, *, step_ended: bool = False) -> Recording:
        """End and write the file; what went wrong is in the answer, nothing is raised."""
        end_ns = time.time_ns()
        file, problem = None, None
        if self._ended_early is not None:
            return self._ended_early
        if self._thread not in (None, threading.get_ident()):
            # What torch then gives back is empty, and to write it ends the program (torch 2.13).
            return Recording(None, OTHER_THREAD, self._start_unix_ns or end_ns, end_ns, 0)
        self._thread = ENDS.window = None
        self._works.leave()
        if self._works.under_way():
            self._works.keep()
        if not self._start_unix_ns:
            problem = NOT_BEGUN
        try:
            self._profiler.stop()
            let_ranges_go()
            if problem is None:
                file = write_trace(self._profiler.export_chrome_trace, self._folder, self._stem)
        except (BrokenTrace, OSError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
        finally:
            if self._paused:
                sys.modules["torch"].autograd._enable_record_function(True)
        self._profiler = None
        if callable(self._heard) and sys.getprofile() is None:
            sys.setprofile(self._heard)  # torch's took its place, and left none
        steps = max(self.steps + (step_ended and not self._paused), 0)
        stacks = self._settings.stacks
        return Recording(file, problem, self._start_unix_ns or end_ns, end_ns, steps, stacks=stacks)


def _written_only(settings: Settings) -> Any:
    """For a bare window no objects of its events: torch 2.13 then ends it in two thirds of the time
    (260,000 events on a CPU: 0.81 instead of 1.2 s), and the file is the same."""
    if settings.stacks or settings.shapes or settings.memory or settings.flops:
        return None
    try:
        return sys.modules["torch"]._C._profiler._ExperimentalConfig(trace_only=True)
    except (AttributeError, TypeError):  # torch before 2.13
        return None


def _refuse_second_profiler() -> None:
    if sys.modules["torch"].autograd._profiler_enabled():
        raise RuntimeError("another profiler is recording, and only one can at a time")


def _activities() -> list[Any]:
    """The CPU, and the device that the program uses; asking for another one would initialise it."""
    torch = sys.modules["torch"]
    activity = torch.profiler.ProfilerActivity
    found = [activity.CPU]
    if torch.cuda.is_initialized():
        found.append(activity.CUDA)
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_initialized():
        found.append(activity.XPU)
    return found


def write_trace(export: Callable[[str], object], folder: Path, stem: str) -> TraceFile:
    """Let the profiler write its JSON and keep it compressed. Raises BrokenTrace or OSError."""
    raw = folder / f".{stem}.{time.monotonic_ns()}.json"
    try:
        export(str(raw))
        if not raw.exists():
            raise BrokenTrace("the profiler wrote no file; is the disk full?")
        return pack(raw, unused(folder, stem))
    finally:
        raw.unlink(missing_ok=True)


def unused(folder: Path, stem: str) -> Path:
    """A name for a new file there."""
    for number in range(1, 1000):
        extra = "" if number == 1 else f".{number}"
        path = folder / f"{stem}{extra}.trace.json.gz"
        if not path.exists():
            return path
    raise BrokenTrace(f"{folder} holds a thousand recordings of this process")
