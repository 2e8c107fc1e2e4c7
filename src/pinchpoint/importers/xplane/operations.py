"""What XLA's profiles say of a compiled operation, in a protocol buffer or as JSON alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.trace import TABLES, Names, Table, empty_table, table
from pinchpoint.trace.arrays import Array, Mask

# ------------------------------------------------------------------------------------------------
# Tables from rows, for formats whose events are few enough to be looked at one by one.


Row = dict[str, Any]


def table_of_rows(name: str, rows: list[Row], names: Names) -> Table:
    """The rows, put in order, as the declared table; what a row lacks is null."""
    if not rows:
        return empty_table(name)
    if "time_ns" in TABLES[name]:
        rows.sort(key=lambda r: r["time_ns"])
    else:
        rows.sort(key=lambda r: (r["start_ns"], -r["duration_ns"]))
    columns, masks = {}, {}
    for column, spec in TABLES[name].items():
        values: Sequence[Any] = [row.get(column) for row in rows]
        holes = values.count(None)
        if spec.nullable and holes == len(rows):
            continue
        if holes:
            masks[column] = np.array([value is None for value in values])
        if spec.refers_to == "names":
            values = [None if v is None else names.id_of(v) for v in values]
        if holes:
            values = [0 if v is None else v for v in values]
        columns[column] = np.array(values, spec.dtype)
    return table(name, columns, masks)


def table_of_kinds(
    name: str,
    kinds: list[Row],
    kind: Array,
    own: Sequence[str],
    own_of: Callable[[str], tuple[Array, Mask]],
    names: Names,
) -> Table:
    """The same for many rows of few ``kinds``: which each row is, and columns that are its ``own``.

    ``own_of`` gives such a column, and where it has no value; its rows are those of ``kind``.
    """
    if not len(kind):
        return empty_table(name)
    order = _order(own_of("start_ns")[0], own_of("duration_ns")[0])
    columns, masks = {}, {}
    for column, spec in TABLES[name].items():
        if column in own:
            values, holes = (cells[order] for cells in own_of(column))
        else:
            said: Sequence[Any] = [row.get(column) for row in kinds]
            if spec.refers_to == "names":
                said = [None if v is None else names.id_of(v) for v in said]
            lacks = np.array([value is None for value in said])
            if lacks.all() and spec.nullable:
                continue
            filled = np.array([0 if v is None else v for v in said], spec.dtype)
            values, holes = filled[kind[order]], lacks[kind[order]]
        if spec.nullable and holes.all():
            continue
        if holes.any():
            masks[column] = holes
            values = np.where(holes, 0, values)
        columns[column] = values.astype(spec.dtype, copy=False)
    return table(name, columns, masks)


def _order(start_ns: Array, duration_ns: Array) -> Array | slice:
    """By start, the longer ones first; nothing to be done if they are in this order."""
    later, longer = np.diff(start_ns), np.diff(duration_ns)
    if ((later > 0) | ((later == 0) & (longer <= 0))).all():
        return slice(None)
    return np.lexsort((-duration_ns, start_ns))


# ------------------------------------------------------------------------------------------------
# What XLA's profiles say of a compiled operation, in a protocol buffer or as JSON alike.


SIGN = "hlo_op"
LARGEST = 1 << 62  # sums of two fit into 64 bits


def compiled_row(
    facts: Mapping[str, Any], start_ns: int, duration_ns: int, device: int | None, op: str = ""
) -> dict[str, Any] | None:
    """A row of ``compiled_ops``; None for an event that is no compiled operation.

    ``op`` names operations that are such by their place: lines of a TPU give no ``hlo_op``.
    """
    name = _text(facts.get(SIGN)) or op
    if not name:
        return None
    return {
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "op": name,
        "module": _text(facts.get("hlo_module")),
        "program": facts.get("program_id"),
        "category": _text(facts.get("hlo_category")),
        "source": said_of(_text(facts.get("source")), _text(facts.get("tf_op"))),
        "device": device,
        "flops": _count(facts.get("flops")) or _count(facts.get("model_flops")),
        "bytes": _count(facts.get("bytes_accessed")),
    }


def said_of(place: str | None, scope: str | None) -> str | None:
    """``model.py:41, jit(step)/dot``: the line first, where it is known."""
    return ", ".join(part for part in (place, scope) if part) or None


def _text(value: Any) -> str | None:
    """Frameworks write ``XlaModule:`` and the like where they know nothing more."""
    text = str(value).rstrip(":") if value else ""
    return None if text in ("", "XlaModule") else text


def _count(value: Any) -> int | None:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return None
    number = int(text)
    return number if 0 < number < LARGEST else None
