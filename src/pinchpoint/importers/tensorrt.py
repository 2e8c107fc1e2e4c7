"""``trtexec --exportProfile`` and ``--exportTimes``: sums of a TensorRT engine.

Layers: first how often the engine ran, then an object a layer. ``medianMs`` came with TensorRT 8.2.
Times: an object a run, of copies in and out and of the engine as one piece, which names no layer.
"""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "TensorRT layers"
FILES = (".json", "trtexec --exportProfile, --exportTimes")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "when each run began (--exportTimes)"

_SIGN = regex(rb'\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}')
_TIMES_SIGN = regex(rb'\s*\[\s*\{\s*"start(Enq|In|Compute)Ms"')
_TIMES = {  # of a run -> what it is
    "inMs": "copies to the device",
    "enqMs": "host enqueues",
    "computeMs": "the engine on the device",
    "outMs": "copies from the device",
    "latencyMs": "latency",
    "endToEndMs": "end to end",
}
_PERCENTILES = (50, 90, 99)  # as trtexec prints them
_LARGEST_MS = 1e12  # thirty years; sums of millions of such are finite
_FIELDS = {  # of a layer -> our column
    "timeMs": "time (ms)",
    "averageMs": "average (ms)",
    "medianMs": "median (ms)",
    "percentage": "share (%)",
}


def claims(path: Path, head: bytes) -> bool:
    """A list of runs with times, or one that begins with their number and has layers."""
    if _TIMES_SIGN.match(head):
        return True
    return _SIGN.match(head) is not None and (b'"averageMs"' in head or b'"timeMs"' in head)


def read(path: Path) -> Trace:
    """The layers, most time first; UnreadableFile where there are none."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        text = plain.read_bytes()
    try:
        listed: list[Any] = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: cut off or broken JSON ({error})",
            hint="copy it again, or write it again: trtexec --exportProfile=profile.json",
        ) from None
    if isinstance(listed, list) and _TIMES_SIGN.match(text):
        return _trace(path, _of_times(path, listed))
    layers = [
        each
        for each in listed[1:]
        if isinstance(each, dict) and all(_is_number(each.get(f, 0)) for f in _FIELDS)
    ]
    if not any(layer.get("timeMs") for layer in layers):
        raise UnreadableFile(
            f"{path}: a profile of TensorRT in which no layer took time",
            hint="profile a run: trtexec --loadEngine=ENGINE --dumpProfile"
            " --separateProfileRun --exportProfile=profile.json",
        )
    layers.sort(key=lambda layer: -layer.get("timeMs", 0))
    fields = {f: column for f, column in _FIELDS.items() if any(f in layer for layer in layers)}
    runs = str(listed[0]["count"])
    rows = tuple(
        (str(layer.get("name", "")), runs, *(_shown(layer.get(field)) for field in fields))
        for layer in layers
    )
    return _trace(path, (SummaryTable(("layer", "runs", *fields.values()), rows),))


def _trace(path: Path, tables: tuple[SummaryTable, ...]) -> Trace:
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="trtexec"),
        summaries=tables,
        health=health_table([], names),
        names=names.freeze(),
    )


def _of_times(path: Path, listed: list[Any]) -> tuple[SummaryTable, ...]:
    """How long each part of a run took, and how much of the time the engine ran."""
    runs = [run for run in listed if isinstance(run, dict)]
    rows = []
    for field, what in _TIMES.items():
        held = np.array([run[field] for run in runs if _is_time(run.get(field))], np.float64)
        if len(held):
            figures = (*np.percentile(held, _PERCENTILES), held.mean(), held.max())
            rows.append((what, f"{len(held):,}", *(_shown(float(f)) for f in figures)))
    if not rows:
        raise UnreadableFile(
            f"{path}: times of TensorRT without one run",
            hint="let it run: trtexec --loadEngine=ENGINE --exportTimes=times.json",
        )
    columns = ("part of a run", "runs", "median (ms)", "p90", "p99", "mean", "max")
    spans = [
        (run["startComputeMs"], run["endComputeMs"])
        for run in runs
        if _is_time(run.get("startComputeMs")) and _is_time(run.get("endComputeMs"))
    ]
    tables = (SummaryTable(columns, tuple(rows)),)
    span = max((end for _, end in spans), default=0) - min((s for s, _ in spans), default=0)
    if span <= 0:
        return tables
    busy = _covered(sorted(spans)) / span
    return (
        *tables,
        SummaryTable(
            ("from the first run to the last", "value"),
            (
                ("lasts (ms)", _shown(span)),
                ("the engine runs (%)", _shown(100 * busy)),
                ("runs each second", _shown(len(spans) / span * 1e3)),
            ),
        ),
    )


def _covered(spans: list[tuple[float, float]]) -> float:
    """How much of the time at least one of the spans lies in, which are sorted."""
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value < _LARGEST_MS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
