"""Compiled programs and their operations (XLA's HLO): what each costs, and how fast it computes."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.steps.in_steps import (
    device_ops_in_steps,
    judged_steps,
    per_step,
    rows_in_steps,
)
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.intervals import flatten
from pinchpoint.trace.names import rows_named

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


@dataclass(frozen=True)
class CompiledPlace:
    """Operations of compiled programs that come from one line, of a program on the CPU alone."""

    source: str  # file:line
    ops: tuple[str, ...]  # most time first
    calls: float  # a step
    ns_per_step: int  # of the time in which compiled programs compute, its part


@once_per_trace
def compiled_lines(trace: Trace) -> dict[str, int]:
    """By line (file:line) the time a step of the compiled operations that come from it: on the
    device, and on the CPU of a program that has none."""
    found = {place.source: place.ns_per_step for place in compiled_on_host(trace)}
    ops, rows = trace.device_ops, trace.compiled_ops
    if ops is None or rows is None or not len(judged_steps(trace)):
        return found
    row = compiled_rows(trace)
    took = np.where((row >= 0) & device_ops_in_steps(trace), ops["duration_ns"], 0)
    source = np.where(row >= 0, rows.filled("source", -1)[row], -1)
    for number in np.unique(source[took > 0]).tolist():
        line = _line(trace.names[number]) if number >= 0 else None
        if line is not None:
            ns = round(per_step(trace, int(took[source == number].sum())))
            found[line] = found.get(line, 0) + ns
    return found


@once_per_trace
def compiled_on_host(trace: Trace) -> tuple[CompiledPlace, ...]:
    """Most time first; none where no line is known, there is a device, or no step.

    Several threads work at a program, so a line has its share of the time in which any of them
    does.
    """
    host, rows = trace.host_ops, trace.compiled_ops
    if trace.devices or host is None or rows is None or not len(judged_steps(trace)):
        return ()
    at_line = {o.op: _line(o.source) for o in compiled_ops(trace)}
    compiled = rows_named(trace, host, at_line.__contains__) & rows_in_steps(trace, host)
    around = above(parents(host), compiled)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, around[compiled], host["duration_ns"][compiled])
    own = np.maximum(host["duration_ns"] - inside[:-1], 0)
    at = np.flatnonzero(compiled)
    works_ns = flatten(host["start_ns"][at], host.end_ns[at]).total
    busy, whole = per_step(trace, works_ns), max(int(own[at].sum()), 1)
    took: dict[str, Counter[str]] = {}
    calls: Counter[str] = Counter()
    for row in at.tolist():
        name = trace.names[host["name"][row]]
        if (line := at_line[name]) is not None:
            took.setdefault(line, Counter())[name] += int(own[row])
            calls[line] += 1
    found = [
        CompiledPlace(
            line,
            tuple(name for name, _ in ops.most_common()),
            per_step(trace, calls[line]),
            round(ops.total() / whole * busy),
        )
        for line, ops in took.items()
    ]
    return tuple(sorted(found, key=lambda place: -place.ns_per_step))


_PLACE = regex(r"([^,\n]+:\d{1,7})(,|$)")


def _line(source: str | None) -> str | None:
    found = _PLACE.match(source or "")
    return found[1] if found else None


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
