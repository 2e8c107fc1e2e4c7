"""The pieces of the steps summed by what they are: operation by operation, cause by cause."""

from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.device.activity import COPIES, ORDER, device_activity
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.analysis.host.launches import issued, own_work
from pinchpoint.analysis.host.source_lines import Place, place, places
from pinchpoint.analysis.statistics import share_out
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.compare.noise import FEWEST_STEPS
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Ints, Mask, NameIds

# ------------------------------------------------------------------------------------------------
# Every nanosecond of the steps, given to one device operation or to one cause of idling.
#
# It follows the accounting: an instant belongs to the category that ``device_activity`` gives it
# to, and within the category to the operation that started first. So the pieces of a category add
# up to its part of the breakdown, in integers.


NO_OP = -1  # no row: the device was idle


@dataclass(frozen=True, eq=False)
class StepPieces:
    """Arrays of one length, one element a piece.

    ``op`` is the row of ``device_ops``, NO_OP for idle time; ``gap`` the position in ``gaps``,
    NO_OP for device work.
    """

    step: Ints
    ns: Ints
    op: Ints
    gap: Ints


def counted_steps(trace: Trace) -> Mask:
    """Complete steps from the first typical one on: before it the recording has just begun.

    All complete ones where that leaves too few to see a spread.
    """
    found = steps(trace)
    begun = np.maximum.accumulate(found.typical) if len(found) else found.typical
    counted: Mask = found.complete & begun
    return counted if int(counted.sum()) >= FEWEST_STEPS else found.complete


@once_per_trace
def step_pieces(trace: Trace) -> StepPieces:
    """All pieces of all step windows; none without a device."""
    windows = steps(trace)
    ops = trace.device_ops
    nothing = np.zeros(0, np.int64)
    if ops is None or not len(ops) or not len(windows):
        return StepPieces(nothing, nothing, nothing, nothing)
    category = category_of_device_ops(trace)
    own = own_work(trace)
    found = [
        _of_category(
            np.flatnonzero(own & (category == code)),
            ops["start_ns"],
            ops.end_ns,
            device_activity(trace).exclusive[code],
            windows.start_ns,
            windows.end_ns,
        )
        for code in ORDER
        if code in device_activity(trace).exclusive
    ]
    idle = gaps(trace)
    at = np.arange(len(idle), dtype=np.int64)
    found.append(StepPieces(idle.step, idle.duration_ns, np.full(len(idle), NO_OP), at))
    return StepPieces(
        *(np.concatenate([getattr(f, name) for f in found]) for name in StepPieces.__annotations__)
    )


def _of_category(
    rows: Ints, start: Ints, end: Ints, when: iv.Intervals, low: Ints, high: Ints
) -> StepPieces:
    rows = rows[np.argsort(start[rows], kind="stable")]
    first, last = start[rows], end[rows]
    reach = np.maximum.accumulate(last)
    covered = np.concatenate(([np.iinfo(np.int64).min], reach[:-1]))
    first = np.maximum(first, covered)  # what an earlier one of the category covers is its own
    lasting = last > first
    rows, first, last = rows[lasting], first[lasting], last[lasting]
    # A piece may reach into the next step's window: one part a window.
    begin = np.searchsorted(high, first, "right")
    until = np.searchsorted(low, last, "left")
    count = np.maximum(until - begin, 0)
    which = np.repeat(np.arange(len(rows)), count)
    window = begin[which] + np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    a = np.maximum(first[which], low[window])
    b = np.minimum(last[which], high[window])
    ns = iv.covered_before(when, b) - iv.covered_before(when, a)
    kept = ns > 0
    return StepPieces(
        window[kept], ns[kept], rows[which][kept], np.full(int(kept.sum()), NO_OP, np.int64)
    )


# ------------------------------------------------------------------------------------------------
# The pieces of the steps summed by what they are: operation by operation, cause by cause.


NOBODY = ""


@dataclass(frozen=True)
class Key:
    """What a group is. Device work: its part and the operator (or kernel, where no operator is
    known). Idle time: its kind and the operator around the responsible row."""

    group: str  # device, exposed, idle: as in the breakdown
    part: str
    what: str


@dataclass(frozen=True, eq=False)
class Group:
    """Time of one key; arrays have one element a step window."""

    key: Key
    by_step_ns: Ints
    count_by_step: Ints
    kernels: dict[str, int]  # short name: ns over the typical steps, for device work
    place: Place | None  # of most of the time, for idle time


@dataclass(frozen=True, eq=False)
class StepGroups:
    """All groups; ``mean_ns`` (one element a group) adds up to the typical step exactly."""

    groups: tuple[Group, ...]
    mean_ns: Ints
    typical: Mask
    counted: Mask  # of ``counted_steps``
    typical_ns: int


@dataclass(frozen=True, eq=False)
class Operations:
    """Device operations of all steps, described by texts."""

    kernel: tuple[str, ...]  # of distinct kernels
    kernel_of: Ints  # position in ``kernel``, one element a row of device_ops
    operator: tuple[str, ...]
    operator_of: Ints
    category_of: Ints


@once_per_trace
def operations(trace: Trace) -> Operations:
    """Names of every device operation: short kernel name and innermost operator."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or not len(ops):
        nothing = np.zeros(0, np.int64)
        return Operations((), nothing, (), nothing, nothing)
    distinct, kernel = np.unique(ops["name"], return_inverse=True)
    shorts = [short_kernel_name(trace.names[i]) for i in distinct.tolist()]
    names, position = np.unique(shorts, return_inverse=True)
    launcher = launching_operators(trace)
    host_names = host["name"] if host is not None else np.zeros(0, np.int32)
    known = launcher < len(host_names)
    by_name = np.full(len(ops), -1, np.int64)
    by_name[known] = host_names[launcher[known]]
    distinct_ops, operator = np.unique(by_name, return_inverse=True)
    texts = tuple(trace.names[i] if i >= 0 else NOBODY for i in distinct_ops.tolist())
    return Operations(
        tuple(str(n) for n in names),
        position[kernel].astype(np.int64),
        texts,
        operator.astype(np.int64),
        category_of_device_ops(trace).astype(np.int64),
    )


def step_groups(trace: Trace) -> StepGroups:
    """Group every piece; empty if the trace has no device work in steps."""
    windows, pieces = steps(trace), step_pieces(trace)
    typical_ns = windows.typical_ns or 0
    n = len(windows)
    device = np.flatnonzero(pieces.op != NO_OP)
    idle = np.flatnonzero(pieces.op == NO_OP)
    groups = [*_device_groups(trace, device, n), *_idle_groups(trace, idle, n)]
    if not groups:
        return StepGroups(
            (), np.zeros(0, np.int64), windows.typical, counted_steps(trace), typical_ns
        )
    sums = np.array([int(g.by_step_ns[windows.typical].sum()) for g in groups], np.int64)
    mean = share_out(sums, int(windows.typical.sum()), typical_ns)
    return StepGroups(tuple(groups), mean, windows.typical, counted_steps(trace), typical_ns)


def _device_groups(trace: Trace, pieces: Ints, n: int) -> list[Group]:
    if not len(pieces):
        return []
    all_pieces, of = step_pieces(trace), operations(trace)
    op, step, ns = all_pieces.op[pieces], all_pieces.step[pieces], all_pieces.ns[pieces]
    unnamed = np.array([text == NOBODY for text in of.operator])[of.operator_of[op]]
    who = np.where(unnamed, len(of.operator) + of.kernel_of[op], of.operator_of[op])
    code = of.category_of[op] * (len(of.operator) + len(of.kernel)) + who
    found = []
    for members in _members(code):
        found.append(
            Group(
                key_of(trace, int(op[members[0]])),
                _sums(step[members], ns[members], n),
                _distinct_count(op[members], step[members], n),
                _kernel_times(of, op[members], ns[members]),
                None,
            )
        )
    return found


def key_of(trace: Trace, row: int) -> Key:
    """The group of one device operation."""
    of = operations(trace)
    operator = of.operator[of.operator_of[row]]
    what = operator if operator != NOBODY else of.kernel[of.kernel_of[row]]
    return Key(*_part(Category(int(of.category_of[row]))), what)


def _part(category: Category) -> tuple[str, str]:
    """As the breakdown names them."""
    if category == Category.COLLECTIVE:
        return "exposed", "exposed-communication"
    if category in COPIES:
        return "exposed", f"exposed-{category.id}"
    return "device", category.id


def _idle_groups(trace: Trace, pieces: Ints, n: int) -> list[Group]:
    if not len(pieces):
        return []
    all_pieces, idle, around = step_pieces(trace), gaps(trace), places(trace)
    at = all_pieces.gap[pieces]
    step, ns, row = all_pieces.step[pieces], all_pieces.ns[pieces], idle.row[at]
    operator, frame = around.operator[row], around.frame[row]
    code = idle.kind[at].astype(np.int64) * (len(trace.names) + 1) + operator + 1
    found = []
    for members in _members(code):
        kind = GapKind(int(idle.kind[at[members[0]]]))
        name = int(operator[members[0]])
        what = trace.names[name] if name >= 0 else NOBODY
        heaviest = _heaviest(frame[members], ns[members])
        found.append(
            Group(
                Key("idle", kind.id, what),
                _sums(step[members], ns[members], n),
                _distinct_count(idle.gap[at[members]], step[members], n),
                {},
                place(trace, heaviest, -1, name, -1),
            )
        )
    return found


def _members(code: Ints) -> list[Ints]:
    order = np.argsort(code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order])) + 1
    return np.split(order, edges)


def _sums(step: Ints, ns: Ints, n: int) -> Ints:
    total = np.zeros(n, np.int64)
    np.add.at(total, step, ns)
    return total


def _distinct_count(what: Ints, step: Ints, n: int) -> Ints:
    """How many different ones each step has; a piece may be cut into several."""
    pairs = np.unique(np.stack((step, what), axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=n).astype(np.int64)


def _kernel_times(of: Operations, op: Ints, ns: Ints) -> dict[str, int]:
    total = np.zeros(len(of.kernel), np.int64)
    np.add.at(total, of.kernel_of[op], ns)
    order = np.argsort(-total, kind="stable")
    return {of.kernel[i]: int(total[i]) for i in order.tolist() if total[i] > 0}


def _heaviest(names: NameIds, ns: Ints) -> int:
    distinct, position = np.unique(names, return_inverse=True)
    return int(distinct[np.argmax(np.bincount(position, weights=ns))])


def typical_step(trace: Trace) -> int:
    """The position of the typical step whose duration is nearest to the typical one."""
    windows = steps(trace)
    rows = np.flatnonzero(windows.typical)
    away = np.abs((windows.end_ns - windows.start_ns)[rows] - (windows.typical_ns or 0))
    return int(rows[np.argmin(away)])


def in_issue_order(trace: Trace, step: int) -> Ints:
    """Rows of the device operations with time in a step, in the order in which they were issued."""
    pieces = step_pieces(trace)
    rows = np.unique(pieces.op[(pieces.step == step) & (pieces.op != NO_OP)])
    asked = issued(trace).start_ns[rows]
    ordered: Ints = rows[np.argsort(asked, kind="stable")]
    return ordered


def shared_numbers(a: Sequence[str], b: Sequence[str]) -> tuple[Ints, Ints]:
    """Numbers for texts such that equal texts of both sides have the same."""
    number: dict[str, int] = {}
    both = [[number.setdefault(text, len(number)) for text in side] for side in (a, b)]
    return np.array(both[0], np.int64), np.array(both[1], np.int64)
