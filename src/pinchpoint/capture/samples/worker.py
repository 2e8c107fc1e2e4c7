"""Looks at a process that works for the program: a worker of a data loader, or of a pool.

Such processes are killed without a word, so that what was seen is written again and again.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.capture.samples.spelling import spell
from pinchpoint.capture.samples.usage import process_starts, usage
from pinchpoint.run_folder.layout import SAMPLES, SAMPLES_SCHEMA, write_json

EVERY_S = 0.05  # there are often many workers on few cores
FIRST_NOTE_LOOKS = 20  # one second of work
AGAIN_S = 5.0
_child: "WorkerSamples | None" = None  # of this process, where it works for a pool
_LOADER = "torch.utils.data"  # whose workers are looked at while they make batches


class WorkerSamples:
    """Samples of one worker; ``busy`` while it makes a batch, or has any work."""

    def __init__(
        self, folder: Path, worker: int | None, name: str = "worker", *, busy: bool = False
    ) -> None:
        self.busy = busy
        self._path = folder / SAMPLES / f"{name}.{os.getpid()}.json"
        self._worker, self._parent = worker, os.getppid()
        self._write_at = 0.0
        self._sampler = Sampler(lambda: not self.busy, EVERY_S, self._maybe_write)
        self._sampler.start()

    def end(self) -> None:
        """Look no more, and write."""
        self._sampler.end()
        if self._sampler.looks:
            self._write()

    def drop(self) -> None:
        """Look no more, and leave nothing."""
        self._sampler.end()
        self._sampler.looks = 0
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _maybe_write(self) -> None:
        if self._sampler.looks < FIRST_NOTE_LOOKS or time.monotonic() < self._write_at:
            return
        self._write_at = time.monotonic() + AGAIN_S
        self._write()

    def _write(self) -> None:
        sampled = self._sampler.document()
        for thread in sampled["threads"]:
            kept = thread["main"]
            thread |= {} if kept else {"stacks": [], "spent": [], "waits": []}
        spelt, _ = spell(self._sampler.table, sampled)
        document = {
            "schema": SAMPLES_SCHEMA,
            "pid": os.getpid(),
            "parent": self._parent,
            "worker": self._worker,
            "cost_ns": self._sampler.pace.cost_ns,
            **spelt,
            "sampled": sampled,
            "usage": usage(),
            "called": self._sampler.calls.document(),
        }
        with contextlib.suppress(OSError):
            write_json(self._path, document)


def watch_pools(module: Any, folder: Path, looked_at: Callable[[], bool]) -> None:
    """Look at every process that ``multiprocessing`` forks, and count those that it starts.

    ``looked_at``: whether this process is by itself, as one is that was started anew.
    """
    process = module.BaseProcess
    bootstrap, start = process._bootstrap, process.start

    @functools.wraps(start)
    def counted(self: Any) -> Any:
        if not _of_a_loader(self):
            process_starts()
        return start(self)

    @functools.wraps(bootstrap)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _of_a_loader(self) or looked_at():
            return bootstrap(self, *args, **kwargs)
        global _child
        samples = None
        with contextlib.suppress(Exception):  # the user's program comes first
            _child = samples = WorkerSamples(folder, None, "child", busy=True)
        try:
            return bootstrap(self, *args, **kwargs)
        finally:
            if samples is not None:
                with contextlib.suppress(Exception):
                    samples.end()

    process._bootstrap, process.start = watched, counted


def hand_over() -> None:
    """Somebody else looks at this process from now on."""
    global _child
    child, _child = _child, None
    if child is not None:
        child.drop()


def _of_a_loader(process: Any) -> bool:
    return str(getattr(process._target, "__module__", "")).startswith(_LOADER)
