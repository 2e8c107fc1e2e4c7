"""The tables of the device side: operations, annotations seen there, and their launches."""

from typing import Any

import msgspec
import numpy as np

from pinchpoint.importers.assembly.links import (
    innermost_operator,
    launching_calls,
    rows_by_external_id,
)
from pinchpoint.importers.kineto.clock import Spans
from pinchpoint.importers.kineto.columns import known, known_32
from pinchpoint.importers.kineto.device_kinds import (
    ANNOTATION_CATEGORY,
    NOT_AN_OPERATION,
    UNKNOWN_MEMORY,
    copy_ends,
    device_kind,
    memset_target,
)
from pinchpoint.importers.kineto.host import Sources
from pinchpoint.importers.kineto.reading.fields import ABSENT, ARGUMENTS, NULL, PLACE, Lane
from pinchpoint.importers.kineto.reading.rare import device_in
from pinchpoint.importers.kineto.reading.scan import Place
from pinchpoint.importers.kineto.threads import (
    device_number,
    place_text,
    stream_number,
    timed_by_operator,
)
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Names, Table, table
from pinchpoint.trace.arrays import Array, of_rows
from pinchpoint.trace.kinds import collective_verb

# ------------------------------------------------------------------------------------------------
# The tables of the device side: operations, annotations seen there, and their launches.


# Arguments of every kernel; what else a collective's kernel has is about the collective.
_KERNEL_ARGUMENTS = frozenset(
    (
        "External id",
        "external id",
        "queued",
        "device",
        "context",
        "stream",
        "correlation",
        "kind",
        "priority",
        "registers per thread",
        "shared memory",
        "blocks per SM",
        "warps per SM",
        "grid",
        "block",
        "est. achieved occupancy %",
        "graph node id",
        "graph id",
        "Collective name",
    )
)


def device_tables(sources: Sources, host_ops: Table, api_calls: Table) -> tuple[Table, Table]:
    """``device_ops`` and ``device_annotations``."""
    spans = sources.clock.spans(sources.columns, Lane.DEVICE)
    cells = _Cells(sources, spans)
    kinds = cells.kinds()
    operations = np.flatnonzero(kinds != NOT_AN_OPERATION)
    annotations = np.flatnonzero(cells.category == _text_id(sources, ANNOTATION_CATEGORY))
    ops = _device_ops(cells, kinds, operations, host_ops, api_calls)
    return (
        _named_as_asked(ops, host_ops, api_calls, sources.names),
        _device_annotations(cells, annotations),
    )


def _text_id(sources: Sources, text: str) -> int:
    try:
        return sources.columns.texts.index(text.encode())
    except ValueError:
        return ABSENT - 1


class _Cells:
    """Columns of the device lane, sorted by time."""

    def __init__(self, sources: Sources, spans: Spans) -> None:
        self.sources = sources
        self.spans = spans
        self.category = self.take("category")
        self.name = self.take("name")
        self.device, self.stream, self._again = self._place()
        self.external = self.take_or("external", "external_2021")

    def take(self, column: str) -> Array:
        """A column in the order of time."""
        return self.spans.of(self.sources.columns.take_sparse(Lane.DEVICE, column))

    def take_or(self, column: str, other: str) -> Array:
        """The same, with the values of another spelling where the column has none."""
        return self.spans.of(self.sources.columns.take_or(Lane.DEVICE, column, other))

    def kinds(self) -> Array:
        """DeviceKind of each row, or NOT_AN_OPERATION."""
        kinds = self.sources.interned.chosen_by_two(self.category, self.name, device_kind)
        return np.where(self._again, NOT_AN_OPERATION, kinds) if self._again.any() else kinds

    def _within(self, device: Array, place: Array) -> Array:
        """Of times by operator, those that lie in another: an operator has those that it calls."""
        by_operator = np.array([timed_by_operator(p) for p in self.sources.columns.places], bool)
        within = np.zeros(len(device), np.bool_)
        for each in np.unique(device) if by_operator.any() else ():
            rows = np.flatnonzero((device == each) & by_operator[place])
            end = self.spans.start[rows] + self.spans.duration[rows]
            within[rows[1:]] = end[1:] <= np.maximum.accumulate(end)[:-1]
        return within

    def _place(self) -> tuple[Array, Array, Array]:
        """Device and stream, where the arguments do not say by process and thread; what repeats."""
        place = self.take(PLACE)
        device, stream = self.take("device"), self.take("stream")
        numbers = np.array([self._numbers(p) for p in self.sources.columns.places], np.int64)
        numbers = numbers.reshape(-1, 2)
        device = np.where(device == NULL, numbers[place, 0], device)
        stream = np.where(stream == NULL, numbers[place, 1], stream)
        device[(device == NULL) | (np.abs(device) > np.iinfo(np.int32).max)] = 0
        return device, stream, self._within(device, place)

    def _numbers(self, place: Place) -> tuple[int, int]:
        process, thread = place_text(place)
        if timed_by_operator(place):
            number = device_in(thread)
            return (NULL if number is None else number), NULL
        called = self.sources.rare.process_names.get(process)
        device, stream = device_number(called), stream_number(called)
        numbers = (
            device_in(process) if device is None else device,
            device_in(thread) if stream is None else stream,
        )
        return tuple(NULL if number is None else number for number in numbers)  # type: ignore[return-value]


def _device_ops(
    cells: _Cells, kinds: Array, rows: Array, host_ops: Table, api_calls: Table
) -> Table:
    sources, interned = cells.sources, cells.sources.interned
    everything = len(rows) == len(kinds)

    def of(column: Array) -> Array:
        return column if everything else of_rows(column, rows)

    kind = of(kinds)
    out: dict[str, Array] = {
        "start_ns": of(cells.spans.start),
        "duration_ns": of(cells.spans.duration),
        "name": interned.strings(of(cells.name))[0],
        "kind": kind,
        "device": of(cells.device),
        "event": of(cells.take("event")),
    }
    missing: dict[str, Array] = {}

    def put(column: str, values: Array, null: Array) -> None:
        out[column], missing[column] = values, null

    put("stream", *known(of(cells.stream)))
    put("external_id", *known(of(cells.external)))
    put("graph_node", *known(of(cells.take("graph_node"))))
    put("registers", *known_32(of(cells.take("registers"))))
    put("shared_bytes", *known_32(of(cells.take("shared"))))
    occupancy = of(cells.take("occupancy"))
    put("occupancy_percent", occupancy / 1000, occupancy == NULL)
    size = of(cells.take_or("bytes", "size"))
    put("bytes", size, (size == NULL) | np.isin(kind, (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)))
    put("grid", *interned.json(of(cells.take("grid"))))
    put("block", *interned.json(of(cells.take("block"))))
    _put_memory_kinds(cells, of, kind, put)
    _put_collectives(cells, of, kind, put)
    _put_launches(cells, of, put, out["start_ns"], host_ops, api_calls)
    if sources.rank is not None:
        out["rank"] = np.broadcast_to(np.int32(sources.rank), (len(rows),))
    return table("device_ops", out, missing)


def _put_memory_kinds(cells: _Cells, of: Any, kind: Array, put: Any) -> None:
    chosen = cells.sources.interned.chosen
    name, direction = of(cells.name), of(cells.take("direction"))
    for column, end in (("from_memory", 0), ("to_memory", 1)):
        memory = np.zeros(len(kind), np.uint8)
        copies = kind == DeviceKind.COPY
        memory[copies] = chosen(name[copies], lambda n, e=end: copy_ends(n)[e])  # type: ignore[misc]
        told = copies & (direction != ABSENT)
        memory[told] = chosen(direction[told], lambda d, e=end: copy_ends(d)[e])  # type: ignore[misc]
        if end == 1:
            sets = kind == DeviceKind.MEMSET
            memory[sets] = chosen(name[sets], memset_target)
        put(column, memory, memory == UNKNOWN_MEMORY)


def _put_collectives(cells: _Cells, of: Any, kind: Array, put: Any) -> None:
    names, interned = cells.sources.names, cells.sources.interned
    said, arguments = of(cells.take("collective")), of(cells.take(ARGUMENTS))
    collective = (kind == DeviceKind.COLLECTIVE) | (said != ABSENT)
    verb = np.where(said != ABSENT, said, of(cells.name))[collective]
    values = np.zeros(len(kind), np.int32)
    values[collective] = interned.renamed(verb, collective_verb)
    put("collective", values, ~collective)
    texts = np.zeros(len(kind), np.int32)
    told = np.flatnonzero(arguments != ABSENT)
    for row in told.tolist():
        texts[row] = names.id_of(_collective_arguments(cells.sources.columns.texts[arguments[row]]))
    put("collective_args", texts, arguments == ABSENT)


# What the host calls a collective around its launch: PyTorch's annotation, or its operator.
_ASKED = regex(r"(?:nccl:|c10d::)\w")
_UNNAMED = "other"


def _named_as_asked(ops: Table, host_ops: Table, api_calls: Table, names: Names) -> Table:
    """Collectives whose kernel is the same for all kinds (``ncclDevKernel_Generic``), named by
    what is open on the host around their launch."""
    unnamed = ops.known("collective") & ops.known("api_call")
    unnamed[unnamed] = [names[n] == _UNNAMED for n in ops["collective"][unnamed].tolist()]
    if not unnamed.any():
        return ops
    parent, name = host_ops.filled("parent", -1), host_ops["name"]
    called_in = api_calls.filled("host_op", -1)
    kinds = ops["collective"].copy()
    for row in np.flatnonzero(unnamed).tolist():
        at = int(called_in[ops["api_call"][row]])
        while at >= 0 and not _ASKED.match(names[int(name[at])]):
            at = int(parent[at])
        if at >= 0:
            kinds[row] = names.id_of(collective_verb(names[int(name[at])]))
    return table(ops.name, {**ops.columns, "collective": kinds}, ops.missing)


def _collective_arguments(token: bytes) -> str:
    try:
        arguments = msgspec.json.decode(token, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "{}"
    left = {key: value for key, value in arguments.items() if key not in _KERNEL_ARGUMENTS}
    return msgspec.json.encode(left).decode()


def _put_launches(
    cells: _Cells, of: Any, put: Any, start: Array, host_ops: Table, api_calls: Table
) -> None:
    correlation = of(cells.take("correlation"))
    put("correlation", *known(correlation))
    call = launching_calls(correlation, start, api_calls)
    put("api_call", call, call < 0)
    host_op = np.full(len(call), -1, np.int32)
    launched = np.flatnonzero(call >= 0)
    host_op[launched] = api_calls.filled("host_op", -1)[call[launched]]
    host_op = innermost_operator(host_op, host_ops)
    orphans = np.flatnonzero(host_op < 0)
    host_op[orphans] = rows_by_external_id(of(cells.external)[orphans], start[orphans], host_ops)
    put("host_op", host_op, host_op < 0)


def _device_annotations(cells: _Cells, rows: Array) -> Table:
    stream, no_stream = known(cells.stream[rows])
    external, no_external = known(cells.external[rows])
    columns = {
        "start_ns": cells.spans.start[rows],
        "duration_ns": cells.spans.duration[rows],
        "name": cells.sources.interned.strings(cells.name[rows])[0],
        "device": cells.device[rows],
        "stream": stream,
        "external_id": external,
    }
    if cells.sources.rank is not None:
        columns["rank"] = np.full(len(rows), cells.sources.rank, np.int32)
    missing = {"stream": no_stream, "external_id": no_external}
    return table("device_annotations", columns, missing)
