"""Records when steps end, without a synchronisation and without changing the program.

A step ends where the program says so, where a function that was named returns, where an
optimizer's ``step`` returns, where a CUDA graph was replayed, or a model called; which of them is
the step is chosen afterwards. With CUDA, an event is recorded there on the current stream: the
times between events are the periods between completions, which is what a step takes, while the host
may run far ahead. Everything is written once, when the program ends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from typing import Any, Callable

from . import END_VARIABLE, FOLDER_VARIABLE, FUNCTION_VARIABLE, LINES_VARIABLE
from .after_function import after_function
from .hooks import BATCH_FETCHED, GRAPH_REPLAYED, MODEL_CALLED, OPTIMIZER_STEPPED
from .meeting import meeting
from .quiet import (
    Threads,
    Work,
    at_once,
    between,
    instruction_counter,
    other_threads,
    queue_clock,
)

SCHEMA = "bench.inside/1"
MOST_MARKS = 1_000_000  # bounds memory; a longer run keeps its first million steps
_MARK = "mark"
_ENOUGH = 2  # steps of an optimizer: calls of a model are no steps of this program


_KINDS = ("mark", "function", "optimizer", "graph", "model")  # what divides a program best, first
_LEAST_STEPS = 30  # a third of them is warm-up on a busy machine, and twenty give an interval
_LEAST_SLOW_STEPS = 15  # where they take twice their time: more pairs say more than longer runs
_FIRST_STEPS = 5  # compile and allocate: their seconds are not those of the others
_GRACE_S = 5.0  # for threads of the program, once its main thread is done


class _Series:
    """The ends of the steps of one source."""

    def __init__(self) -> None:
        self.host_ns: list[int] = []
        self.cpu_ns: list[int] = []  # of all threads of the process
        self.queue_ns: list[int | None] = []  # that this thread waited for a CPU
        self.thread_ns: list[int] = []  # CPU time of this thread
        self.busiest_ns: list[int | None] = []  # of the busiest other thread, in each step
        self.others_queue_ns: list[int | None] = []  # that the others waited for a CPU, all of them
        self.others: Threads | None = None  # totals at the last mark
        self.instructions: list[int | None] = []
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
        self.work = Work()
        self._queue_ns: Callable[[], int | None] | None = None  # of the first thread with a step
        self._others = other_threads()
        self._instructions = instruction_counter()
        self._meet = meeting()
        self._lines = _line_watch()
        self._ignore_models: Callable[[], None] | None = None
        self._steps = 0  # of optimizers
        self._end_after = os.environ.get(END_VARIABLE)
        self.ended_after: int | None = None  # so many steps

    def begin(self, function: str | None) -> None:
        """Listen to everything that may be a step."""
        OPTIMIZER_STEPPED.listen(self.stepped, self.note)
        BATCH_FETCHED.listen(self.waited, self.note)
        GRAPH_REPLAYED.listen(self.replayed, self.note)
        self._ignore_models = MODEL_CALLED.listen(self.called, self.note)
        if function:
            after_function(function, lambda: self.mark(f"function {function}"), self.note)
        self.work.watch_imports()

    def mark(self, source: str, work: float | None = None) -> None:
        """A step of this source ends now."""
        series = self.series.setdefault(source, _Series())
        if os.getpid() != self.pid or len(series.host_ns) >= MOST_MARKS:
            return
        series.events.append(_cuda_event())
        self._meet()
        self._queue_ns = self._queue_ns or queue_clock()
        host_ns, (cpu_ns, thread_ns, queue_ns, others) = at_once(self._totals)
        series.host_ns.append(host_ns)
        series.cpu_ns.append(cpu_ns)
        series.thread_ns.append(thread_ns)
        series.queue_ns.append(queue_ns)
        busiest_ns, waited_ns = between(series.others, others)
        series.busiest_ns.append(busiest_ns)
        series.others_queue_ns.append(waited_ns)
        series.others = others
        series.instructions.append(self._instructions())
        series.work.append(work)
        series.data_wait_ns.append(self.wait_ns)
        series.batches.append(self.batches)
        series.frames.append(_compiled_frames())
        if self._lines is not None:
            self._lines.marked()
        if self._end_after is not None and self._is_enough(source, series.host_ns):
            self._end(len(series.host_ns) - 1)

    def _is_enough(self, source: str, host_ns: list[int]) -> bool:
        """Of the series that divides the program best, so far."""
        best = min((name.split()[0] for name in self.series), key=_KINDS.index)
        steps = len(host_ns) - 1
        if source.split()[0] != best or self._end_after is None:
            return False
        asked, _, at_least = self._end_after.partition(",")
        if not asked.endswith("s"):
            return steps >= int(asked)
        if os.environ.get("WORLD_SIZE", "1") != "1":
            return False  # the ranks would not agree on the step
        seconds = (host_ns[-1] - host_ns[min(_FIRST_STEPS, steps)]) / 1e9
        wanted = float(asked[:-1])
        least = _LEAST_SLOW_STEPS if seconds >= 2 * wanted else _LEAST_STEPS
        return steps >= max(least, int(at_least or 0)) and seconds >= wanted

    def _end(self, steps: int) -> None:
        """As the program itself would: what it left to do at its end is done."""
        if threading.current_thread() is not threading.main_thread():
            return  # ends a thread, not the program
        if self.ended_after is None:
            threading.Thread(target=_end_surely, daemon=True).start()
        self.ended_after = steps
        raise SystemExit(0)

    def _totals(self) -> tuple[int, int, int | None, Threads | None]:
        """CPU time of the process and of this thread, how long it has waited for a CPU; others."""
        queue_ns = None if self._queue_ns is None else self._queue_ns()
        return time.process_time_ns(), time.thread_time_ns(), queue_ns, self._others()

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made its step."""
        self.mark(f"optimizer {type(optimizer).__name__} {id(optimizer):x}")
        self._steps += 1
        if self._steps >= _ENOUGH and self._ignore_models is not None:
            self._ignore_models()
            self._ignore_models = None

    def replayed(self, graph: Any) -> None:
        """A CUDA graph was launched."""
        self.mark(f"graph replay {id(graph):x}")

    def called(self, model: Any) -> None:
        """A module was called, and not by another module."""
        if next(model.parameters(), None) is not None:
            self.mark(f"model {type(model).__name__} {id(model):x}")

    def waited(self, start_ns: int, end_ns: int, iterator: Any, got: bool) -> None:
        """The program waited for a batch, and ``got`` one or came to the end of its loader."""
        self.wait_ns += end_ns - start_ns
        if not got:
            return
        self.batches += 1
        size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        if isinstance(size, int):
            self.batch_size = size

    def write(self) -> None:
        """Put everything into one file of this process."""
        if os.getpid() != self.pid:
            return
        torch = sys.modules.get("torch")
        document = {
            "schema": SCHEMA,
            "pid": self.pid,
            "rank": os.environ.get("RANK") or os.environ.get("LOCAL_RANK"),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "batch_size": self.batch_size,
            "work": self.work.so_far(),
            "ended_after": self.ended_after,
            "series": {name: self._series(s) for name, s in self.series.items()},
            "peaks": self._try(_peaks, torch),
            "switches": self._try(_switches, torch),
            "problems": self.problems,
        }
        if self._lines is not None:
            document["lines"] = self._lines.document()
        path = os.path.join(self.folder, "steps-%d.json" % self.pid)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(path + ".part", path)

    def _series(self, series: _Series) -> dict[str, Any]:
        return {
            "host_ns": series.host_ns,
            "cpu_ns": series.cpu_ns,
            "queue_ns": series.queue_ns,
            "thread_ns": series.thread_ns,
            "busiest_ns": series.busiest_ns,
            "others_queue_ns": series.others_queue_ns,
            "instructions": series.instructions,
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


def _line_watch() -> Any:
    """Who looks at lines, if somebody asks for some; else nothing of it is imported."""
    if not os.environ.get(LINES_VARIABLE):
        return None
    from .line_watch import asked_for

    return asked_for()


def _end_surely() -> None:
    """A thread that the program would have ended, and did not come to, may keep it for ever."""
    main = threading.main_thread()
    while main.is_alive():
        time.sleep(0.1)
    time.sleep(_GRACE_S)
    _write()
    os._exit(0)


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


_active: _Recorder | None = None


def start() -> None:
    """Begin, if a folder for the result was named."""
    global _active
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or _active is not None:
        return
    _active = _Recorder(folder)
    _active.begin(os.environ.get(FUNCTION_VARIABLE))
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
