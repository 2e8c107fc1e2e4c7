"""Hooks of ``torch.utils.data``: how long the program waits for a batch, and what workers do."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.run_folder.layout import LOADER, write_json

WORKER_NOTE_NS = 500_000_000  # a worker writes its figures at most twice a second

Fetched = Callable[[int, int, Any], None]
Built = Callable[[int, Any], None]


def watch_consumer(module: Any, fetched: Fetched, built: Built) -> Callable[[], None]:
    """Time ``__next__`` and the start of iterators in this process; returns how to undo that.

    ``fetched(start_ns, end_ns, iterator)`` after each batch; ``built(duration_ns, loader)`` after
    an iterator was made, which is where worker processes start.
    """
    home_pid = os.getpid()
    iterator_class, loader_class = module._BaseDataLoaderIter, module.DataLoader
    next_batch, make_iterator = iterator_class.__next__, loader_class.__iter__

    def __next__(self: Any) -> Any:  # noqa: N807 - replaces the method of that name
        if os.getpid() != home_pid:
            return next_batch(self)
        start_ns = time.perf_counter_ns()
        batch = next_batch(self)
        fetched(start_ns, time.perf_counter_ns(), self)
        return batch

    def __iter__(self: Any) -> Any:  # noqa: N807
        start_ns = time.perf_counter_ns()
        iterator = make_iterator(self)
        if os.getpid() == home_pid:
            built(time.perf_counter_ns() - start_ns, self)
        return iterator

    def undo() -> None:
        iterator_class.__next__, loader_class.__iter__ = next_batch, make_iterator

    iterator_class.__next__, loader_class.__iter__ = __next__, __iter__
    return undo


def watch_workers(module: Any, folder: Path) -> None:
    """Time ``fetch`` in worker processes, and leave the figures in the run folder."""
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(module, name)
        fetcher.fetch = _timed(fetcher.fetch, folder)


def _timed(fetch: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    notes: dict[int, WorkerNotes] = {}

    def timed_fetch(self: Any, index: Any) -> Any:
        notes_here = notes.get(os.getpid())
        if notes_here is None:
            notes_here = notes[os.getpid()] = WorkerNotes(folder)
        if notes_here.worker is None:
            return fetch(self, index)
        start_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return fetch(self, index)
        finally:
            end_ns = time.perf_counter_ns()
            notes_here.fetched(start_ns, end_ns, time.thread_time_ns() - cpu_ns)

    return timed_fetch


class WorkerNotes:
    """Figures of one worker process; does nothing in a process that is no worker."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.data import get_worker_info

        self.worker = get_worker_info()
        self._path = folder / LOADER / f"worker.{os.getpid()}.json"
        self._first_ns = time.perf_counter_ns()
        self._written_ns = 0
        self._batches = self._busy_ns = self._longest_ns = self._cpu_ns = 0

    def fetched(self, start_ns: int, end_ns: int, cpu_ns: int) -> None:
        """One batch was prepared."""
        self._batches += 1
        self._busy_ns += end_ns - start_ns
        self._cpu_ns += cpu_ns
        self._longest_ns = max(self._longest_ns, end_ns - start_ns)
        if end_ns - self._written_ns > WORKER_NOTE_NS:
            self._written_ns = end_ns
            with contextlib.suppress(OSError):
                write_json(self._path, self._document(end_ns))

    def _document(self, now_ns: int) -> dict[str, Any]:
        worker = self.worker
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
        }


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
