"""The table of collectives: what one rank can tell of its communication."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.collectives import Collectives, collectives
from pinchpoint.analysis.in_steps import judged_steps
from pinchpoint.report.document import ResultTable
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace import Trace


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
