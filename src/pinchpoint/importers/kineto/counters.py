"""Samples of counters (``ph`` C): one value for each number among the arguments of an event."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.reading.document import value_of
from pinchpoint.importers.kineto.reading.fields import ABSENT, ARGUMENTS, NULL, PLACE, Lane
from pinchpoint.importers.kineto.reading.lenient import value_text
from pinchpoint.importers.kineto.reading.rare import device_in
from pinchpoint.trace import Names, Table, table
from pinchpoint.trace.arrays import Array, rows_in_order

_OBJECTS = msgspec.json.Decoder(list[dict[str, Any]])


def counter_table(columns: Columns, names: Names, zero_ns: int, rank: int | None) -> Table | None:
    """The counters in order of time, or None if the file has none."""
    if not columns.rows(Lane.COUNTER):
        return None
    taken = {c: columns.take(Lane.COUNTER, c) for c in ("start", "name", PLACE, ARGUMENTS)}
    rows = np.flatnonzero((taken["start"] != NULL) & (taken[ARGUMENTS] != ABSENT))
    rows = rows[np.argsort(taken["start"][rows], kind="stable")]
    used, text = np.unique(taken[ARGUMENTS][rows], return_inverse=True)
    said = _numbers(columns, used.tolist())
    row_of, sample = _each_sample(rows, text, said)
    if not len(row_of):
        return None
    distinct, which = rows_in_order(taken["name"][row_of].astype(np.int64), said.key[sample])
    labels = [_label(columns, name, said.keys[key]) for name, key in distinct.tolist()]
    name_of = np.array([names.id_of(label) for label in labels], np.int32)[which]
    process = [device_in(value_text(process or b"")) for process, _ in columns.places]
    device = np.array([ABSENT if d is None else d for d in process])[taken[PLACE][row_of]]
    found: dict[str, Any] = {
        "time_ns": taken["start"][row_of] - zero_ns,
        "name": name_of,
        "value": said.value[sample],
        "device": np.maximum(device, 0).astype(np.int32),
    }
    if rank is not None:
        found["rank"] = np.full(len(row_of), rank, np.int32)
    return table("counters", found, {"device": device == ABSENT})


def _label(columns: Columns, name: int, key: str) -> str:
    counter = "" if name == ABSENT else value_text(columns.texts[name])
    return counter if key in ("value", counter) else f"{counter}: {key}"


class _Numbers(NamedTuple):
    """The numbers among the arguments, of one text after another."""

    keys: list[str]
    of_text: Array  # how many each has
    key: Array  # of each number: position in ``keys``
    value: Array


def _each_sample(rows: Array, text: Array, said: _Numbers) -> tuple[Array, Array]:
    """The row of each sample and its position in ``said``, in order of rows."""
    count = said.of_text[text]
    first = np.cumsum(said.of_text) - said.of_text
    before = np.cumsum(count) - count
    at = np.arange(count.sum()) + np.repeat(first[text] - before, count)
    return np.repeat(rows, count), at


def _numbers(columns: Columns, positions: list[int]) -> _Numbers:
    """What the texts at these positions say."""
    said = _said(columns, positions)
    keys: dict[str, int] = {}
    values = [value for one in said for value in one.values()]
    number = np.array([type(value) in (int, float) for value in values], np.bool_)
    text = np.repeat(np.arange(len(said)), [len(one) for one in said])[number]
    key = np.array([keys.setdefault(k, len(keys)) for one in said for k in one], np.int64)
    value = np.array([float(v) for v, is_one in zip(values, number, strict=True) if is_one])
    return _Numbers(list(keys), np.bincount(text, minlength=len(said)), key[number], value)


def _said(columns: Columns, positions: list[int]) -> list[Mapping[str, Any]]:
    """The arguments in the texts; decoded at once, which few texts prevent."""
    texts = [columns.texts[position] for position in positions]
    try:
        found: list[Any] = _OBJECTS.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.MsgspecError, RecursionError, ValueError):
        found = [value_of(text) for text in texts]
    return [one if isinstance(one, dict) else {} for one in found]
