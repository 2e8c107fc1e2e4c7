"""The tables of the document about time: steps, idle time, transfers, launches, waits."""

import numpy as np

from pinchpoint.analysis.statistics import Spread
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.launch_statistics import (
    LaunchStatistics,
    SyncRow,
    launch_statistics,
)
from pinchpoint.analysis.tables.transfers import TransferRow, transfers
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.idle_causes import IdleCause, idle_causes
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import MemoryKind, Trace, once_per_trace

_GROUPS = (
    ("device", "device works"),
    ("exposed", "exposed transfers"),
    ("idle", "device idle"),
    ("host", "host works"),
)


@dataclass(frozen=True)
class _StepRow:
    number: int
    duration_ns: int
    by_group: dict[str, int]
    complete: bool
    typical: bool


def step_table(trace: Trace) -> ResultTable | None:
    """Each step with what it is made of; None without steps."""
    found, parts = steps(trace), breakdown(trace)
    if found.how == "none" or not len(parts.parts):
        return None
    groups = np.array([part.group for part in parts.parts])
    sums = {g: parts.by_step[:, groups == g].sum(axis=1) for g in np.unique(groups).tolist()}
    rows = [
        _StepRow(
            number=int(found.number[i]),
            duration_ns=int(found.end_ns[i] - found.start_ns[i]),
            by_group={group: int(ns[i]) for group, ns in sums.items()},
            complete=bool(found.complete[i]),
            typical=bool(found.typical[i]),
        )
        for i in range(len(found))
    ]
    columns: tuple[Column[_StepRow], ...] = (
        Column("step", "step", "count", lambda r: r.number),
        Column("duration_ns", "duration", "ns", lambda r: r.duration_ns),
        *(_group_column(group, label) for group, label in _GROUPS if group in sums),
        Column("complete", "whole", "", lambda r: "yes" if r.complete else "partial"),
        Column("typical", "typical", "", lambda r: "yes" if r.typical else "no"),
    )
    note = f"A step runs from the completion of the one before to its own. Typical: {found.choice}."
    return result_table("steps", "Steps", columns, rows, note)


def _group_column(group: str, label: str) -> Column[_StepRow]:
    return Column(f"{group}_ns", label, "ns", lambda row: row.by_group[group])


@once_per_trace
def idle_causes_shown(trace: Trace) -> tuple[IdleCause, ...]:
    """The causes behind the rows of the table, in its order."""
    return idle_causes(trace)


def idle_table(trace: Trace) -> ResultTable:
    """Idle time of the typical step by cause and place."""
    whole = steps(trace).typical_ns or 0
    columns: tuple[Column[IdleCause], ...] = (
        Column("cause", "the device is idle", "", lambda c: c.kind.label),
        Column("ns_per_step", "a step", "ns", lambda c: c.ns_per_step),
        Column("share", "share", "ratio", lambda c: c.ns_per_step / whole if whole else None),
        Column("operator", "operator", "", lambda c: c.place.operator),
        Column("place", "where", "", _place),
        Column("gaps", "gaps a step", "count", lambda c: round(c.gaps_per_step, 2)),
        Column("module", "module", "", lambda c: c.place.module),
        Column("call", "longest: call", "", lambda c: c.name),
        Column("at_ns", "longest: at", "ns", lambda c: c.at_ns),
    )
    note = "Rows add up to the idle time of the typical step as recorded."
    return result_table("idle", "Idle time by cause", columns, idle_causes_shown(trace), note)


def _place(cause: IdleCause) -> str | None:
    where = cause.place
    if where.file is None:
        return where.annotation
    return f"{where.file}:{where.line} {where.function or ''}".rstrip()


def transfer_table(trace: Trace) -> ResultTable:
    """Copies by the memories they connect."""
    columns: tuple[Column[TransferRow], ...] = (
        Column("direction", "copies", "", lambda r: r.direction.label),
        Column("count", "count", "count", lambda r: r.count),
        Column("bytes", "size", "bytes", lambda r: r.bytes),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("rate", "rate", "GB/s", lambda r: r.bytes_per_s and r.bytes_per_s / 1e9),
        Column("overlapped", "hidden", "ratio", lambda r: r.overlapped_ratio),
        Column("host_blocked_ns", "host waits", "ns", lambda r: r.host_blocked_ns),
        Column("source", "from", "", lambda r: _memory(r.source)),
        Column("target", "to", "", lambda r: _memory(r.target)),
        Column(
            "median_bytes", "median size", "bytes", lambda r: r.size_bytes and r.size_bytes.median
        ),
    )
    note = "Whole recording. Hidden: the share of the time during which a kernel ran as well."
    return result_table("transfers", "Copies between memories", columns, transfers(trace), note)


def _memory(kind: MemoryKind | None) -> str | None:
    return None if kind is None else kind.name.lower()


def launch_table(trace: Trace) -> ResultTable:
    """How work is handed to the device: spreads of times."""
    answer = launch_statistics(trace)
    named = (
        ("time in a launching call, on the host", answer.launch_call_ns),
        ("from one launch to the next, without a wait", answer.interval_ns),
        ("from launch to start, device idle", answer.latency_ns),
        ("from launch to start, queueing included", answer.delay_ns),
        ("time of a kernel", answer.kernel_ns),
    )
    rows = [(label, values) for label, values in named if values is not None]
    columns: tuple[Column[tuple[str, Spread]], ...] = (
        Column("what", "what", "", lambda r: r[0]),
        Column("median_ns", "median", "ns", lambda r: r[1].median),
        Column("p90_ns", "90th pct", "ns", lambda r: r[1].p90),
        Column("least_ns", "least", "ns", lambda r: r[1].least),
        Column("most_ns", "most", "ns", lambda r: r[1].most),
        Column("count", "count", "count", lambda r: r[1].count),
    )
    return result_table("launches", "Launches", columns, rows, _counts(answer))


def _counts(answer: LaunchStatistics) -> str:
    said = [f"{answer.launches:,} launches of kernels", f"{answer.graph_launches:,} of graphs"]
    if answer.kernels:
        short = f"{100 * answer.short_kernels / answer.kernels:.0f} % of kernels are below 10 µs"
        said.append(short)
    return f"Whole recording: {', '.join(said)}."


def sync_table(trace: Trace) -> ResultTable:
    """Calls in which the host waits for the device."""
    columns: tuple[Column[SyncRow], ...] = (
        Column("call", "waiting call", "", lambda r: r.name),
        Column("total_ns", "total", "ns", lambda r: r.total_ns),
        Column("calls", "calls", "count", lambda r: r.calls),
        Column("operator", "operator", "", lambda r: r.operator),
        Column(
            "place",
            "where",
            "",
            lambda r: r.frame and f"{r.frame.file}:{r.frame.line} {r.frame.function}",
        ),
    )
    rows = launch_statistics(trace).syncs
    return result_table("waits", "Waits for the device", columns, rows, "Whole recording.")
