"""``NCCL_INSPECTOR``: a line of JSON for each collective that NCCL's profiler plugin timed.

Sums by kind and size: the lines tell when they were written, not when the collective ran (only
verbose ones do), and one file is of one communicator of one rank.
"""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "NCCL inspector"
FILES = (".log .jsonl", "NCCL's inspector (NCCL_INSPECTOR_ENABLE=1)")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "traces of single channels (verbose)"

_SIGN = regex(rb'\s*\{\s*"header"\s*:\s*\{[^{}]*"n_?ranks"')
_WORK = ("coll_perf", "p2p_perf")
_KEYS = ("coll", "p2p")  # how their fields begin
_MOST_KINDS = 10_000  # of collective and size; a job has some dozens
_LARGEST = 1e15  # microseconds, bytes; sums of millions of such are finite
_COLUMNS = ("collective", "bytes", "count", "median (µs)", "max (µs)", "GB/s on the bus")


def claims(path: Path, head: bytes) -> bool:
    """A first line with a header that names ranks, and figures behind it."""
    return _SIGN.match(head) is not None and any(key.encode() in head for key in _WORK)


def read(path: Path) -> Trace:
    """Each kind and size, most time first; UnreadableFile where no line has figures."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    rank: int | None = None
    ranks: int | None = None
    cut = 0
    for line in lines(path):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            cut += 1
            continue
        header = one.get("header") if isinstance(one, dict) else None
        if isinstance(header, dict):
            rank = _whole(header.get("rank")) if rank is None else rank
            ranks = _whole(header.get("n_ranks", header.get("nranks"))) if ranks is None else ranks
        for kind, size, us, bus in _figures(one):
            if (kind, size) in found or len(found) < _MOST_KINDS:
                found.setdefault((kind, size), []).append((us, bus))
    if not found:
        raise UnreadableFile(
            f"{path}: NCCL's inspector, and no collective with its time",
            hint="let the program run on, or smaller ones count too:"
            " NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0",
        )
    names = Names()
    of = f"rank {rank} of {ranks}" if rank is not None and ranks is not None else ""
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, bool(cut), recorder="NCCL"),
        summaries=(SummaryTable(_COLUMNS, _rows(found), of),),
        health=health_table([Fact("rows-cut", cut)] if cut else [], names),
        names=names.freeze(),
    )


def _figures(one: Any) -> list[tuple[str, int, float, float]]:
    if not isinstance(one, dict):
        return []
    found = []
    for part, key in zip(_WORK, _KEYS, strict=True):
        said = one.get(part)
        if not isinstance(said, dict):
            continue
        us = _number(said.get(f"{key}_exec_time_us"))
        size = _whole(said.get(f"{key}_msg_size_bytes"))
        bus = _number(said.get(f"{key}_busbw_gbs"))
        if us is not None and size is not None:
            found.append((str(said.get(key, part))[:_LONGEST], size, us, bus or 0.0))
    return found


_LONGEST = 80  # characters of a name


def _rows(found: dict[tuple[str, int], list[tuple[float, float]]]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for (kind, size), values in found.items():
        us, bus = np.array(values).T
        row = (
            kind,
            f"{size:,}",
            f"{len(us):,}",
            *(_shown(float(v)) for v in (np.median(us), us.max(), np.median(bus))),
        )
        rows.append((float(us.sum()), row))
    return tuple(row for _, row in sorted(rows, key=lambda each: -each[0]))


def _shown(value: float) -> str:
    return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def _number(value: Any) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if sound and 0 <= value < _LARGEST else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
