"""Data loaders of the program: what workers do, and what a loader means for a recording."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.stream_calls import StreamCalls
from pinchpoint.capture.samples.stacks import import_roots, relative
from pinchpoint.capture.samples.worker import WorkerSamples
from pinchpoint.run_folder.layout import LOADER, write_json

WORKER_NOTE_NS = 500_000_000  # a worker writes its figures at most twice a second


def watch_workers(module: Any, folder: Path, *, samples: bool = False) -> None:
    """Time ``fetch`` in worker processes, and leave the figures in the run folder.

    ``samples``: with the stacks that were seen while they made batches.
    """
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(module, name)
        fetcher.fetch = _timed(fetcher.fetch, folder, samples=samples)


def _timed(fetch: Callable[..., Any], folder: Path, *, samples: bool = False) -> Callable[..., Any]:
    notes: dict[int, WorkerNotes] = {}

    def timed_fetch(self: Any, index: Any) -> Any:
        notes_here = notes.get(os.getpid())
        if notes_here is None:
            collate = getattr(self, "collate_fn", None)
            notes_here = WorkerNotes(folder, samples=samples, collate=collate)
            notes[os.getpid()] = notes_here
        if notes_here.worker is None:
            return fetch(self, index)
        start_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        notes_here.busy(True)
        batch = None
        try:
            with notes_here.stream.counting(self, index):
                batch = fetch(self, index)
            return batch
        finally:
            notes_here.busy(False)
            end_ns = time.perf_counter_ns()
            notes_here.fetched(start_ns, end_ns, time.thread_time_ns() - cpu_ns, batch)

    return timed_fetch


class WorkerNotes:
    """Figures of one worker process; does nothing in a process that is no worker."""

    def __init__(self, folder: Path, *, samples: bool = False, collate: Any = None) -> None:
        from torch.utils.data import get_worker_info

        self.worker = get_worker_info()
        self._collate = _code_of(collate)
        self.stream = StreamCalls()
        self._samples = None
        if samples and self.worker is not None:
            self._samples = WorkerSamples(folder, self.worker.id)
        self._path = folder / LOADER / f"worker.{os.getpid()}.json"
        self._first_ns = time.perf_counter_ns()
        self._written_ns = 0
        self._batches = self._busy_ns = self._longest_ns = self._cpu_ns = 0
        self._batch_bytes: int | None = 0  # None: of one it is not known
        self._read_before = bytes_read()

    def busy(self, now: bool) -> None:
        """Whether a batch is being made from now on."""
        if self._samples is not None:
            self._samples.busy = now

    def fetched(self, start_ns: int, end_ns: int, cpu_ns: int, batch: Any = None) -> None:
        """One batch was prepared."""
        with contextlib.suppress(Exception):  # the user's program comes first
            self._count(batch)
        self._batches += 1
        self._busy_ns += end_ns - start_ns
        self._cpu_ns += cpu_ns
        self._longest_ns = max(self._longest_ns, end_ns - start_ns)
        if end_ns - self._written_ns > WORKER_NOTE_NS:
            self._written_ns = end_ns
            with contextlib.suppress(OSError):
                write_json(self._path, self._document(end_ns))

    def _count(self, batch: Any) -> None:
        held, before = bytes_of(batch), self._batch_bytes
        self._batch_bytes = None if held is None or before is None else before + held

    def _document(self, now_ns: int) -> dict[str, Any]:
        worker, read, before = self.worker, bytes_read(), self._read_before
        return {
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "worker": None if worker is None else worker.id,
            "workers": None if worker is None else worker.num_workers,
            "unix_ns": time.time_ns(),
            "batches": self._batches,
            "busy_ns": self._busy_ns,
            "cpu_ns": self._cpu_ns,
            "longest_ns": self._longest_ns,
            "alive_ns": now_ns - self._first_ns,
            "torch_threads": _torch_threads(),
            "cores_allowed": len(os.sched_getaffinity(0)) if _HAS_AFFINITY else None,
            "collate": self._collate,
            "stream": self.stream.note,
            "batch_bytes": self._batch_bytes,
            "read_bytes": None if read is None or before is None else read - before,
        }


def _code_of(called: Any) -> tuple[str, int, str] | None:
    """File, first line and name of a function, of what a partial one calls, or of ``__call__``."""
    while isinstance(called, partial):
        called = called.func
    call = called if hasattr(called, "__code__") else vars(type(called)).get("__call__")
    code = getattr(call, "__code__", None)
    if code is None:
        return None
    return relative(code.co_filename, import_roots()), code.co_firstlineno, code.co_name


MOST_VALUES = 4096  # of a batch; one that has more is not counted


def bytes_of(batch: Any) -> int | None:
    """What the arrays and texts of a batch hold; None where something else may hold more."""
    total, values, seen = 0, [batch], 0
    while values:
        one = values.pop()
        seen += 1
        if seen > MOST_VALUES:
            return None
        if isinstance(one, dict):
            values.extend(one.values())
        elif isinstance(one, list | tuple):
            values.extend(one)
        elif isinstance(held := getattr(one, "nbytes", None), int):
            total += held
        elif isinstance(one, str | bytes):
            total += len(one)
        elif not isinstance(one, bool | int | float | type(None)):
            return None
    return total


def bytes_read() -> int | None:
    """That this process has asked files for so far; None where the system does not tell."""
    try:
        first = Path("/proc/self/io").read_bytes().split(b"\n", 1)[0]
        return int(first.removeprefix(b"rchar: "))
    except (OSError, ValueError):
        return None


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


def _torch_threads() -> int | None:
    import torch

    return int(torch.get_num_threads())


def count_iterator(
    known: dict[tuple[Any, ...], dict[str, Any]], duration_ns: int, loader: Any
) -> None:
    """Count one more iterator of loaders like this one, and the time that it took to start."""
    about = loader_facts(loader)
    entry = known.setdefault(tuple(about.values()), about | {"iterators": 0, "start_ns": 0})
    entry["iterators"] += 1
    entry["start_ns"] += duration_ns


def loader_facts(loader: Any) -> dict[str, Any]:
    """Settings of a loader that decide how fast it can be."""
    facts: dict[str, Any] = {}
    for name in ("num_workers", "batch_size", "prefetch_factor", "pin_memory"):
        facts[name] = _plain(getattr(loader, name, None))
    facts["persistent_workers"] = _plain(getattr(loader, "persistent_workers", None))
    return facts


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | type(None)) else None


LEAST_DRAIN_STEPS = 2  # the step that was stalled, and the one that was launched meanwhile
MOST_DRAIN_STEPS = 64  # a queue longer than that is not waited for: programs may be short
MOST_ROUND_STEPS = 32  # of workers or an epoch: recordings should stay small
RECENT_STEPS = 20  # as many as are timed on each side of a recording


class LoaderRhythm:
    """How long a loader's queue is felt, and what comes in rounds. Hears of batches and iterators.

    Batches of workers that hold the program back come in bursts, one a worker. Short epochs begin
    anew, with new workers, every few steps. A stall of the program lets the loader fill its queue.
    """

    def __init__(self) -> None:
        self.fetches = 0
        self._ahead, self._workers = 0, 0
        self._epochs, self._in_whole_epochs = 0, 0

    def fetched(self, iterator: Any) -> None:
        """The program got a batch."""
        self.fetches += 1
        workers = getattr(iterator, "_num_workers", 0) or 0
        ahead = workers * (getattr(iterator, "_prefetch_factor", 0) or 0)
        self._ahead = min(max(self._ahead, ahead), MOST_DRAIN_STEPS)
        self._workers = min(max(self._workers, workers), MOST_ROUND_STEPS)

    def epoch_begins(self) -> None:
        """A loader made an iterator."""
        self._epochs += 1
        self._in_whole_epochs = self.fetches

    def drain_steps(self, stalled_ns: int, interval_ns: Sequence[int]) -> int:
        """Steps until a stall of so long is no longer felt: those whose batches were made in it.

        A loader that holds the program back makes one batch in the time of a mean step. One that
        does not had its queue full before.
        """
        recent = interval_ns[-RECENT_STEPS:]
        made = self._ahead
        if recent:
            made = min(made, stalled_ns * len(recent) // max(sum(recent), 1) + 1)
        return max(LEAST_DRAIN_STEPS, made + 1)

    def round_steps(self) -> int:
        """Steps that hold a batch of every worker, and the beginning of an epoch if it is short."""
        whole = self._epochs - 1
        epoch = self._in_whole_epochs // whole + 1 if whole > 0 else 0
        return max(self._workers, epoch) if epoch <= MOST_ROUND_STEPS else self._workers
