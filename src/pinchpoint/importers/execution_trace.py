"""PyTorch's execution traces (the host part of Chakra): what operators were given, without times.

Alone such a file says nothing about time. Joined with the Kineto trace of the same run it gives
operators their shapes, types and scalar arguments where ``record_shapes`` was off. Operators belong
together by ``Record function id`` (0 means that there is none), in older files by ``External id``,
which drifts in some versions: so nearly all that match must have one name.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.kineto import read_arguments
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Names, Trace, table

FORMAT = "execution trace"
FILES = ("_et.json _et.json.gz", "torch.profiler.ExecutionTraceObserver; beside a Kineto trace")
READS: tuple[str, ...] = ()
NOT_READ = "a file alone; beside a trace: shapes, types, arguments"

_SCHEMA = regex(rb'"schema"\s*:\s*"\d+\.\d+\.\d+(-chakra[\d.]*)?"')
_MOST_BYTES = 2 << 30  # read at once
LEAST_ALIKE_RATIO = 0.9  # of the matched operators: fewer of one name, and ids have drifted
_RECORD_ID, _ATTRIBUTES = "Record function id", "attrs"
_TENSOR = regex(r"^Tensor\((.*)\)$")
_LONGEST_VALUE = 200  # characters of one argument, as the profiler keeps


def claims(path: Path, head: bytes) -> bool:
    """JSON that begins with the version of the schema, and has no events."""
    return bool(_SCHEMA.search(head[:1000])) and b"traceEvents" not in head


def read(path: Path) -> Trace:
    """Always an UnreadableFile: there are no times in it."""
    raise UnreadableFile(
        f"{path}: an execution trace, which holds no times",
        hint="give the profiler's trace of the same run with it: "
        f"pinchpoint diagnose TRACE.json {path.name}",
    )


def joined(trace: Trace, path: Path) -> Trace:
    """The trace with what the execution trace says of its operators, where it does not itself.

    Raises UnreadableFile where the two are not of one run.
    """
    host = trace.host_ops
    if host is None:
        raise UnreadableFile(f"{path}: the trace beside it has no operators", hint=_TOGETHER)
    nodes = dict(_nodes(path))
    rows, found = _matched(trace, nodes)
    alike = sum(
        trace.names[int(host["name"][r])] == n["name"] for r, n in zip(rows, found, strict=True)
    )
    if not rows or alike < LEAST_ALIKE_RATIO * len(rows):
        raise UnreadableFile(
            f"{path}: not of the same run as the trace beside it ({alike:,} of {len(rows):,}"
            " operators with one id have one name)",
            hint=_TOGETHER,
        )
    names = Names(trace.names)
    columns, missing = dict(host.columns), dict(host.missing)
    for column, say in (("shapes", _shapes), ("dtypes", _types), ("values", _values)):
        values, known = host[column].copy(), host.known(column)
        for row, node in zip(rows, found, strict=True):
            if not known[row] and (said := say(node)):
                values[row], known[row] = names.id_of(_json(said)), True
        columns[column], missing[column] = values, ~known
    options = {**trace.source.options, "record_shapes": True}
    return replace(
        trace,
        source=replace(trace.source, options=options),
        host_ops=table("host_ops", columns, missing),
        names=names.freeze(),
    )


_TOGETHER = "record both in one run: ExecutionTraceObserver as execution_trace_observer= of profile"


def _nodes(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Operators and annotations by the id that the profiler's events have too."""
    from pinchpoint.importers.files.memory import EXECUTION_TRACE_TIMES, must_fit

    with unpacked(path) as plain:
        if plain.stat().st_size > _MOST_BYTES:
            raise HostileFile(f"{path}: larger than {_MOST_BYTES >> 30} GB", hint="record less")
        must_fit(path, plain.stat().st_size, EXECUTION_TRACE_TIMES)
        try:
            nodes = msgspec.json.decode(plain.read_bytes())["nodes"]
        except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableFile(
                f"{path}: cut off, or no execution trace ({error})", hint="copy it again"
            ) from None
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and isinstance(node.get("name"), str):
            number = node.get("rf_id", _attribute(node, "rf_id"))
            if isinstance(number, int) and number > 0:
                yield number, node


def _attribute(node: dict[str, Any], name: str) -> Any:
    attributes = node.get(_ATTRIBUTES)
    for item in attributes if isinstance(attributes, list) else ():
        if isinstance(item, dict) and item.get("name") == name:
            return item.get("value")
    return None


def _matched(
    trace: Trace, nodes: dict[int, dict[str, Any]]
) -> tuple[list[int], list[dict[str, Any]]]:
    """Rows of the host and the nodes with their ids."""
    host = trace.host_ops
    assert host is not None
    wanted = np.isin(host["kind"], (HostKind.OPERATOR, HostKind.ANNOTATION)) & host.known("event")
    rows = np.flatnonzero(wanted).tolist()
    said = read_arguments(trace, host["event"][rows].tolist())
    ids = [arguments.get(_RECORD_ID) for arguments in said]
    if not any(ids):
        ids = [host.value("external_id", row) for row in rows]
    pairs = [(row, nodes[i]) for row, i in zip(rows, ids, strict=True) if i in nodes]
    return [row for row, _ in pairs], [node for _, node in pairs]


def _inputs(node: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Values, shapes and types of what an operator was given, in both forms of the schema."""
    inputs = node.get("inputs")
    if isinstance(inputs, dict):
        parts = [inputs.get(key) for key in ("values", "shapes", "types")]
    else:
        parts = [inputs, node.get("input_shapes"), node.get("input_types")]
    values, shapes, types = (part if isinstance(part, list) else [] for part in parts)
    count = min(len(values), len(shapes), len(types))
    return values[:count], shapes[:count], types[:count]


def _shapes(node: dict[str, Any]) -> list[Any]:
    """As ``Input Dims``: empty for what is no tensor."""
    _, shapes, types = _inputs(node)
    return [shape if _is_tensor(kind) else [] for shape, kind in zip(shapes, types, strict=True)]


def _is_tensor(kind: Any) -> bool:
    return isinstance(kind, str) and "Tensor" in kind


def _types(node: dict[str, Any]) -> list[str]:
    """As ``Input type``: the type of a tensor's elements, TensorList, Scalar, or nothing."""
    found = []
    for kind in map(str, _inputs(node)[2]):
        if tensor := _TENSOR.match(kind):
            found.append(tensor[1])
        elif kind.startswith("GenericList[Tensor"):
            found.append("TensorList")
        else:
            found.append("Scalar" if kind in ("Int", "Double", "Bool") else "")
    return found


def _values(node: dict[str, Any]) -> list[str]:
    """As ``Concrete Inputs``: text of scalars and lists of them, nothing for tensors."""
    values, _, types = _inputs(node)
    return [
        "" if _is_tensor(kind) or kind == "None" else str(value)[:_LONGEST_VALUE]
        for value, kind in zip(values, types, strict=True)
    ]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
