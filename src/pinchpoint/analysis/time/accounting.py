"""Where a step's time goes: every nanosecond of each step window exactly once.

With a device: what the device did, by category, and its idle time by kind of gap. Without one:
what the thread that runs the steps did, seen through hand-overs to the autograd thread.
"""

import numpy as np

from pinchpoint.analysis.device.activity import COPIES, ORDER, device_activity
from pinchpoint.analysis.device.categories import Category, by_distinct
from pinchpoint.analysis.device.kernel_names import category_of_operator
from pinchpoint.analysis.host.timeline import NO_ROW, HostPieces, host_rows
from pinchpoint.analysis.statistics import share_out
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.time.gaps import gaps, host_did
from pinchpoint.analysis.time.host_activity import GapKind, activity, waits_for_xla
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Codes, Ints, Mask


@dataclass(frozen=True)
class StepPart:
    """One kind of time in a step."""

    id: str  # stable, kebab case
    label: str  # for people
    group: str  # device, exposed, idle, host


@dataclass(frozen=True, eq=False)
class Breakdown:
    """The parts of the steps, most time first.

    ``ns_per_step`` adds up to the typical step exactly; row *i* of ``by_step`` (shape
    ``(steps, parts)``) to the window of step *i*. Empty if there is no step window.
    """

    parts: tuple[StepPart, ...]
    ns_per_step: Ints
    by_step: Ints
    typical_ns: int | None

    def of_group(self, group: str) -> int:
        """Time a typical step spends in all parts of a group."""
        return sum(
            int(ns)
            for part, ns in zip(self.parts, self.ns_per_step, strict=True)
            if part.group == group
        )

    def of_part(self, part_id: str) -> int:
        """Time a typical step spends in one part; 0 if it has no such part."""
        return sum(
            int(ns)
            for part, ns in zip(self.parts, self.ns_per_step, strict=True)
            if part.id == part_id
        )


@once_per_trace
def breakdown(trace: Trace) -> Breakdown:
    """The accounting of all steps, and of the typical one."""
    windows = steps(trace)
    if not len(windows) or windows.typical_ns is None:
        return Breakdown((), np.zeros(0, np.int64), np.zeros((0, 0), np.int64), None)
    ops = trace.device_ops
    with_device = ops is not None and len(ops) > 0
    columns = _device_columns(trace, windows) if with_device else _host_columns(trace, windows)
    columns = {part: column for part, column in columns.items() if column.any()}
    parts = tuple(columns)
    by_step = np.zeros((len(windows), len(parts)), np.int64)
    for position, part in enumerate(parts):
        by_step[:, position] = columns[part]
    typical = windows.typical
    mean = share_out(by_step[typical].sum(axis=0), int(typical.sum()), windows.typical_ns)
    order = np.argsort(-mean, kind="stable")
    return Breakdown(
        parts=tuple(parts[i] for i in order),
        ns_per_step=mean[order],
        by_step=by_step[:, order],
        typical_ns=windows.typical_ns,
    )


def _within(when: iv.Intervals, windows: Steps) -> Ints:
    inside: Ints = iv.covered_before(when, windows.end_ns) - iv.covered_before(
        when, windows.start_ns
    )
    return inside


def _device_columns(trace: Trace, windows: Steps) -> dict[StepPart, Ints]:
    columns = {}
    for category in ORDER:
        when = device_activity(trace).exclusive.get(category)
        if when is not None:
            columns[device_part(category)] = _within(when, windows)
    idle = gaps(trace)
    table = np.zeros((len(windows), max(GapKind) + 1), np.int64)
    np.add.at(table, (idle.step, idle.kind), idle.duration_ns)
    for kind in GapKind:
        columns[StepPart(kind.id, f"idle: {kind.label}", "idle")] = table[:, kind]
    return columns


def device_part(category: Category) -> StepPart:
    """The part of a step that operations of a category make up."""
    if category == Category.COLLECTIVE:
        return StepPart("exposed-communication", "communication, not overlapped", "exposed")
    if category in COPIES:
        return StepPart(f"exposed-{category.id}", f"{category.label}, not overlapped", "exposed")
    return StepPart(category.id, category.label, "device")


def _host_columns(trace: Trace, windows: Steps) -> dict[StepPart, Ints]:
    thread = np.full(len(windows), windows.thread, np.int64)
    did = host_did(trace, thread, windows.start_ns, windows.end_ns)
    kind = activity(trace)[did.row]
    work = _operator_category(trace)[did.row]
    awaited = _for_compiled_programs(trace, did)
    # One code for both vocabularies: kinds of gap first, then categories of operators.
    code = np.where(kind == GapKind.DISPATCH, np.int64(max(GapKind)) + 1 + work, kind)
    table = np.zeros((len(windows), max(GapKind) + 2 + max(Category)), np.int64)
    elsewhere = _on_other_threads(trace, windows.thread, did, kind)
    rest = did.end_ns - did.start_ns - elsewhere
    np.add.at(table, (did.asked, code), np.where(awaited, 0, rest))
    columns = {
        part: np.bincount(did.asked, of, len(windows)).astype(np.int64)
        for part, of in ((_elsewhere(trace), elsewhere), (AWAITED, np.where(awaited, rest, 0)))
    }
    for position in np.flatnonzero(table.any(axis=0)).tolist():
        columns[_host_part(position)] = table[:, position]
    return columns


# XLA's threads then wait for a core, or do what is in no event.
AWAITED = StepPart("host-awaited", "waits for compiled programs, which show nothing", "host")


def _for_compiled_programs(trace: Trace, did: HostPieces) -> Mask:
    """Pieces in which the thread waits for what XLA computes without a device."""
    compiled, rows = trace.compiled_ops, host_rows(trace)
    if compiled is None or not len(compiled):
        return np.zeros(len(did.row), np.bool_)
    waits = by_distinct(trace.names, rows.name, lambda name: waits_for_xla(name) is not None)
    found: Mask = np.append(waits.astype(np.bool_), False)[did.row]
    return found


def _elsewhere(trace: Trace) -> StepPart:
    compiled = trace.compiled_ops is not None and len(trace.compiled_ops)
    what = (
        "compiled programs, on threads of their own" if compiled else "operators on other threads"
    )
    return StepPart("host-elsewhere", what, "host")


_SAY_NOTHING = (GapKind.PYTHON, GapKind.WAIT, GapKind.UNRECORDED)


def _on_other_threads(trace: Trace, thread: int, did: HostPieces, kind: Codes) -> Ints:
    """Time of each piece in which this thread shows nothing of its own and others run operators.

    JAX on CPUs computes in threads of its own while the program waits, in a function that says so,
    or runs ahead.
    """
    host = trace.host_ops
    if host is None:
        return np.zeros(len(did.row), np.int64)
    frames = np.append(host["kind"] == HostKind.PYTHON, False)
    by_a_frame = frames[np.where(did.row < len(host), did.row, NO_ROW)]
    quiet = np.isin(kind, _SAY_NOTHING) & (~by_a_frame | (kind == GapKind.WAIT))
    others = (host["kind"] == HostKind.OPERATOR) & (host["thread"] != thread)
    working = iv.flatten(host["start_ns"][others], host.end_ns[others])
    inside = iv.covered_before(working, did.end_ns) - iv.covered_before(working, did.start_ns)
    found: Ints = np.where(quiet, inside, 0)
    return found


OTHER_OPERATORS = StepPart("host-operators", "other operators", "host")


def _host_part(position: int) -> StepPart:
    if position <= max(GapKind):
        kind = GapKind(position)
        return StepPart(kind.id.replace("idle-", "host-"), kind.label, "host")
    code = position - max(GapKind) - 1
    if not code:
        return OTHER_OPERATORS
    category = Category(code)
    return StepPart(f"host-{category.id}", f"operators: {category.label}", "host")


def _operator_category(trace: Trace) -> Ints:
    """For each of ``host_rows`` the category that its name hints at, 0 for none; last: no row."""
    rows = host_rows(trace)
    code = by_distinct(trace.names, rows.name, category_of_operator)
    return np.append(code, np.uint8(0)).astype(np.int64)
