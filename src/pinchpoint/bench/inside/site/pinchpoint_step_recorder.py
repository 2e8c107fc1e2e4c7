"""Records when steps end, without a synchronisation and without changing the program.

A step ends where an optimizer's ``step`` returns, or where the program says so. With CUDA, an
event is recorded there on the current stream: the times between events are the periods between
completions, which is what a step takes, while the host may run far ahead. Everything is
written once, when the program ends. Standard library only, Python 3.8 and later; see
``pinchpoint.bench.inside``.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any, Callable

SCHEMA = "bench.inside/1"
FOLDER_VARIABLE = "PINCHPOINT_STEP_FOLDER"
MOST_MARKS = 1_000_000  # bounds memory; a longer run keeps its first million steps
_MARK = "mark"


class _Series:
    """The ends of the steps of one source."""

    def __init__(self) -> None:
        self.host_ns: list[int] = []
        self.events: list[Any] = []
        self.work: list[float | None] = []
        self.data_wait_ns: list[int] = []
        self.batches: list[int] = []
        self.frames: list[int | None] = []


class _Recorder:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.series: dict[str, _Series] = {}
        self.wait_ns = 0
        self.batches = 0
        self.batch_size: int | None = None
        self.problems: list[str] = []

    def mark(self, source: str, work: float | None = None) -> None:
        """A step of this source ends now."""
        series = self.series.setdefault(source, _Series())
        if os.getpid() != self.pid or len(series.host_ns) >= MOST_MARKS:
            return
        series.events.append(_cuda_event())
        series.host_ns.append(time.perf_counter_ns())
        series.work.append(work)
        series.data_wait_ns.append(self.wait_ns)
        series.batches.append(self.batches)
        series.frames.append(_compiled_frames())

    def write(self) -> None:
        """Put everything into one file of this process."""
        if os.getpid() != self.pid or not self.series:
            return
        torch = sys.modules.get("torch")
        document = {
            "schema": SCHEMA,
            "pid": self.pid,
            "rank": os.environ.get("RANK") or os.environ.get("LOCAL_RANK"),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "batch_size": self.batch_size,
            "series": {name: self._series(s) for name, s in self.series.items()},
            "peaks": self._try(_peaks, torch),
            "switches": self._try(_switches, torch),
            "problems": self.problems,
        }
        path = os.path.join(self.folder, "steps-%d.json" % self.pid)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(path + ".part", path)

    def _series(self, series: _Series) -> dict[str, Any]:
        return {
            "host_ns": series.host_ns,
            "device_ms": self._try(_between_events, series.events),
            "work": series.work,
            "data_wait_ns": series.data_wait_ns,
            "batches": series.batches,
            "frames": series.frames,
        }

    def _try(self, ask: Callable[[Any], Any], about: Any) -> Any:
        try:
            return ask(about)
        except Exception as error:
            self.note(ask.__name__.strip("_"), error)
            return None

    def note(self, where: str, error: Exception) -> None:
        """Keep a problem for the record; the program goes on."""
        self.problems.append(f"{where}: {type(error).__name__}: {error}"[:300])


def _cuda_event() -> Any:
    """An event on the current stream, or None where CUDA is not in use."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_events(events: list[Any]) -> list[float | None] | None:
    """Milliseconds between neighbours; None for a pair that lacks an event."""
    known = [e for e in events if e is not None]
    if not known:
        return None
    known[-1].synchronize()
    pairs = [(events[i], events[i + 1]) for i in range(len(events) - 1)]
    return [None if a is None or b is None else a.elapsed_time(b) for a, b in pairs]


def _compiled_frames() -> int | None:
    """How many frames the compiler has seen so far; None if it is not in use."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    try:
        return None if dynamo is None else int(dynamo.counters["frames"]["total"])
    except Exception:
        return None


def _peaks(torch: Any) -> dict[str, Any] | None:
    if torch is None or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    return {
        "torch_peak_allocated_bytes": stats.get("allocated_bytes.all.peak"),
        "torch_peak_reserved_bytes": stats.get("reserved_bytes.all.peak"),
        "allocator_retries": stats.get("num_alloc_retries"),
    }


def _switches(torch: Any) -> dict[str, Any] | None:
    if torch is None:
        return None
    return {
        "torch": str(torch.__version__),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch_num_threads": torch.get_num_threads(),
        "seed": torch.initial_seed(),
    }


def _hook_optimizers(module: Any, recorder: _Recorder) -> None:
    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.mark(f"optimizer {type(optimizer).__name__} {id(optimizer):x}")

    module.register_optimizer_step_post_hook(after_step)


def _hook_loaders(module: Any, recorder: _Recorder) -> None:
    kind = module._BaseDataLoaderIter
    original = kind.__next__

    def timed_next(self: Any) -> Any:
        begin = time.perf_counter_ns()
        try:
            batch = original(self)
        finally:
            recorder.wait_ns += time.perf_counter_ns() - begin
        recorder.batches += 1
        size = getattr(getattr(self, "_index_sampler", None), "batch_size", None)
        if isinstance(size, int):
            recorder.batch_size = size
        return batch

    kind.__next__ = timed_next


_HOOKS = {"torch.optim.optimizer": _hook_optimizers, "torch.utils.data.dataloader": _hook_loaders}


class _Finder(MetaPathFinder):
    """Lets the two modules load as always, and hooks them afterwards."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _HOOKS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookedLoader(spec.loader, self._recorder)
        return spec


class _HookedLoader(Loader):
    def __init__(self, inner: Any, recorder: _Recorder) -> None:
        self._inner, self._recorder = inner, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._inner.exec_module(module)
        try:
            _HOOKS[module.__name__](module, self._recorder)
        except Exception as error:
            self._recorder.note(module.__name__, error)


_active: _Recorder | None = None


def start() -> None:
    """Begin, if a folder for the result was named."""
    global _active
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or _active is not None:
        return
    _active = _Recorder(folder)
    sys.meta_path.insert(0, _Finder(_active))
    atexit.register(_write)


def _write() -> None:
    try:
        if _active is not None:
            _active.write()
    except Exception as error:
        sys.stderr.write(f"pinchpoint: steps were not written ({error})\n")


def mark(work: float | None = None) -> None:
    """A step of the program ends now; ``work`` units were done."""
    if _active is not None:
        _active.mark(_MARK, work)
