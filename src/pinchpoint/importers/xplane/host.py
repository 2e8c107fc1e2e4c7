"""The host's side of XLA's profiles: frames, operators, calls and steps, and what they started.

The same for both formats: JAX's Chrome trace writes the statistics of an event as its arguments.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pinchpoint.importers.assembly.timeline import Rows
from pinchpoint.importers.xplane.operations import Row, table_of_rows
from pinchpoint.importers.xplane.silent_waits import waits_for_devices, waits_for_threads
from pinchpoint.importers.xplane.space import Event
from pinchpoint.importers.xplane.waits import with_silent_waits, with_waits
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Names, Table, table
from pinchpoint.trace.intervals import NO_ROW, innermost, nest, nesting_order
from pinchpoint.trace.kinds import api_kind

_CALL = regex(r"(?:cu|cuda|hip)[A-Z]\w*")
_FRAME = regex(r"\$(?P<file>[^\n]+):(?P<line>\d{1,9}) (?P<function>[^\n]*)")


def rows_of(event: Event) -> dict[str, Row]:
    """What an event of the host is, by table, without its time and thread."""
    named = _named(event.name)
    if named.call is not None and "correlation_id" in event.stats:
        number, kind = _number(event, "correlation_id"), int(api_kind(named.call))
        return {"api_calls": {"name": named.call, "kind": kind, "correlation": number}}
    kind = int(named.kind)
    if named.kind != HostKind.PYTHON and "hlo_op" in event.stats:
        kind = int(HostKind.OPERATOR)
    rows: dict[str, Row] = {"host_ops": {"name": named.spelled, "kind": kind}}
    if "correlation_id" in event.stats:
        call = _by_what_it_starts(event.name)
        number, kind = _number(event, "correlation_id"), int(api_kind(call))
        rows["api_calls"] = {"name": call, "kind": kind, "correlation": number}
    if "step_num" in event.stats:
        rows["steps"] = {"name": event.name, "number": _number(event, "step_num")}
    return rows


def _by_what_it_starts(name: str) -> str:
    """The call of the driver that an event is which is named after the kernel or copy it starts."""
    kind = next((k for k in ("Memcpy", "Memset") if name.lower().startswith(k.lower())), "Launch")
    return f"cu{kind}"


_NAMED_AFTER = ("cuMemcpy", "cuMemset", "cuLaunch")


class HostRows:
    """Rows of the three tables of the host, collected event by event."""

    def __init__(self, names: Names) -> None:
        self.ops, self.calls = Rows("host_ops", names), Rows("api_calls", names)
        self.steps: list[Row] = []

    def add(self, event: Event, start_ns: int, duration_ns: int, thread: int) -> None:
        """Sort one event in."""
        for table_name, row in rows_of(event).items():
            row["thread"] = thread
            if table_name == "steps":
                self.steps.append(row | {"start_ns": start_ns, "duration_ns": duration_ns})
            else:
                rows = self.ops if table_name == "host_ops" else self.calls
                rows.add(start_ns, duration_ns, row)


def linked_tables(
    host: HostRows, device: list[Row], names: Names, asked_ns: int | None = None
) -> tuple[Table, Table, Table]:
    """``host_ops``, ``api_calls`` and ``device_ops`` of rows, linked; ``asked_ns`` is when the
    recording was asked to end, where that is told elsewhere."""
    device_ops = table_of_rows("device_ops", device, names)
    return linked(host.ops.table(0), host.calls.table(0), device_ops, names, asked_ns)


def linked(
    host_ops: Table,
    api_calls: Table,
    device_ops: Table,
    names: Names,
    asked_ns: int | None = None,
) -> tuple[Table, Table, Table]:
    """``host_ops`` with their parents, ``api_calls`` inside them, ``device_ops`` from those."""
    host_ops = _until_asked_to_stop(host_ops, names, asked_ns)
    if len(host_ops):
        api_calls = api_calls.take(_of_executions(api_calls, device_ops, names))
        if len(device_ops):
            api_calls = with_waits(host_ops, api_calls, names)
        host_ops, api_calls = _with_silence(host_ops, api_calls, device_ops, names)
        host_ops, api_calls = _nested(host_ops, api_calls)
    return host_ops, api_calls, _launched(device_ops, api_calls)


def _with_silence(host: Table, calls: Table, ops: Table, names: Names) -> tuple[Table, Table]:
    """With rows for waits that no event shows: calls where a device works, else of the host."""
    if not len(ops):
        waits = waits_for_threads(host, calls, names)
        return with_silent_waits(host, waits, names, HostKind.OS_CALL), calls
    waits = waits_for_devices(host, calls, _launched(ops, calls), names)
    return host, with_silent_waits(calls, waits, names, ApiKind.SYNC_EVENT)


class _Named(NamedTuple):
    """What the name of an event says."""

    call: str | None  # of the driver or the runtime
    spelled: str
    kind: HostKind  # unless the event is of a compiled operation


@lru_cache(1 << 14)  # a profile repeats some hundred names
def _named(name: str) -> _Named:
    call = _CALL.match(name)
    if name.startswith("$"):
        kind = HostKind.PYTHON
    else:
        kind = HostKind.COMPILE if "Compile" in name else HostKind.ANNOTATION
    return _Named(call[0] if call else None, _spelled(name), kind)


def _spelled(name: str) -> str:
    """Python's frames as ``file(line): function``, as all tables spell them."""
    frame = _FRAME.fullmatch(name)
    if frame:
        home = "jax/_src/" if _of_jax(frame["file"], frame["function"]) else ""
        return f"{home}{frame['file']}({frame['line']}): {frame['function']}"
    return name.removeprefix("$") if name.startswith("$") else name


# JAX's profiler writes names of files without their folders. These are its own: no program calls a
# file of its own so, or none that has such a function.
_OF_JAX = {
    "ad_checkpoint.py", "api_util.py", "array_constructors.py", "array_creation.py",
    "array_methods.py", "basearray.py", "custom_derivatives.py", "lax.py", "lax_numpy.py",
    "linear_util.py", "named_sharding.py", "partial_eval.py", "pjit.py", "pxla.py",
    "sharding_impls.py", "source_info_util.py", "tensor_contractions.py", "traceback_util.py",
    "tree_util.py", "ufunc_api.py", "xla_bridge.py",
}  # fmt: skip
_OF_JAX_IF = {
    "api.py": {"block_until_ready", "device_put", "grad_f", "try_to_block", "value_and_grad_f"},
    "array.py": {"_value", "block_until_ready"},
    "callback.py": {"_callback", "_wrapped_callback", "pure_callback_impl"},
    "core.py": {"bind", "bind_with_trace", "process_primitive"},
    "dispatch.py": {"apply_primitive"},
    "profiler.py": {"wrapper"},
}


def _of_jax(file: str, function: str) -> bool:
    return file in _OF_JAX or function in _OF_JAX_IF.get(file, ())


def _number(event: Event, stat: str) -> int | None:
    value = event.stats.get(stat)
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None


# Of JAX, and of pinchpoint run (capture/windows/recording.py), which ends it itself.
_ASKED_TO_STOP = regex(
    r"(?:[^\n]*/)?(?:profiler\.py\(\d{1,9}\): stop_trace|recording\.py\(\d{1,9}\): _stop_jax)"
)


def _until_asked_to_stop(host: Table, names: Names, told_ns: int | None) -> Table:
    """Python's frames up to the call that ends the recording; those open then end there.

    Ending takes up to a second, and holds the interpreter: whatever the other threads were in seems
    to take as long. That is the recorder's time, and what comes after it is no whole step.
    """
    calls = [i for i in range(len(names)) if _ASKED_TO_STOP.fullmatch(names[i])]
    asked_ns = host["start_ns"][np.isin(host["name"], calls)]
    if told_ns is None and not len(asked_ns):
        return host
    end_ns = int(asked_ns.max()) if told_ns is None else told_ns
    frames = host["kind"] == HostKind.PYTHON
    kept = ~frames | (host["start_ns"] < end_ns)
    lasts_ns = np.where(frames, end_ns - host["start_ns"], host["duration_ns"])
    shorter = {"duration_ns": np.minimum(host["duration_ns"], lasts_ns)}
    return table(host.name, {**host.columns, **shorter}, dict(host.missing)).take(kept)


def _of_executions(calls: Table, ops: Table, names: Names) -> Any:
    """Calls but for some that are named after what they start.

    Those that start nothing add to a graph that is being made. Copies by threads that launch
    nothing are of XLA's own, which copy what the program reads or gives once it is there: they wait
    for the device, or for the program, in nothing that is recorded.
    """
    starts = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    copies = np.isin(calls["kind"], (ApiKind.COPY, ApiKind.MEMSET))
    named = np.isin(calls["name"], [i for i in range(len(names)) if names[i] in _NAMED_AFTER])
    ran = np.isin(calls["correlation"], ops["correlation"][ops.known("correlation")])
    elsewhere = copies & ~np.isin(calls["thread"], np.unique(calls["thread"][starts]))
    return ~(named & (elsewhere | ~ran))


def _with(rows: Table, column: str, target: Any) -> Table:
    """The table with a column of references, whose ``NO_ROW`` are null."""
    return table(
        rows.name,
        {**rows.columns, column: np.where(target == NO_ROW, 0, target)},
        {**rows.missing, column: target == NO_ROW},
    )


def _nested(host: Table, calls: Table) -> tuple[Table, Table]:
    """Rows of the host with what they lie in, and calls with the same."""
    order = nesting_order(host["thread"], host["start_ns"], host.end_ns)
    nested = nest(host["thread"][order], host["start_ns"][order], host.end_ns[order])
    parent = np.empty(len(host), np.int32)
    parent[order] = np.append(order, NO_ROW)[nested.parent]
    if len(calls):
        found = innermost(nested, calls["thread"].astype(np.int64), calls["start_ns"], calls.end_ns)
        calls = _with(calls, "host_op", np.where(found == NO_ROW, NO_ROW, order[found]))
    return _with(host, "parent", parent), calls


def _launched(ops: Table, calls: Table) -> Table:
    """Device operations with the call of their correlation, and what that was called from."""
    if not len(ops) or not len(calls):
        return ops
    known = np.flatnonzero(calls.known("correlation"))
    known = known[np.argsort(calls["correlation"][known], kind="stable")]
    number, asked = calls["correlation"][known], ops["correlation"]
    last = np.searchsorted(number, asked, side="right") - 1  # of several calls the last one
    found = ops.known("correlation") & (last >= 0)
    found[found] = number[last[found]] == asked[found]
    call = np.full(len(ops), NO_ROW, np.int64)
    call[found] = known[last[found]]
    caller = np.append(calls.filled("host_op", NO_ROW), NO_ROW)[call]
    return _with(_with(ops, "api_call", call), "host_op", caller)
