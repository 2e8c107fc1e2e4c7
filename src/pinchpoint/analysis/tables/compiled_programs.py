"""Compiled programs and their operations (XLA's HLO): what each costs, and how fast it computes."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Rows

_NUMBERED = regex(r"[._]?\d+$")  # fusion.3, command_buffer_1


@dataclass(frozen=True)
class CompiledOp:
    """All runs of one operation of one program, on all devices."""

    module: str | None
    op: str
    category: str  # as recorded, else the operation's name without its number
    source: str | None
    calls: int
    total_ns: int
    flops_per_s: float | None  # where the recording counts them for each run
    bytes_per_s: float | None


@dataclass(frozen=True)
class CompiledModule:
    """One compiled program."""

    name: str | None
    total_ns: int
    ops: int  # different ones
    calls: int  # runs of them


@once_per_trace
def compiled_ops(trace: Trace) -> tuple[CompiledOp, ...]:
    """The operations, most time first; none where the recording has no compiled program."""
    rows = trace.compiled_ops
    if rows is None:
        return ()
    key = np.stack([rows.filled("module", -1), rows["op"]])
    _, first, group = np.unique(key, axis=1, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    calls, total = np.bincount(group), np.bincount(group, rows["duration_ns"])
    rates = {what: _rates(rows, what, group, total) for what in ("flops", "bytes")}
    found = [
        CompiledOp(
            module=trace.text(rows, "module", row),
            op=trace.text(rows, "op", row) or "",
            category=trace.text(rows, "category", row) or _kind(trace.text(rows, "op", row) or ""),
            source=trace.text(rows, "source", row),
            calls=int(calls[i]),
            total_ns=int(total[i]),
            flops_per_s=rates["flops"][i],
            bytes_per_s=rates["bytes"][i],
        )
        for i, row in enumerate(first.tolist())
    ]
    return tuple(sorted(found, key=lambda o: -o.total_ns))


@once_per_trace
def compiled_modules(trace: Trace) -> tuple[CompiledModule, ...]:
    """The programs, most time first."""
    of: dict[str | None, list[CompiledOp]] = {}
    for op in compiled_ops(trace):
        of.setdefault(op.module, []).append(op)
    found = [
        CompiledModule(name, sum(o.total_ns for o in ops), len(ops), sum(o.calls for o in ops))
        for name, ops in of.items()
    ]
    return tuple(sorted(found, key=lambda m: -m.total_ns))


def _kind(op: str) -> str:
    """XLA names a fusion after what it fuses."""
    name = _NUMBERED.sub("", op) or op
    return "fusion" if name.endswith("fusion") else name


def _rates(
    rows: Table, what: str, group: Rows, total_ns: NDArray[np.generic]
) -> list[float | None]:
    """Amount a second of each group; None unless every run of it says how much."""
    known = rows.known(what)
    amount = np.bincount(group, np.where(known, rows.filled(what, 0), 0).astype(np.float64))
    missing = np.bincount(group, ~known) > 0
    return [
        None if lacks or not ns else float(done) / float(ns) * 1e9
        for lacks, ns, done in zip(
            missing.tolist(), total_ns.tolist(), amount.tolist(), strict=True
        )
    ]
