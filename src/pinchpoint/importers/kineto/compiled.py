"""JAX's and TensorFlow's Chrome traces: what the arguments of their events say.

Steps, calls, operations of compiled programs and what was launched from where are told by nothing
but arguments. torch's traces tell them otherwise and must not pay for reading these: they are read
in a second pass, where the processes are named as XLA names them, and then as XPlane files are.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.importers.kineto.reading.scanner import ScannerName, read_arguments
from pinchpoint.importers.kineto.recorder import XLA
from pinchpoint.importers.kineto.threads import OF_A_TPU, lines_of_devices
from pinchpoint.importers.xplane.host import HostRows, linked_tables
from pinchpoint.importers.xplane.operations import Row, compiled_row, table_of_rows
from pinchpoint.importers.xplane.space import Event, Value, device_row
from pinchpoint.trace import Names, Table, Trace

FORMAT = "xplane json"
_LONGEST_NUMBER = 18  # digits; more may not fit into 64 bits


def as_xla_says(trace: Trace, rare: Rare, scanner: ScannerName) -> Trace:
    """The trace with the tables that its arguments tell."""
    sides = [side for side in (trace.host_ops, trace.device_ops) if side is not None]
    positions = [e for side in sides for e in side["event"][side.known("event")].tolist()]
    said = dict(zip(positions, read_arguments(trace, positions, scanner), strict=True))
    lines = lines_of_devices(rare)
    names = Names(trace.names)
    host = HostRows(names)
    device: list[Row] = []
    compiled: list[Row | None] = []
    for side in sides:
        for row, event in _events(trace, side, said):
            start, lasted = row.start_ns, row.duration_ns
            number = None if side is trace.host_ops else row.device
            op = ""
            if number is None:
                host.add(event, start, lasted, row.thread, row.event)
            else:
                op = event.name if lines.get((number, row.stream)) == OF_A_TPU else ""
                stream = -1 if row.stream is None else row.stream
                told = device_row(event, start, lasted, number, stream)
                device.append(told | {"event": row.event, "stream": row.stream})
            compiled.append(compiled_row(event.stats, start, lasted, number, op))
    host_ops, api_calls, device_ops = linked_tables(host, device, names)
    found = [row for row in compiled if row is not None]
    has_device_side = trace.device_ops is not None or len(api_calls) > 0
    return replace(
        trace,
        source=replace(trace.source, format=FORMAT, recorder=XLA, recorder_version=None),
        host_ops=host_ops,
        api_calls=api_calls if has_device_side else None,
        device_ops=device_ops if has_device_side else None,
        steps=table_of_rows("steps", host.steps, names) if host.steps else trace.steps,
        compiled_ops=table_of_rows("compiled_ops", found, names) if found else None,
        names=names.freeze(),
    )


class _Place(NamedTuple):
    """Where and when an event ran, as the columns of its table have it."""

    start_ns: Any
    duration_ns: Any
    name: Any
    thread: Any
    device: Any
    stream: Any
    event: Any


def _events(
    trace: Trace, side: Table, said: dict[int, dict[str, Any]]
) -> Iterator[tuple[_Place, Event]]:
    """Each row of the columns needed here, and its event as an XPlane file would have it."""
    columns = (_values(side, column) for column in _Place._fields)
    nothing: dict[str, Any] = {}
    for row in map(_Place, *columns):
        facts = said.get(row.event, nothing)
        stats = {k: _value(v) for k, v in facts.items()} if facts else {}
        yield row, Event(trace.names[row.name], 0, 0, stats)


def _values(side: Table, column: str) -> list[Any]:
    """The values of a column, None where it has none."""
    if column not in side.columns:
        return [None] * len(side)
    values: list[Any] = side[column].tolist()
    known = side.known(column)
    if known.all():
        return values
    return [value if there else None for value, there in zip(values, known.tolist(), strict=True)]


def _value(value: Any) -> Value:
    """Numbers are written as text."""
    if isinstance(value, int | float):
        return value
    text = str(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    return int(text) if is_number else text
