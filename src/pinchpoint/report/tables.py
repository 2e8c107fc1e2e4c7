"""The tables of the document: answers of the analyses as rows under declared columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pinchpoint.analysis.kernels import KernelRow, kernels
from pinchpoint.analysis.modules import ModuleRow, modules
from pinchpoint.analysis.not_recorded import NotRecorded
from pinchpoint.analysis.operators import OperatorRow, operators
from pinchpoint.analysis.source_table import SourceRow, source_table
from pinchpoint.report.document import ResultTable, TableColumn
from pinchpoint.trace import Trace

MOST_ROWS = 100  # of a table in the document; the tail is summed in ``rows_left_out``
LONGEST_NAME = 1000  # characters; C++ names of kernels are long, and hostile ones longer

Row = TypeVar("Row")


@dataclass(frozen=True)
class _Column(Generic[Row]):
    """A column and how its value is taken from a row; the most important columns first."""

    id: str
    label: str
    unit: str
    value: Callable[[Row], Any]


def tables(trace: Trace) -> dict[str, ResultTable]:
    """All tables that the trace has rows for, by id."""
    found = (operator_table(trace), kernel_table(trace), source_lines(trace), module_table(trace))
    return {table.id: table for table in found if table is not None and table.rows}


def operator_table(trace: Trace) -> ResultTable:
    """Operators by their own device time, then their own host time."""
    answer = operators(trace)
    columns: tuple[_Column[OperatorRow], ...] = (
        _Column("name", "operator", "", lambda r: r.name),
        _Column("device_self_ns", "device self", "ns", lambda r: r.device_self_ns),
        _Column("device_share", "share", "ratio", answer.device_share),
        _Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        _Column("calls", "calls", "count", lambda r: r.calls),
        _Column("device_total_ns", "device total", "ns", lambda r: r.device_total_ns),
        _Column("host_total_ns", "host total", "ns", lambda r: r.host_total_ns),
        _Column("host_api_ns", "driver calls", "ns", lambda r: r.host_api_ns),
        _Column("device_ops", "device ops", "count", lambda r: r.device_ops),
    )
    note = "Whole recording. Self leaves out what an operator calls; total includes it."
    return _table("operators", "Operators", columns, answer.rows, note)


def kernel_table(trace: Trace) -> ResultTable:
    """Kernels by time."""
    answer = kernels(trace)
    columns: tuple[_Column[KernelRow], ...] = (
        _Column("name", "kernel", "", lambda r: r.short_name),
        _Column("total_ns", "total", "ns", lambda r: r.total_ns),
        _Column("share", "share", "ratio", answer.share),
        _Column("calls", "calls", "count", lambda r: r.calls),
        _Column("median_ns", "median", "ns", lambda r: r.median_ns),
        _Column("category", "kind", "", lambda r: r.category.label),
        _Column("precision", "format", "", lambda r: r.precision and r.precision.label),
        _Column("p90_ns", "90th pct", "ns", lambda r: r.p90_ns),
        _Column("operators", "launched by", "", lambda r: ", ".join(r.operators)),
        _Column("full_name", "full name", "", lambda r: r.name),
    )
    note = "Whole recording. Kernels on different streams may overlap."
    return _table("kernels", "Kernels", columns, answer.rows, note)


def source_lines(trace: Trace) -> ResultTable | None:
    """Functions of the program by device time; None if the recording has no stacks."""
    answer = source_table(trace)
    if isinstance(answer, NotRecorded):
        return None
    columns: tuple[_Column[SourceRow], ...] = (
        _Column("function", "function", "", lambda r: r.frame.function),
        _Column("place", "file", "", lambda r: f"{r.frame.file}:{r.frame.line}"),
        _Column("device_ns", "device", "ns", lambda r: r.device_ns),
        _Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        _Column("calls", "calls", "count", lambda r: r.calls),
        _Column("host_total_ns", "host total", "ns", lambda r: r.host_total_ns),
        _Column("device_forward_ns", "forward", "ns", lambda r: r.device_forward_ns),
        _Column("device_backward_ns", "backward", "ns", lambda r: r.device_backward_ns),
    )
    note = "Whole recording. Device time is charged to the innermost function outside the framework"
    note += ", that of the backward pass to the function whose forward operator it differentiates."
    return _table("source", "Source", columns, answer.rows, note)


def module_table(trace: Trace) -> ResultTable | None:
    """The tree of modules, indented; None if the recording does not show modules."""
    answer = modules(trace)
    if isinstance(answer, NotRecorded):
        return None
    columns: tuple[_Column[ModuleRow], ...] = (
        _Column("module", "module", "", lambda r: "  " * r.depth + r.name),
        _Column("device_forward_ns", "forward", "ns", lambda r: r.device_forward_ns),
        _Column("device_backward_ns", "backward", "ns", lambda r: r.device_backward_ns),
        _Column("host_total_ns", "host", "ns", lambda r: r.host_total_ns),
        _Column("calls", "calls", "count", lambda r: r.calls),
        _Column("forward_self_ns", "forward self", "ns", lambda r: r.device_forward_self_ns),
        _Column("backward_self_ns", "backward self", "ns", lambda r: r.device_backward_self_ns),
        _Column("host_self_ns", "host self", "ns", lambda r: r.host_self_ns),
        _Column("path", "path", "", lambda r: r.path),
    )
    note = "Whole recording. Inside a module come the modules that it calls."
    return _table("modules", "Modules", columns, answer.rows, note)


def _table(
    id_: str, title: str, columns: Sequence[_Column[Row]], rows: Sequence[Row], note: str = ""
) -> ResultTable:
    shown = rows[:MOST_ROWS]
    return ResultTable(
        id=id_,
        title=title,
        columns=tuple(TableColumn(id=c.id, label=c.label, unit=c.unit) for c in columns),
        rows=tuple(_values(row, columns) for row in shown),
        note=note,
        rows_left_out=len(rows) - len(shown),
    )


def _values(row: Row, columns: Iterable[_Column[Row]]) -> tuple[Any, ...]:
    return tuple(_bounded(column.value(row)) for column in columns)


def _bounded(value: Any) -> Any:
    return value[:LONGEST_NAME] if isinstance(value, str) else value
