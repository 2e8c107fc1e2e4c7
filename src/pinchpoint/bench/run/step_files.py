"""Reads what the recorder inside the program wrote, and chooses the series of steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.metrics import Work
from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.replacing import read_bounded

SCHEMA = "bench.inside/1"


@dataclass(frozen=True, eq=False)
class StepSeries:
    """The steps of one process: all arrays have one value a step, in order of time."""

    source: str  # "optimizer AdamW", "mark"
    clock: str  # cuda_event, host
    step_ms: NDArray[np.float64]
    end_host_ns: NDArray[np.int64]  # end of each step on the program's monotonic clock
    cpu_ms: NDArray[np.float64] | None  # CPU time of the process within each step
    own_ms: NDArray[np.float64] | None  # the step without waiting for a CPU
    instructions: NDArray[np.int64] | None  # of each step, outside of the kernel
    data_wait_ns: NDArray[np.int64]  # waited for data within each step
    batches: NDArray[np.int64]
    work: NDArray[np.float64] | None  # as marked by the program
    compiled: NDArray[np.bool_]  # a compiler was at work within the step
    batch_size: int | None
    peaks: Mapping[str, int | None]
    switches: Mapping[str, Any]
    problems: tuple[str, ...]


class _Series(msgspec.Struct):
    host_ns: list[int]
    work: list[float | None]
    data_wait_ns: list[int]
    batches: list[int]
    frames: list[int | None]
    device_ms: list[float | None] | None = None
    cpu_ns: list[int] = []
    queue_ns: list[int | None] = []
    thread_ns: list[int] = []
    busiest_ns: list[int | None] = []  # of each step
    others_queue_ns: list[int | None] = []
    instructions: list[int | None] = []


class _Work(msgspec.Struct):
    wall_ns: int
    cpu_ns: int
    imports_ns: int
    queue_ns: int | None = None


class _Document(msgspec.Struct):
    schema: str
    pid: int
    series: dict[str, _Series]
    rank: str | None = None
    batch_size: int | None = None
    peaks: dict[str, int | None] | None = None
    switches: dict[str, Any] | None = None
    problems: list[str] = []
    work: _Work | None = None
    ended_after: int | None = None


@dataclass(frozen=True, eq=False)
class Inside:
    """What the hooks inside the program wrote."""

    steps: StepSeries | None  # None: no process marked two steps
    work: Work | None  # of the process that ran longest; None: it was killed, or is not Python
    ended_after: int | None = None  # so many steps, by the hooks


def read_inside(folder: Path) -> Inside:
    """Of the process that matters: its steps are those of rank 0, else of the one with the most.

    UnreadableFile if a record is damaged.
    """
    documents = [_read(path) for path in sorted(folder.glob("steps-*.json"))]
    stepping = [d for d in documents if _chosen(d) is not None]
    chosen = max(stepping, key=lambda d: (d.rank == "0", _most_marks(d)), default=None)
    longest = max((d.work for d in documents if d.work), key=lambda w: w.wall_ns, default=None)
    return Inside(
        None if chosen is None else _series(chosen),
        None if longest is None else _work(longest),
        None if chosen is None else chosen.ended_after,
    )


def _work(raw: _Work) -> Work:
    own_ns = None if raw.queue_ns is None else max(raw.wall_ns - raw.queue_ns, 0)
    return Work(
        wall_s=raw.wall_ns / 1e9,
        own_s=None if own_ns is None else own_ns / 1e9,
        cpu_s=raw.cpu_ns / 1e9,
        imports_s=raw.imports_ns / 1e9,
    )


def _read(path: Path) -> _Document:
    try:
        document = msgspec.json.decode(read_bounded(path), type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(f"{path}: {error}", hint="measure again") from None
    if document.schema != SCHEMA:
        raise UnreadableFile(f"{path}: schema {document.schema!r}", hint="measure again")
    return document


def _most_marks(document: _Document) -> int:
    return max((len(s.host_ns) for s in document.series.values()), default=0)


# What says best where a step ends, first: what the program or its user says, then what was seen.
_KINDS = ("mark", "function", "optimizer", "graph", "model")


def _chosen(document: _Document) -> str | None:
    """The series that divides the program into steps: of one kind the one with the most.

    Replays of a graph go before an optimizer that only steps before them: its later steps are in
    the graph.
    """
    names = [n for n, s in document.series.items() if len(s.host_ns) >= 2]
    best = {}
    for name in sorted(names, key=lambda n: len(document.series[n].host_ns)):
        best[name.split()[0]] = name
    optimizer, graph = best.get("optimizer"), best.get("graph")
    if optimizer and graph and "mark" not in best and "function" not in best:
        steps, replays = document.series[optimizer].host_ns, document.series[graph].host_ns
        if steps[-1] < replays[len(replays) // 2]:
            return graph
    return next((best[kind] for kind in _KINDS if kind in best), None)


def _series(document: _Document) -> StepSeries:
    name = _chosen(document) or ""
    raw = document.series[name]
    host_ns = np.array(raw.host_ns, np.int64)
    clock, step_ms = "host", np.diff(host_ns) / 1e6
    own_ms = _own_ms(raw, step_ms)
    if raw.device_ms and all(ms is not None for ms in raw.device_ms):
        clock, step_ms = "cuda_event", np.array(raw.device_ms, np.float64)
    work = raw.work[1:]
    frames = np.array([f or 0 for f in raw.frames], np.int64)
    return StepSeries(
        source=" ".join(name.split()[:2]),
        clock=clock,
        step_ms=step_ms,
        end_host_ns=host_ns[1:],
        cpu_ms=_differences(raw.cpu_ns) / 1e6 if len(raw.cpu_ns) == len(host_ns) else None,
        own_ms=own_ms if clock == "host" else None,
        instructions=_known_differences(raw.instructions, len(host_ns)),
        data_wait_ns=_differences(raw.data_wait_ns),
        batches=_differences(raw.batches),
        work=None if any(w is None for w in work) else np.array(work, np.float64),
        compiled=np.diff(frames) > 0,
        batch_size=document.batch_size,
        peaks=document.peaks or {},
        switches=document.switches or {},
        problems=tuple(document.problems),
    )


def _own_ms(raw: _Series, step_ms: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Each step without waiting for a CPU: of its own thread, and, where this one slept meanwhile,
    of the others that it waited for; never less than the busiest of them ran. That is exact where
    one thread works, or one at a time. Where threads share each piece of work, what is left is what
    the busiest of them computes.
    """
    queued = _known_differences(raw.queue_ns, len(step_ms) + 1)
    if queued is None:
        return None
    alone: NDArray[np.float64] = np.maximum(step_ms - queued / 1e6, 0)
    busiest, waited = raw.busiest_ns[1:], raw.others_queue_ns[1:]
    if len(raw.thread_ns) != len(step_ms) + 1 or len(busiest) != len(step_ms) or None in busiest:
        return alone
    ran_ms = _differences(raw.thread_ns) / 1e6
    slept_ms = np.maximum(alone - ran_ms - np.array(waited, np.float64) / 1e6, 0)
    return np.maximum(np.minimum(ran_ms + slept_ms, alone), np.array(busiest, np.float64) / 1e6)


def _differences(totals: list[int]) -> NDArray[np.int64]:
    values = np.array(totals, np.int64)
    return values[1:] - values[:-1]


def _known_differences(totals: list[int | None], count: int) -> NDArray[np.int64] | None:
    known = [total for total in totals if total is not None]
    return _differences(known) if len(known) == count else None
