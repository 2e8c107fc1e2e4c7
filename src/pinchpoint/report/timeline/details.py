"""What else is recorded of an event: its other arguments, and the source line it belongs to.

Launches repeat, so that there are few distinct sets of arguments; an event has the number of one.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import quantity
from pinchpoint.report.timeline.kinds import Numbers
from pinchpoint.trace import MemoryKind, Table, Trace

MOST_SETS = 10_000  # of arguments of a table, the most frequent ones; some 100 kB, packed
VALUE_LIMIT = 400  # characters of one argument

_TEXTS = {
    "grid": "grid",
    "block": "block",
    "collective": "collective",
    "collective_args": "collective arguments",
    "shapes": "shapes",
    "dtypes": "types",
    "strides": "strides",
    "values": "scalars",
}
_NUMBERS = {
    "registers": ("registers a thread", ""),
    "shared_bytes": ("shared memory a block", "bytes"),
    "occupancy_percent": ("occupancy, estimated", "%"),
    "bytes": ("moved", "bytes"),
    "graph_node": ("node of the graph", ""),
}
_MEMORY = {"from_memory": "from", "to_memory": "to"}
_OF = {
    "device_ops": (
        "grid", "block", "registers", "shared_bytes", "occupancy_percent", "bytes",
        "from_memory", "to_memory", "collective", "collective_args", "graph_node",
    ),
    "host_ops": ("shapes", "dtypes", "strides", "values"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Details:
    """``number`` of each asked row: 0 for no arguments, else one more than a position in ``sets``.

    Where there are too many sets, the last one says so in place of all the others.
    """

    number: Numbers
    sets: tuple[dict[str, str], ...]


def details(trace: Trace, row: Numbers) -> Details:
    """Of rows of device_ops, host_ops and api_calls, one after the other."""
    number, first = np.zeros(len(row), np.int64), 0
    sets: list[dict[str, str]] = []
    for name in ("device_ops", "host_ops"):
        table = getattr(trace, name)
        if table is None:
            continue
        mine = (row >= first) & (row < first + len(table))
        one = _sets(trace, table, _OF[name], row[mine] - first)
        number[mine] = np.where(one.number > 0, one.number + len(sets), 0)
        sets += one.sets
        first += len(table)
    return Details(number, tuple(sets))


def _sets(trace: Trace, table: Table, columns: tuple[str, ...], rows: Numbers) -> Details:
    """The distinct sets of arguments of the rows, the most frequent first."""
    which, used = np.zeros(len(rows), np.int64), []
    for column in columns:
        known = table.known(column)[rows]
        if not known.any():
            continue
        used.append(column)
        values = np.unique(table[column][rows], return_inverse=True)[1].reshape(-1) + 1
        values = np.where(known, values, 0)
        both = which * (int(values.max()) + 1) + values
        which = np.unique(both, return_inverse=True)[1].reshape(-1)
    if not used:
        return Details(which, ())
    found, first, which, count = np.unique(
        which, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(-count, kind="stable")[:MOST_SETS]
    sets = [_texts(trace, table, used, int(rows[first[one]])) for one in order.tolist()]
    if len(order) < len(found):
        sets.append({"arguments": f"not on this page, which has {MOST_SETS:,} different ones"})
    number = np.full(len(found), len(sets))
    number[order] = np.arange(1, len(order) + 1)
    numbered: Numbers = number[which.reshape(-1)]
    empty = np.array([not one for one in sets], np.bool_)
    return Details(np.where(empty[numbered - 1], 0, numbered), tuple(sets))


def _texts(trace: Trace, table: Table, columns: list[str], row: int) -> dict[str, str]:
    """What is known of one row, as people read it."""
    found: dict[str, str] = {}
    for column in columns:
        value = table.value(column, row)
        if value is None:
            continue
        if column in _TEXTS:
            found[_TEXTS[column]] = plain(trace.names[int(value)], VALUE_LIMIT)
        elif column in _MEMORY:
            found[_MEMORY[column]] = f"{MemoryKind(int(value)).name.lower()} memory"
        else:
            label, unit = _NUMBERS[column]
            found[label] = _number(float(value), unit)
    return found


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.0f} %"
    return quantity(value, unit) if unit else f"{value:,.0f}"


def sources(trace: Trace, row: Numbers) -> tuple[Numbers, tuple[str, ...]]:
    """Of the same rows the place in the program: 0 for none known, else one more than a position
    in the texts."""
    ops, host = trace.device_ops, trace.host_ops
    devices, operators = (0 if table is None else len(table) for table in (ops, host))
    frame = places(trace).frame
    none = len(frame) - 1  # stands for nothing
    on_host = np.where(row >= devices, row - devices, none)
    if ops is not None and devices:
        operator = ops.filled("host_op", none).astype(np.int64)
        calls = ops.filled("api_call", 0).astype(np.int64) + operators
        launched = np.where(ops.known("api_call"), calls, operator)
        on_host = np.where(row < devices, launched[np.minimum(row, devices - 1)], on_host)
    name = frame[on_host]
    found, which = np.unique(name, return_inverse=True)
    texts, number = [], np.zeros(len(found), np.int64)
    for position, one in enumerate(found.tolist()):
        known = None if one == NO_ROW else frame_of(trace.names[one])
        if known is not None:
            texts.append(plain(f"{known.file}:{known.line} in {known.function}", VALUE_LIMIT))
            number[position] = len(texts)
    return number[which.reshape(-1)], tuple(texts)
