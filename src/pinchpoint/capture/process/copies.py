"""Copies of the process, made by ``fork``, that train or serve themselves.

``multiprocessing`` forks on Linux unless it is told otherwise (Python before 3.14), and so do
servers with workers. A copy is left alone until an optimizer steps in it, or it has called models
for a while; then it is recorded as a process of its own. Workers of a loader never are, nor are
copies of a process that has used the profiler: it keeps a thread that a copy does not have.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.ranks import identity
from pinchpoint.inside.hooks import EAGER_OPTIMIZER_STEPPED, MODEL_CALLED
from pinchpoint.run_folder.layout import COPY_MARK, NOT_RECORDED_MARK, PROCESSES

MOST_COPIES = 4  # recorded of a run that is no job of ranks: workers of a pool do the same
SERVES_AFTER_NS = 2_000_000_000  # of calls of models: a pool may make a process for each task
SERVES_AFTER_CALLS = 3

_watched_in = -1  # the process in which a copy is watched: copies of copies have heard it twice


def watch(folder: Path, begin: Callable[[], Any], *, recordable: bool) -> None:
    """To be called in the copy. ``begin`` puts the hooks on, and gives who hears of steps.

    Where it is not ``recordable``, only that it trains is noted.
    """
    global _watched_in
    if _watched_in == os.getpid():
        return
    _watched_in = os.getpid()
    _Copy(folder, begin, recordable=recordable).watch()


class _Copy:
    def __init__(self, folder: Path, begin: Callable[[], Any], *, recordable: bool) -> None:
        self._folder, self._begin, self._recordable = folder, begin, recordable
        self._first_ns, self._calls = 0, 0
        self._ignore: list[Callable[[], None]] = []

    def watch(self) -> None:
        self._ignore = [EAGER_OPTIMIZER_STEPPED.listen(self._stepped, _ignored)]
        if self._recordable:
            self._ignore.append(MODEL_CALLED.listen(self._called, _ignored))

    def _stepped(self, optimizer: Any) -> None:
        program = self._become()
        if program is not None:
            program.optimizer_stepped(optimizer)

    def _called(self, model: Any) -> None:
        now_ns = time.perf_counter_ns()
        self._first_ns, self._calls = self._first_ns or now_ns, self._calls + 1
        if _of_a_loader():
            self._leave_alone()
        elif self._calls >= SERVES_AFTER_CALLS and now_ns - self._first_ns >= SERVES_AFTER_NS:
            self._become()

    def _leave_alone(self) -> None:
        while self._ignore:
            self._ignore.pop()()

    def _become(self) -> Any:
        """A process that is recorded, if it may be one."""
        self._leave_alone()
        with contextlib.suppress(Exception):  # the user's program comes first
            if not self._recordable:
                (self._folder / PROCESSES / NOT_RECORDED_MARK).touch()
            elif identity().world_size > 1 or self._has_room():
                program = self._begin()
                _finish_at_the_end(program.finish)
                return program
        return None

    def _has_room(self) -> bool:
        """Whether this is one of the first copies of the run."""
        for number in range(MOST_COPIES):
            with contextlib.suppress(FileExistsError):
                (self._folder / PROCESSES / f"{COPY_MARK}.{number}").touch(exist_ok=False)
                return True
        return False


def _of_a_loader() -> bool:
    """Whether this process makes batches for another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def _finish_at_the_end(finish: Callable[[], None]) -> None:
    """A process of ``multiprocessing`` ends without what was registered for the end of Python."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, finish, exitpriority=0)


def _ignored(module: str, error: Exception) -> None:
    pass
