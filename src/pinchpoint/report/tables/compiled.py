"""Tables of compiled programs and their operations."""

from pinchpoint.analysis.compiled import (
    CompiledModule,
    CompiledOp,
    compiled_modules,
    compiled_ops,
)
from pinchpoint.report.document import ResultTable
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import Trace

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
