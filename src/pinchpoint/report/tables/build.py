"""The tables of the document: what operators, kernels, functions and modules cost."""

from pinchpoint.analysis.kernels import KernelRow, kernels
from pinchpoint.analysis.module_memory import kept_bytes_per_call
from pinchpoint.analysis.modules import ModuleRow, modules
from pinchpoint.analysis.not_recorded import NotRecorded
from pinchpoint.analysis.operators import OperatorRow, operators
from pinchpoint.analysis.source_table import SourceRow, source_table
from pinchpoint.report.document import ResultTable
from pinchpoint.report.tables import time as time_tables
from pinchpoint.report.tables.collectives import collective_table
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.report.tables.compiled import compiled_module_table, compiled_op_table
from pinchpoint.report.tables.counters import profiled_table, sampled_table
from pinchpoint.trace import Trace


def tables(trace: Trace) -> dict[str, ResultTable]:
    """All tables that the trace has rows for, by id."""
    found = (
        time_tables.step_table(trace),
        time_tables.idle_table(trace),
        operator_table(trace),
        compiled_module_table(trace),
        compiled_op_table(trace),
        kernel_table(trace),
        source_lines(trace),
        module_table(trace),
        time_tables.transfer_table(trace),
        collective_table(trace),
        profiled_table(trace),
        time_tables.launch_table(trace),
        time_tables.sync_table(trace),
        sampled_table(trace),
    )
    return {table.id: table for table in found if table is not None and table.rows}


def operator_table(trace: Trace) -> ResultTable:
    """Operators by their own device time, then their own host time."""
    answer = operators(trace)
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
    )
    note = "Whole recording. Self leaves out what an operator calls; total includes it."
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
        memory = (Column("kept_bytes", "kept a call", "bytes", lambda r: round(known[r.name])),)
    columns: tuple[Column[ModuleRow], ...] = (
        Column("module", "module", "", lambda r: "  " * r.depth + r.name),
        Column("device_forward_ns", "forward", "ns", lambda r: r.device_forward_ns),
        Column("device_backward_ns", "backward", "ns", lambda r: r.device_backward_ns),
        Column("host_total_ns", "host", "ns", lambda r: r.host_total_ns),
        *memory,
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("forward_self_ns", "forward self", "ns", lambda r: r.device_forward_self_ns),
        Column("backward_self_ns", "backward self", "ns", lambda r: r.device_backward_self_ns),
        Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        Column("path", "path", "", lambda r: r.path),
    )
    note = "Whole recording. Inside a module come the modules that it calls."
    if memory:
        note += " Kept a call: device memory that is still allocated when the call returns, mean."
    return result_table("modules", "Modules", columns, answer.rows, note)
