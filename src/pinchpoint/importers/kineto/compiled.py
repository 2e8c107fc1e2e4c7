"""JAX's and TensorFlow's Chrome traces: what the arguments of their events say.

Steps, calls, operations of compiled programs and what was launched from where are told by nothing
but arguments, which scanners keep where processes are named as XLA names them. torch's traces tell
them otherwise and do not pay for it.

Events repeat: those with the same name and arguments, but for the number that links a call with
what it launched, are of one *kind*, which is looked at once.
"""

from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.columns import Told
from pinchpoint.importers.kineto.reading.fields import ABSENT, NULL
from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.importers.kineto.reading.scanner import arguments_in
from pinchpoint.importers.kineto.recorder import XLA
from pinchpoint.importers.kineto.threads import OF_A_TPU, lines_of_devices
from pinchpoint.importers.xplane.host import linked, rows_of
from pinchpoint.importers.xplane.operations import Row, compiled_row, table_of_kinds
from pinchpoint.importers.xplane.space import Event, Value, device_row
from pinchpoint.trace import Names, Table, Trace, empty_table
from pinchpoint.trace.arrays import Array, Mask, rows_in_order

FORMAT = "xplane json"
_LONGEST_NUMBER = 18  # digits; more may not fit into 64 bits
_OWN = ("start_ns", "duration_ns", "thread", "device", "stream", "event")
_OF_THE_HOST = ("host_ops", "api_calls", "steps")
_UNLINKED = -1  # no number of a correlation is negative
_NOTHING = b"{}"


def as_xla_says(given: list[Trace], rare: Rare, told: list[Told]) -> Trace:
    """The trace with the tables that its arguments tell.

    The lists hold the trace and what is told: they are emptied, so that neither lasts longer than
    it is needed.
    """
    trace, said = given.pop(), told.pop()
    sides = [side for side in (trace.host_ops, trace.device_ops) if side is not None]
    has_device_side = trace.device_ops is not None
    trace = replace(trace, host_ops=None, api_calls=None, device_ops=None)
    of_tpus = {place for place, line in lines_of_devices(rare).items() if line == OF_A_TPU}
    events = [_events(trace, sides.pop(0), said, of_tpus) for _ in range(len(sides))]
    del said
    names = Names(trace.names)
    steps, compiled = _table("steps", events, names), _table("compiled_ops", events, names)
    host_ops, api_calls, device_ops = (
        _table(name, events, names) for name in ("host_ops", "api_calls", "device_ops")
    )
    events.clear()
    host_ops, api_calls, device_ops = linked(host_ops, api_calls, device_ops, names)
    has_device_side = has_device_side or len(api_calls) > 0
    return replace(
        trace,
        source=replace(trace.source, format=FORMAT, recorder=XLA, recorder_version=None),
        host_ops=host_ops,
        api_calls=api_calls if has_device_side else None,
        device_ops=device_ops if has_device_side else None,
        steps=steps if len(steps) else trace.steps,
        compiled_ops=compiled if len(compiled) else None,
        names=names.freeze(),
    )


@dataclass
class _Kinds:
    """The kinds of events of one side, numbered as they come."""

    names: tuple[str, ...]
    are_device_ops: bool
    rows: dict[str, list[Row | None]] = field(default_factory=dict)  # by table, of each kind

    def add(self, name: int, of_tpu: bool, text: bytes) -> None:
        """Look at the next kind: a name and arguments."""
        self._look_at(self.names[name], of_tpu, arguments_in(text))

    def _look_at(self, name: str, of_tpu: bool, facts: dict[str, Any]) -> None:
        """Add the rows of another kind, as an XPlane file would have it."""
        event = Event(name, 0, 0, {key: _value(value) for key, value in facts.items()})
        rows: dict[str, list[Row]] = {}
        if self.are_device_ops:
            rows["device_ops"] = [device_row(event, 0, 0, 0, -1)]
        else:
            said = rows_of(event)
            rows |= {name: [said[name]] if name in said else [] for name in _OF_THE_HOST}
        compiled = compiled_row(event.stats, 0, 0, None, name if of_tpu else "")
        rows["compiled_ops"] = [] if compiled is None else [compiled]
        for table, some in rows.items():
            self.rows.setdefault(table, []).append(some[0] if some else None)


@dataclass(frozen=True, eq=False)
class _Events:
    """The events of one side."""

    side: Table
    kinds: _Kinds
    kind: Array  # of each row
    link: Array  # the number of each row that its kind leaves open; _UNLINKED: none


def _events(trace: Trace, side: Table, told: Told, of_tpus: set[tuple[int, int | None]]) -> _Events:
    kinds = _Kinds(trace.names, side.name == "device_ops")
    of_tpu = np.broadcast_to(np.int64(0), (len(side),))
    if kinds.are_device_ops and of_tpus:
        places = zip(_values(side, "device"), _values(side, "stream"), strict=True)
        of_tpu = np.array([place in of_tpus for place in places], np.int64)
    at = _told_at(side, told)
    arguments = np.append(told.arguments, ABSENT)[at]
    distinct, kind = rows_in_order(side["name"], of_tpu, arguments)
    del arguments
    kind = kind.astype(np.int32)
    link = np.append(np.where(told.link == NULL, _UNLINKED, told.link), _UNLINKED)[at]
    texts = (*told.texts, _NOTHING)  # ABSENT is the last one
    for name, tpu, text in distinct.tolist():
        kinds.add(name, bool(tpu), texts[text])
    return _Events(side, kinds, kind, link)


def _told_at(side: Table, told: Told) -> Array:
    """Where each row stands in what is told; behind its end: nowhere."""
    event = side.filled("event", -1)
    at = np.searchsorted(told.event, event).astype(np.int32)
    at[np.append(told.event, -1)[at] != event] = len(told.event)
    return at


class _Part(NamedTuple):
    """Rows of one side that go to a table."""

    side: _Events
    rows: Array | slice
    kind: Array  # of each row

    def own(self, column: str) -> tuple[Array, Mask]:
        """What each row says for itself, and where it says nothing."""
        of, count = self.side.side, len(self.kind)
        if column not in of.columns:
            return np.broadcast_to(np.int64(0), (count,)), np.broadcast_to(np.True_, (count,))
        missing = of.missing.get(column)
        unknown = np.broadcast_to(np.False_, (count,)) if missing is None else missing[self.rows]
        return of[column][self.rows], unknown


def _table(name: str, events: list[_Events], names: Names) -> Table:
    """The table of all rows that go there, column by column: several at once are much memory."""
    kinds: list[Row] = []
    parts: list[_Part] = []
    for side in events:
        all_kinds = side.kinds.rows.get(name, [])
        number = np.full(len(all_kinds) + 1, -1, np.int64)
        here = [at for at, row in enumerate(all_kinds) if row is not None]
        number[here] = np.arange(len(here)) + len(kinds)
        kinds += [row for row in all_kinds if row is not None]
        if not here:
            continue
        kind = number[side.kind]
        if (kind >= 0).all():
            parts.append(_Part(side, slice(None), kind))
        else:
            rows = np.flatnonzero(kind >= 0)
            parts.append(_Part(side, rows, kind[rows]))

    def own(column: str) -> tuple[Array, Mask]:
        if column != "correlation":
            return _one_after_the_other([part.own(column) for part in parts])
        fixed = [row.get("correlation") for row in kinds]
        of_kind = np.array([_UNLINKED if v is None else v for v in fixed], np.int64)
        links = ((part.side.link[part.rows], of_kind[part.kind]) for part in parts)
        found = [np.where(link < 0, fixed, link) for link, fixed in links]
        return _one_after_the_other([(link, link < 0) for link in found])

    if not parts:
        return empty_table(name)
    kind = np.concatenate([part.kind for part in parts]) if len(parts) > 1 else parts[0].kind
    return table_of_kinds(name, kinds, kind, (*_OWN, "correlation"), own, names)


def _one_after_the_other(parts: list[tuple[Array, Mask]]) -> tuple[Array, Mask]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([v for v, _ in parts]), np.concatenate([m for _, m in parts])


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
