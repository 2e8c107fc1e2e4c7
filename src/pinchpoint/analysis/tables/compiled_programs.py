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
from pinchpoint.trace.arrays import Mask, Rows
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
    at_line = {o.op: _line(o.source) for o in compiled_ops(trace)}
    took: dict[str, Counter[str]] = {}
    calls: Counter[str] = Counter()
    for name, own_ns, count in _own_on_host(trace):
        if (line := at_line[name]) is not None:
            took.setdefault(line, Counter())[name] += own_ns
            calls[line] += count
    whole, busy = sum(own for _, own, _ in _own_on_host(trace)), _busy_on_host_ns(trace)
    found = [
        CompiledPlace(
            line,
            tuple(name for name, _ in ops.most_common()),
            per_step(trace, calls[line]),
            round(ops.total() / max(whole, 1) * busy),
        )
        for line, ops in took.items()
    ]
    return tuple(sorted(found, key=lambda place: -place.ns_per_step))


@once_per_trace
def pulled_back_ns(trace: Trace) -> tuple[int, int]:
    """Of a step, the time of passes back that ``vmap`` repeats, and of all compiled operations: on
    the device, or on the CPU of a program that has none."""
    rows = trace.compiled_ops
    if rows is None or not len(judged_steps(trace)):
        return 0, 0
    mine = rows.filled("pulled_back", False).astype(np.bool_)
    if trace.device_ops is not None and len(trace.device_ops):
        took = trace.device_ops["duration_ns"]
        of_it = int(took[pulled_back_rows(trace)].sum())
        whole = int(took[(compiled_rows(trace) >= 0) & device_ops_in_steps(trace)].sum())
        return round(per_step(trace, of_it)), round(per_step(trace, whole))
    names = {trace.names[number] for number in np.unique(rows["op"][mine]).tolist()}
    own = Counter({name: ns for name, ns, _ in _own_on_host(trace)})
    busy, whole = _busy_on_host_ns(trace), max(own.total(), 1)
    return round(sum(own[name] for name in names) / whole * busy), round(busy)


@once_per_trace
def pulled_back_rows(trace: Trace) -> Rows:
    """Of judged steps, the rows of ``device_ops`` that are passes back which ``vmap`` repeats."""
    compiled = trace.compiled_ops
    if trace.device_ops is None or compiled is None or not len(compiled):
        return np.zeros(0, np.intp)
    row, mine = compiled_rows(trace), compiled.filled("pulled_back", False).astype(np.bool_)
    return np.flatnonzero((row >= 0) & mine[row] & device_ops_in_steps(trace))


@once_per_trace
def _own_on_host(trace: Trace) -> tuple[tuple[str, int, int], ...]:
    """Of each compiled operation in the judged steps of a program without a device: its name, its
    time without those inside, and how often it ran."""
    host, rows = trace.host_ops, trace.compiled_ops
    if trace.devices or host is None or rows is None or not len(judged_steps(trace)):
        return ()
    compiled = _compiled_on_host(trace)
    around = above(parents(host), compiled)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, around[compiled], host["duration_ns"][compiled])
    own = np.maximum(host["duration_ns"] - inside[:-1], 0)
    at = np.flatnonzero(compiled)
    took = np.bincount(host["name"][at], own[at], len(trace.names))
    count = np.bincount(host["name"][at], minlength=len(trace.names))
    return tuple(
        (trace.names[name], int(took[name]), int(count[name]))
        for name in np.flatnonzero(count).tolist()
    )


def _compiled_on_host(trace: Trace) -> Mask:
    host, known = trace.host_ops, {o.op for o in compiled_ops(trace)}
    assert host is not None
    found: Mask = rows_named(trace, host, known.__contains__) & rows_in_steps(trace, host)
    return found


def _busy_on_host_ns(trace: Trace) -> float:
    """Of a step, while any thread is at a compiled operation."""
    host = trace.host_ops
    if host is None or trace.devices:
        return 0.0
    at = np.flatnonzero(_compiled_on_host(trace))
    return per_step(trace, flatten(host["start_ns"][at], host.end_ns[at]).total)


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
