"""The tables of what is computed: phases, operators by shape, equal calls of unequal times."""

from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.tables.modules import ModuleRow, Modules
from pinchpoint.analysis.tables.operators import OperatorRow, operators
from pinchpoint.analysis.work.loops import Loop, loops
from pinchpoint.analysis.work.module_work import ModuleWork, module_work
from pinchpoint.analysis.work.operator_work import Work, work_by
from pinchpoint.analysis.work.phases import Phase, phases
from pinchpoint.analysis.work.variation import Variation, variations
from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import HostKind, Trace


def phase_table(trace: Trace) -> ResultTable | None:
    """Forward, backward, optimizer; None without a backward pass."""
    rows = phases(trace)
    if not rows:
        return None
    whole = sum(row.device_ns for row in rows)
    columns: tuple[Column[Phase], ...] = (
        Column("phase", "phase", "", lambda r: r.label),
        Column("device_ns", "device", "ns", lambda r: r.device_ns),
        Column("share", "share", "ratio", lambda r: r.device_ns / whole if whole else None),
        Column("of_forward", "times the forward pass", "count", _of_forward),
        Column("operations", "device ops", "count", lambda r: round(r.operations, 1)),
    )
    note = (
        "A step, as recorded; sums of device operations. A backward pass takes about twice its"
        " forward pass. What is neither backward nor optimizer counts as forward."
    )
    return result_table("phases", "Forward, backward, optimizer", columns, rows, note)


def _of_forward(row: Phase) -> float | None:
    return None if row.forward_ratio is None else round(row.forward_ratio, 2)


def variation_table(trace: Trace) -> ResultTable | None:
    """Operators whose calls on equal shapes take very different times; None without any."""
    rows = variations(trace)
    columns: tuple[Column[Variation], ...] = (
        Column("name", "operator", "", lambda r: r.name),
        Column("excess_ns", "beyond usual", "ns", lambda r: r.excess_ns),
        Column("usual_ns", "usual call", "ns", lambda r: r.usual_ns),
        Column("slow_ns", "slow call", "ns", lambda r: r.slow_ns),
        Column("why", "because of", "", lambda r: r.why),
        Column("calls", "calls", "count", lambda r: round(r.calls, 1)),
        Column("shapes", "shapes", "", lambda r: r.shapes),
        Column("usual_kernel", "usual kernel", "", lambda r: r.kernels[0]),
        Column("slow_kernel", "slow kernel", "", lambda r: r.kernels[1]),
    )
    note = (
        "A step, as recorded. The same operator on the same shapes: a usual call (lower quartile)"
        " and a slow one (95th percentile), and what the slow ones have that no usual one has."
    )
    if not rows:
        return None
    return result_table("variations", "Equal calls, unequal times", columns, rows, note)


_NOTHING = Work(flops=None, bytes=None, known_ratio=0.0)


def loop_table(trace: Trace) -> ResultTable | None:
    """Loops of a step and what varies in them; None without any."""
    rows = loops(trace)
    if not rows:
        return None
    columns: tuple[Column[Loop], ...] = (
        Column("where", "loop in", "", lambda r: r.where or "not recorded"),
        Column("span_ns", "lasts", "ns", lambda r: r.span_ns),
        Column("iterations", "iterations", "count", lambda r: r.iterations),
        Column("varies", "what varies", "", lambda r: r.varies.value),
        Column("busy_ratio", "device busy", "ratio", lambda r: r.busy_ratio),
        Column("operations", "device ops each", "count", lambda r: r.operations),
        Column("times", "times a step", "count", lambda r: r.times),
        Column("device_ns", "device", "ns", lambda r: r.device_ns),
        Column("waits", "waits each time", "", lambda r: "yes" if r.waits else "no"),
        Column("body", "operators", "", lambda r: ", ".join(dict.fromkeys(r.body))),
    )
    note = (
        "One usual step, as recorded: the same operators again and again. Where nothing varies they"
        " are time steps, tokens or requests; where the module does, layers or experts. Whether an"
        " iteration needs the result of the one before is not in a recording."
    )
    return result_table("loops", "Loops", columns, rows, note)


def shape_table(trace: Trace) -> ResultTable | None:
    """Operators by their input shapes; None where shapes were not recorded."""
    answer = operators(trace, by_shapes=True)
    rows = [row for row in answer.rows if row.shapes and row.device_self_ns]
    if not rows:
        return None
    work = _by_name_and_shapes(trace)

    def flops(row: OperatorRow) -> int | None:
        return work.get((row.name, row.shapes or ""), _NOTHING).flops

    def moves(row: OperatorRow) -> int | None:
        return work.get((row.name, row.shapes or ""), _NOTHING).bytes

    columns: tuple[Column[OperatorRow], ...] = (
        Column("name", "operator", "", lambda r: r.name),
        Column("device_self_ns", "device self", "ns", lambda r: r.device_self_ns),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("shapes", "shapes", "", lambda r: _sizes(r.shapes or "")),
        Column("flops", "FLOPs", "flop", flops),
        Column("bytes", "moves", "bytes", moves),
        Column("flops_per_s", "rate", "flop/s", lambda r: _rate(r, flops(r))),
        Column("bytes_per_s", "traffic", "bytes/s", lambda r: _rate(r, moves(r))),
        Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        *memory_column(trace, rows),
    )
    note = "Whole recording. FLOPs and bytes: at least, where a model is known; rates are of these."
    return result_table("operators_by_shape", "Operators by shape", columns, rows, note)


def _sizes(text: str) -> str:
    return " ".join("x".join(map(str, shape)) for shape in tensor_shapes(text))


def _rate(row: OperatorRow, amount: int | None) -> float | None:
    return amount / row.device_self_ns * 1e9 if amount and row.device_self_ns else None


def by_name(trace: Trace) -> dict[str, Work]:
    """The work of operators by name."""
    host = trace.host_ops
    if host is None:
        return {}
    key = np.where(host["kind"] == HostKind.OPERATOR, host["name"], -1).astype(np.int64)
    return {trace.names[at]: work for at, work in work_by(trace, key).items()}


def _by_name_and_shapes(trace: Trace) -> dict[tuple[str, str], Work]:
    host = trace.host_ops
    assert host is not None
    names = len(trace.names)
    shapes = host.filled("shapes", -1).astype(np.int64)
    key = np.where(shapes < 0, -1, host["name"].astype(np.int64) * names + shapes)
    return {
        (trace.names[at // names], trace.names[at % names]): work
        for at, work in work_by(trace, key).items()
    }


def memory_column(trace: Trace, rows: Sequence[OperatorRow]) -> tuple[Column[OperatorRow], ...]:
    """What calls allocate, where the recording has memory."""
    if all(row.allocated_bytes is None for row in rows):
        return ()
    label = f"allocates{of_devices(trace)}"
    return (Column("allocated_bytes", label, "bytes", lambda r: r.allocated_bytes),)


def of_devices(trace: Trace) -> str:
    """That memory of several devices is added up, where it is."""
    events = trace.allocations
    if events is None:
        return ""
    several = len(np.unique(events["device"][events.known("device")])) > 1
    return ", all devices" if several else ""


def module_columns(trace: Trace, tree: Modules) -> tuple[Column[ModuleRow], ...]:
    """FLOPs, bytes and parameters of each module with the modules inside it."""
    work = module_work(trace)
    if not work:
        return ()
    total: dict[str, list[int | None]] = {row.path: [None, None, None] for row in tree.rows}
    for row in tree.rows:
        own = work.get(row.name)
        for path in _paths(row.path) if own is not None else ():
            if path in total:
                _add(total[path], own)
    return (
        Column("flops", "FLOPs", "flop", lambda r: total[r.path][0]),
        Column("bytes", "moves", "bytes", lambda r: total[r.path][1]),
        Column("parameters", "parameters", "count", lambda r: total[r.path][2]),
    )


def _paths(path: str) -> list[str]:
    """A path and all above it."""
    parts = path.split("/")
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def _add(total: list[int | None], own: ModuleWork | None) -> None:
    if own is None:
        return
    for at, value in enumerate((own.flops, own.bytes, own.parameters)):
        if value is not None:
            total[at] = (total[at] or 0) + value
