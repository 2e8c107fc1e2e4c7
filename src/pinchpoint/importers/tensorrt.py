"""``trtexec --exportProfile``: the layers of a TensorRT engine with their sums, no times.

A list: first how often the engine ran, then an object a layer. ``medianMs`` came with TensorRT 8.2.
"""

from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "TensorRT layers"
FILES = (".json", "trtexec --exportProfile")
READS: tuple[str, ...] = ("sums",)
NOT_READ = ""

_SIGN = regex(rb'\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}')
_FIELDS = {  # of a layer -> our column
    "timeMs": "time (ms)",
    "averageMs": "average (ms)",
    "medianMs": "median (ms)",
    "percentage": "share (%)",
}


def claims(path: Path, head: bytes) -> bool:
    """A list that begins with a number of runs, and times of layers in it."""
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
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="trtexec"),
        summaries=(SummaryTable(("layer", "runs", *fields.values()), rows),),
        health=health_table([], names),
        names=names.freeze(),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
