"""Reads what the recorder inside the program wrote, and chooses the series of steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.metrics import read_bounded
from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass

SCHEMA = "bench.inside/1"


@dataclass(frozen=True, eq=False)
class StepSeries:
    """The steps of one process: all arrays have one value a step, in order of time."""

    source: str  # "optimizer AdamW", "mark"
    clock: str  # cuda_event, host
    step_ms: NDArray[np.float64]
    end_host_ns: NDArray[np.int64]  # end of each step on the program's monotonic clock
    cpu_ms: NDArray[np.float64] | None  # CPU time of the process within each step
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


class _Document(msgspec.Struct):
    schema: str
    pid: int
    series: dict[str, _Series]
    rank: str | None = None
    batch_size: int | None = None
    peaks: dict[str, int | None] | None = None
    switches: dict[str, Any] | None = None
    problems: list[str] = []


def read_steps(folder: Path) -> StepSeries | None:
    """The steps of the process that matters: rank 0, else the one with the most steps.

    None if no process in the run marked two steps. UnreadableFile if a record is damaged.
    """
    documents = [_read(path) for path in sorted(folder.glob("steps-*.json"))]
    documents = [d for d in documents if _chosen(d) is not None]
    if not documents:
        return None
    return _series(max(documents, key=lambda d: (d.rank == "0", _most_marks(d))))


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


def _chosen(document: _Document) -> str | None:
    """Explicit marks before optimizers; of several optimizers the one that steps most often."""
    names = [n for n, s in document.series.items() if len(s.host_ns) >= 2]
    if not names:
        return None
    return max(names, key=lambda n: (n == "mark", len(document.series[n].host_ns)))


def _series(document: _Document) -> StepSeries:
    name = _chosen(document) or ""
    raw = document.series[name]
    host_ns = np.array(raw.host_ns, np.int64)
    clock, step_ms = "host", np.diff(host_ns) / 1e6
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
        data_wait_ns=_differences(raw.data_wait_ns),
        batches=_differences(raw.batches),
        work=None if any(w is None for w in work) else np.array(work, np.float64),
        compiled=np.diff(frames) > 0,
        batch_size=document.batch_size,
        peaks=document.peaks or {},
        switches=document.switches or {},
        problems=tuple(document.problems),
    )


def _differences(totals: list[int]) -> NDArray[np.int64]:
    values = np.array(totals, np.int64)
    return values[1:] - values[:-1]
