"""A recording of all threads, begun and ended from a thread of our own.

For programs that never call us at a safe place. The usual profiler attaches to the thread that
starts it; this one is global, as the profiler's own on-demand recordings are, and can begin at any
moment. It imports nothing: an import here could meet a half-finished one of the program.
"""

import contextlib
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.known_messages import without_expected_messages
from pinchpoint.capture.windows.left_open import (
    Places,
    all_left_compiled_code,
    all_moved_on,
    in_compiled_code,
    let_ranges_go,
    places,
)
from pinchpoint.capture.windows.recording import NOT_BEGUN, BrokenTrace, Recording
from pinchpoint.capture.windows.threads import (
    at_rest,
    begin_with_stacks,
    captures_under_way,
)
from pinchpoint.capture.windows.torch import OWN, USED, write_trace
from pinchpoint.capture.windows.works import Works


class GlobalWindow:
    """One recording of every thread of the process. ``prime``, ``open``, ``step``, ``close``."""

    # Where the threads were when the last one ended: operators that began in it may be under way.
    left_at: ClassVar[Places] = {}
    compiled_then: ClassVar[set[int]] = set()  # threads in what torch compiled, or its compiler
    works_then: ClassVar[Works] = Works()  # which write to it only while a recording is open

    def __init__(self, settings: Settings, folder: Path, stem: str) -> None:
        self._settings, self._folder, self._stem = settings, folder, stem
        self._profiler: Any = None
        self._may_begin = True
        self._start_unix_ns = 0
        self.steps = -1

    def prime(self) -> None:
        """Build the profiler. Raises RuntimeError if this torch cannot record all threads."""
        torch = sys.modules["torch"]
        settings = self._settings
        OWN.building = True
        try:
            self._profiler = torch.autograd.profiler.profile(
                use_cpu=True,
                use_device="cuda" if torch.cuda.is_initialized() else None,
                use_kineto=True,
                record_shapes=settings.shapes or settings.flops,
                profile_memory=settings.memory,
                with_stack=settings.stacks,
                with_flops=settings.flops,
                experimental_config=torch._C._profiler._ExperimentalConfig(
                    profile_all_threads=True
                ),
            )
        except TypeError:
            raise RuntimeError(
                "this torch cannot record a program without optimizer steps or loader batches; "
                "mark its steps: with pinchpoint.capture(...) as cap"
            ) from None
        finally:
            OWN.building = False

    def open(self) -> None:
        """Warm up."""
        USED.set()
        self._may_begin = (
            all_moved_on(GlobalWindow.left_at)
            and all_left_compiled_code(GlobalWindow.compiled_then)
            and not GlobalWindow.works_then.under_way()
        )
        if not self._may_begin:
            return
        GlobalWindow.works_then.watch()
        with without_expected_messages():
            at_rest(self._profiler._prepare_trace)

    def step(self) -> None:
        """Begin; without stacks where other threads are never outside of modules."""
        if not self._may_begin:
            return
        start = self._start
        if not (self._settings.stacks and begin_with_stacks(start)):
            self._settings = replace(self._settings, stacks=False)
            self._profiler.with_stack = False
            at_rest(start)
        self._start_unix_ns = time.time_ns()
        self.steps = 0
        add_metadata = sys.modules["torch"].autograd._add_metadata_json
        for name in ("stacks", "shapes", "memory", "flops"):
            if getattr(self._settings, name):
                add_metadata(_METADATA[name], "1")

    def _start(self) -> None:
        """Begin first, and then say so: as torch says it first, a range of its compiler that begins
        between the two would begin in no recording and end in one, which torch 2.11
        refuses with an error in the program."""
        profiler = sys.modules["torch"].autograd.profiler
        say = profiler._run_on_profiler_start
        profiler._run_on_profiler_start = _not_yet
        try:
            self._profiler._start_trace()
        finally:
            profiler._run_on_profiler_start = say
        say()

    def may_end(self, *, step_ended: bool) -> bool:
        """At any time: what is under way then keeps the next one from beginning."""
        del step_ended
        return True

    def close(self, *, step_ended: bool = False) -> Recording:
        """End and write the file; what went wrong is in the answer, nothing is raised."""
        end_ns = time.time_ns()
        GlobalWindow.works_then.leave()
        if not self._start_unix_ns:
            return Recording(None, NOT_BEGUN, end_ns, end_ns, 0)
        torch = sys.modules["torch"]
        file, problem, ended = None, None, []

        def end() -> None:
            torch.autograd.profiler._run_on_profiler_stop()  # before the end, see ``_start``
            ended.append(torch.autograd.profiler._disable_profiler())
            GlobalWindow.left_at = places()
            GlobalWindow.compiled_then = in_compiled_code()
            let_ranges_go()

        try:
            let_the_device_catch_up()  # else kernels that have not run yet are missing at the end
            with without_expected_messages():
                at_rest(end)
            file = write_trace(ended[0].save, self._folder, self._stem)
        except (AttributeError, BrokenTrace, OSError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
        stacks = self._settings.stacks
        return Recording(file, problem, self._start_unix_ns, end_ns, 0, stacks=stacks)


def _not_yet() -> None:
    pass


_METADATA = {
    "stacks": "with_stack",
    "shapes": "record_shapes",
    "memory": "profile_memory",
    "flops": "with_flops",
}


CATCH_UP_S = 5.0  # at most: a program that hangs must not keep its recording from being written


def let_the_device_catch_up() -> bool:
    """Wait for the devices that this process uses; whether they are done.

    A host can be seconds ahead of its device: where a step has few launches, a full queue holds
    many steps. What a recording saw launched would then run after its end, and nothing could be
    said about it. Waiting is not allowed while any thread of the program captures a CUDA graph.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or captures_under_way():
        return False
    done = threading.Event()

    def wait() -> None:
        with contextlib.suppress(Exception):
            for device in range(torch.cuda.device_count()):
                if torch.cuda.memory_reserved(device):  # no context is made where there is none
                    torch.cuda.synchronize(device)
            done.set()

    threading.Thread(target=wait, name="pinchpoint-catch-up", daemon=True).start()
    return done.wait(CATCH_UP_S)
