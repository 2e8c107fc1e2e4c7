"""Samples of counters (``ph`` C): one value for each number among the arguments of an event."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.reading.document import value_of
from pinchpoint.importers.kineto.reading.fields import ABSENT, ARGUMENTS, NULL, PLACE, Lane
from pinchpoint.importers.kineto.reading.lenient import value_text
from pinchpoint.importers.kineto.reading.rare import device_in
from pinchpoint.trace import Names, Table, table

_OBJECTS = msgspec.json.Decoder(list[dict[str, Any]])


def counter_table(columns: Columns, names: Names, zero_ns: int, rank: int | None) -> Table | None:
    """The counters in order of time, or None if the file has none."""
    if not columns.rows(Lane.COUNTER):
        return None
    taken = {c: columns.take(Lane.COUNTER, c) for c in ("start", "name", PLACE, ARGUMENTS)}
    rows = np.flatnonzero((taken["start"] != NULL) & (taken[ARGUMENTS] != ABSENT))
    rows = rows[np.argsort(taken["start"][rows], kind="stable")]
    said = _said(columns, np.unique(taken[ARGUMENTS][rows]).tolist())
    label: dict[tuple[int, str], int] = {}  # of a name and a key: position in names
    row_of, name_of, values = [], [], []
    given = (taken["name"][rows].tolist(), taken[ARGUMENTS][rows].tolist())
    for row, name, text in zip(rows.tolist(), *given, strict=True):
        for key, value in said[text].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                if (name, key) not in label:
                    label[name, key] = names.id_of(_label(columns, name, key))
                row_of.append(row)
                name_of.append(label[name, key])
                values.append(float(value))
    if not row_of:
        return None
    process = [device_in(value_text(process or b"")) for process, _ in columns.places]
    device = np.array([ABSENT if d is None else d for d in process])[taken[PLACE][row_of]]
    found: dict[str, Any] = {
        "time_ns": taken["start"][row_of] - zero_ns,
        "name": np.array(name_of, np.int32),
        "value": np.array(values),
        "device": np.maximum(device, 0).astype(np.int32),
    }
    if rank is not None:
        found["rank"] = np.full(len(row_of), rank, np.int32)
    return table("counters", found, {"device": device == ABSENT})


def _label(columns: Columns, name: int, key: str) -> str:
    counter = "" if name == ABSENT else value_text(columns.texts[name])
    return counter if key in ("value", counter) else f"{counter}: {key}"


def _said(columns: Columns, positions: list[int]) -> dict[int, Mapping[str, Any]]:
    """The arguments by the position of their text; decoded at once, which few texts prevent."""
    texts = [columns.texts[position] for position in positions]
    try:
        found: list[Any] = _OBJECTS.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.MsgspecError, RecursionError, ValueError):
        found = [value_of(text) for text in texts]
    objects = (one if isinstance(one, dict) else {} for one in found)
    return dict(zip(positions, objects, strict=True))
