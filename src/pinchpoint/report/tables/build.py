"""The tables of the document: what operators, kernels, functions and modules cost."""

import numpy as np

from pinchpoint.analysis.device.activity import OneDevice, device_activity, each_device
from pinchpoint.analysis.device.collectives import Collectives, collectives
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.limits.counter_issues import Examined, examined_launches
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.run import SampledRow, sampled_metrics, sampled_sentences
from pinchpoint.analysis.steps.in_steps import NotRecorded, judged_steps
from pinchpoint.analysis.tables.call_tree import SourceRow, source_table
from pinchpoint.analysis.tables.compiled_programs import (
    CompiledModule,
    CompiledOp,
    compiled_modules,
    compiled_ops,
)
from pinchpoint.analysis.tables.kernels import KernelRow, kernels
from pinchpoint.analysis.tables.modules import ModuleRow, kept_bytes_per_call, modules
from pinchpoint.analysis.tables.operators import OperatorRow, operators
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.causal import PieceInfo, shown_pieces
from pinchpoint.report.documents.clock import AS_RECORDED, WITHOUT_PROFILER
from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.tables import time as time_tables
from pinchpoint.report.tables import work as work_tables
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import Trace

# ------------------------------------------------------------------------------------------------
# Tables of compiled programs and their operations.


_NOTE = "Whole recording, all devices; an operation that contains others counts them too."


def compiled_op_table(trace: Trace) -> ResultTable | None:
    """Operations by time; None where the recording names none."""
    rows = compiled_ops(trace)
    if not rows:
        return None
    whole = sum(r.total_ns for r in rows)
    columns: list[Column[CompiledOp]] = [
        Column("op", "operation", "", lambda r: r.op),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("share", "share", "ratio", lambda r: r.total_ns / whole if whole else None),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("category", "kind", "", lambda r: r.category),
        Column("module", "program", "", lambda r: r.module),
    ]
    if any(r.flops_per_s is not None for r in rows):
        columns.append(Column("flops_per_s", "rate", "flop/s", lambda r: r.flops_per_s))
    if any(r.bytes_per_s is not None for r in rows):
        columns.append(Column("bytes_per_s", "traffic", "bytes/s", lambda r: r.bytes_per_s))
    if any(r.source for r in rows):
        columns.append(Column("source", "compiled from", "", lambda r: r.source))
    return result_table("compiled_ops", "Compiled operations", tuple(columns), rows, _NOTE)


def compiled_module_table(trace: Trace) -> ResultTable | None:
    """Programs by time."""
    rows = compiled_modules(trace)
    if not rows:
        return None
    whole = sum(r.total_ns for r in rows)
    columns: tuple[Column[CompiledModule], ...] = (
        Column("module", "program", "", lambda r: r.name or "not named"),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("share", "share", "ratio", lambda r: r.total_ns / whole if whole else None),
        Column("ops", "operations", "count", lambda r: r.ops),
        Column("calls", "runs of them", "count", lambda r: r.calls),
    )
    return result_table("compiled_modules", "Compiled programs", columns, rows, _NOTE)


# ------------------------------------------------------------------------------------------------
# The tables of hardware counters and of what was sampled beside the recording.


def profiled_table(trace: Trace) -> ResultTable | None:
    """Profiled launches, longest first; None where nothing was profiled."""
    if trace.kernel_counters is None or not len(trace.kernel_counters):
        return None
    rows = sorted(examined_launches(trace), key=lambda e: -(e.facts.duration_ns or 0.0))
    columns: tuple[Column[Examined], ...] = (
        Column("name", "kernel", "", lambda e: short_kernel_name(e.launch.name)),
        Column("time_ns", "time", "ns", _time_ns),
        Column("bound", "bound by", "", lambda e: e.point.bound),
        Column("roof_ratio", "of its roof", "ratio", lambda e: e.point.roof_ratio),
        Column("issues", "what holds it back", "", lambda e: ", ".join(i.id for i in e.issues)),
        Column("launch", "launch", "count", lambda e: e.launch.number),
        Column("full_name", "full name", "", lambda e: e.launch.name),
    )
    note = "Times are those of the profiler, which fixes clocks and empties caches before a launch."
    return result_table("profiled", "Profiled kernels", columns, rows, note)


def _time_ns(examined: Examined) -> int | None:
    lasted = examined.facts.duration_ns
    return None if lasted is None else round(lasted)


def sampled_table(trace: Trace) -> ResultTable | None:
    """Spreads by device and metric; None without telemetry."""
    rows = sampled_metrics(trace)
    if not rows:
        return None
    columns: tuple[Column[SampledRow], ...] = (
        Column("device", "device", "", lambda r: "host" if r.device is None else str(r.device)),
        Column("metric", "metric", "", lambda r: r.label),
        Column("median", "median", "", lambda r: _rounded(r.median)),
        Column("least", "least", "", lambda r: _rounded(r.least)),
        Column("most", "most", "", lambda r: _rounded(r.most)),
        Column("unit", "unit", "", lambda r: r.unit),
        Column("looks", "samples", "count", lambda r: r.looks),
        Column("id", "name", "", lambda r: r.metric),
    )
    said = " ".join(f"{text[:1].upper()}{text[1:]}." for text in sampled_sentences(trace))
    note = f"The whole time sampled, not only the recorded steps. {said}".strip()
    return result_table("telemetry", "Telemetry", columns, rows, note)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# ------------------------------------------------------------------------------------------------
# The devices of the process, side by side.


def device_table(trace: Trace) -> ResultTable | None:
    """What each device did; None where there is one, of which everything else speaks."""
    rows = each_device(trace)
    if len(rows) < 2:
        return None
    idle_ns = device_activity(trace).span_ns - device_activity(trace).busy_ns
    columns: tuple[Column[OneDevice], ...] = (
        Column("device", "device", "", lambda r: f"{r.device} {r.name or ''}".strip()),
        Column("busy_ns", "busy", "ns", lambda r: r.busy_ns),
        Column("idle_ratio", "idle", "ratio", lambda r: r.idle_ratio),
        Column("waits_ns", "idle, another works", "ns", lambda r: r.waits_for_others_ns),
        Column("idle_ns", "idle, as all are", "ns", lambda _: idle_ns),
        Column("mostly", "mostly", "", lambda r: r.mostly),
        Column("kernels", "kernels", "count", lambda r: r.kernels),
        Column("own_idle_ratio", "idle of its own span", "ratio", lambda r: r.own_idle_ratio),
    )
    note = "Whole recording, from the first operation of any device to the last. Why all idle at"
    note += " once is in the parts of the step; its own span is from a device's first operation on."
    return result_table("devices", "Devices", columns, rows, note)


# ------------------------------------------------------------------------------------------------
# The table of collectives: what one rank can tell of its communication.


@dataclass(frozen=True)
class _CollectiveRow:
    kind: str
    name: str
    calls: int
    total_ns: int
    exposed_ns: int
    bytes: int | None
    group_size: int | None
    fastest_bus_bytes_per_s: float | None


def collective_table(trace: Trace) -> ResultTable | None:
    """Collectives by kind and kernel, longest first; None where the steps have none."""
    found = collectives(trace)
    if found is None or trace.device_ops is None:
        return None
    names = trace.device_ops["name"][found.rows]
    keys = sorted(set(zip(found.kind.tolist(), names.tolist(), strict=True)))
    rows = [_row(found, (found.kind == k) & (names == n), trace.names[n]) for k, n in keys]
    columns: tuple[Column[_CollectiveRow], ...] = (
        Column("kind", "collective", "", lambda r: r.kind or "not recorded"),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("exposed_ns", "not hidden", "ns", lambda r: r.exposed_ns),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("bytes", "size, all calls", "bytes", lambda r: r.bytes),
        Column("group_size", "ranks", "count", lambda r: r.group_size),
        Column("bus_rate", "fastest, bus", "GB/s", _fastest),
        Column("full_name", "kernel", "", lambda r: r.name),
    )
    steps = len(judged_steps(trace))
    note = (
        f"Issued by the {steps} step{'' if steps == 1 else 's'} that are judged, on this rank. Its"
        " time includes waiting for the other ranks, so only the fastest call tells about the link;"
        " pinchpoint ranks compares them all. Not hidden: nothing was computed meanwhile."
    )
    ordered = sorted(rows, key=lambda row: -row.total_ns)
    return result_table("collectives", "Collectives", columns, ordered, note)


def _row(found: Collectives, mine: np.ndarray, name: str) -> _CollectiveRow:
    rate = found.bus_bytes_per_s()[mine]
    rate = rate[np.isfinite(rate)]
    size, group = found.bytes[mine], found.group_size[mine]
    return _CollectiveRow(
        kind=str(found.kind[mine][0]),
        name=name,
        calls=int(mine.sum()),
        total_ns=int(found.duration_ns[mine].sum()),
        exposed_ns=int(found.exposed_ns[mine].sum()),
        bytes=int(size.sum()) if (size > 0).all() else None,
        group_size=int(group.max()) if (group > 0).all() else None,
        fastest_bus_bytes_per_s=float(rate.max()) if len(rate) else None,
    )


def _fastest(row: _CollectiveRow) -> float | None:
    rate = row.fastest_bus_bytes_per_s
    return None if rate is None else rate / 1e9


# ------------------------------------------------------------------------------------------------
# The tables of the document: what operators, kernels, functions and modules cost.


def tables(trace: Trace) -> dict[str, ResultTable]:
    """All tables that the trace has rows for, by id."""
    found = (
        time_tables.step_table(trace),
        time_tables.idle_table(trace),
        piece_table(trace),
        work_tables.phase_table(trace),
        work_tables.variation_table(trace),
        work_tables.loop_table(trace),
        operator_table(trace),
        work_tables.shape_table(trace),
        compiled_module_table(trace),
        compiled_op_table(trace),
        kernel_table(trace),
        source_lines(trace),
        module_table(trace),
        time_tables.transfer_table(trace),
        device_table(trace),
        collective_table(trace),
        profiled_table(trace),
        time_tables.launch_table(trace),
        time_tables.sync_table(trace),
        sampled_table(trace),
    )
    return {table.id: table for table in found if table is not None and table.rows}


def piece_table(trace: Trace) -> ResultTable:
    """Operators, functions, waits and transfers: the step without them, and at the limit."""
    on_cpus = computes_on_cpu(trace)
    columns: tuple[Column[PieceInfo], ...] = (
        Column("name", "piece", "", lambda r: r.name),
        Column("step_if_free_ns", "step without it", "ns", lambda r: r.step_if_free_ns),
        Column("step_at_limit_ns", "step at its limit", "ns", lambda r: r.step_at_limit_ns),
        *(() if on_cpus else (Column("device_ns", "device", "ns", lambda r: r.device_ns),)),
        Column("limit_ns", "limit", "ns", lambda r: r.limit_ns),
        Column("host_ns", "host", "ns", lambda r: r.host_ns),
        Column("hidden_ns", "hidden", "ns", lambda r: r.hidden_ns),
        Column("critical_ns", "critical", "ns", lambda r: r.critical_ns),
        Column("calls", "calls" if on_cpus else "device ops", "count", lambda r: r.calls),
        Column("by", "is a", "", lambda r: r.by),
        Column("place", "launched in", "", lambda r: r.place),
    )
    note = (
        "A step. Limit: what one core of a slow server would take for its operators, if that is"
        " less. pinchpoint causal has all."
        if on_cpus
        else "A step. Limit: what the device work needs at the rates that good"
        " kernels reach. Hidden: what the step would not get shorter by. Critical: what of it is on"
        " the critical path. pinchpoint causal has all."
    )
    known = corrected_step_ns(trace) is not None
    clock = WITHOUT_PROFILER if known else AS_RECORDED
    return result_table("pieces", "Pieces of a step", columns, shown_pieces(trace), note, clock)


def operator_table(trace: Trace) -> ResultTable:
    """Operators by their own device time, then their own host time."""
    answer = operators(trace)
    work = work_tables.by_name(trace)
    columns: tuple[Column[OperatorRow], ...] = (
        Column("name", "operator", "", lambda r: r.name),
        Column("device_self_ns", "device self", "ns", lambda r: r.device_self_ns),
        Column("device_share", "share", "ratio", answer.device_share),
        Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("device_total_ns", "device total", "ns", lambda r: r.device_total_ns),
        Column("host_total_ns", "host total", "ns", lambda r: r.host_total_ns),
        Column("host_api_ns", "driver calls", "ns", lambda r: r.host_api_ns),
        Column("device_ops", "device ops", "count", lambda r: r.device_ops),
        Column("flops", "FLOPs", "flop", lambda r: work[r.name].flops if r.name in work else None),
        Column("bytes", "moves", "bytes", lambda r: work[r.name].bytes if r.name in work else None),
        *work_tables.memory_column(trace, answer.rows),
    )
    note = "Whole recording. Self leaves out what an operator calls; total includes it. FLOPs and"
    note += " bytes: at least, where shapes are recorded and a model is known."
    return result_table("operators", "Operators", columns, answer.rows, note)


def kernel_table(trace: Trace) -> ResultTable:
    """Kernels by time."""
    answer = kernels(trace)
    columns: tuple[Column[KernelRow], ...] = (
        Column("name", "kernel", "", lambda r: r.short_name),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("share", "share", "ratio", answer.share),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("median_ns", "median", "ns", lambda r: r.median_ns),
        Column("category", "kind", "", lambda r: r.category.label),
        Column("precision", "format", "", lambda r: r.precision and r.precision.label),
        Column("p90_ns", "90th pct", "ns", lambda r: r.p90_ns),
        Column("blocks_per_sm", "blocks a SM", "count", lambda r: r.blocks_per_multiprocessor),
        Column("occupancy", "occupancy, est.", "ratio", lambda r: r.occupancy_ratio),
        Column("operators", "launched by", "", lambda r: ", ".join(r.operators)),
        Column("full_name", "full name", "", lambda r: r.name),
    )
    note = "Whole recording. Kernels on different streams may overlap."
    return result_table("kernels", "Kernels", columns, answer.rows, note)


def source_lines(trace: Trace) -> ResultTable | None:
    """Functions of the program by device time; None if the recording has no stacks."""
    answer = source_table(trace)
    if isinstance(answer, NotRecorded):
        return None
    columns: tuple[Column[SourceRow], ...] = (
        Column("function", "function", "", lambda r: r.frame.function),
        Column("place", "file", "", lambda r: f"{r.frame.file}:{r.frame.line}"),
        Column("device_ns", "device", "ns", lambda r: r.device_ns),
        Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("host_total_ns", "host total", "ns", lambda r: r.host_total_ns),
        Column("device_forward_ns", "forward", "ns", lambda r: r.device_forward_ns),
        Column("device_backward_ns", "backward", "ns", lambda r: r.device_backward_ns),
    )
    note = "Whole recording. Device time is charged to the innermost function outside the framework"
    note += ", that of the backward pass to the function whose forward operator it differentiates."
    return result_table("source", "Source", columns, answer.rows, note)


def module_table(trace: Trace) -> ResultTable | None:
    """The tree of modules, indented; None if the recording does not show modules."""
    answer = modules(trace)
    if isinstance(answer, NotRecorded):
        return None
    kept = kept_bytes_per_call(trace)
    memory: tuple[Column[ModuleRow], ...] = ()
    if kept is not None:
        known = kept
        label = f"kept a call{work_tables.of_devices(trace)}"
        memory = (Column("kept_bytes", label, "bytes", lambda r: round(known[r.name])),)
    columns: tuple[Column[ModuleRow], ...] = (
        Column("module", "module", "", lambda r: "  " * r.depth + r.name),
        Column("device_forward_ns", "forward", "ns", lambda r: r.device_forward_ns),
        Column("device_backward_ns", "backward", "ns", lambda r: r.device_backward_ns),
        Column("host_total_ns", "host", "ns", lambda r: r.host_total_ns),
        *memory,
        *work_tables.module_columns(trace, answer),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("forward_self_ns", "forward self", "ns", lambda r: r.device_forward_self_ns),
        Column("backward_self_ns", "backward self", "ns", lambda r: r.device_backward_self_ns),
        Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        Column("path", "path", "", lambda r: r.path),
    )
    note = "Whole recording. Inside a module come the modules that it calls. FLOPs, bytes and"
    note += " parameters: at least, of operators with recorded shapes and a known model."
    if memory:
        note += " Kept a call: device memory that is still allocated when the call returns, mean."
    return result_table("modules", "Modules", columns, answer.rows, note)
