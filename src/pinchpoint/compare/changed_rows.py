"""Operation by operation and cause by cause: what appeared, what went, what got slower."""

from collections.abc import Mapping

import msgspec
import numpy as np

from pinchpoint.analysis.host.source_lines import Place
from pinchpoint.compare.alignment import NO_NAME, NO_PARTNER, Sequence, align
from pinchpoint.compare.noise import noise
from pinchpoint.compare.step_groups import (
    NO_OP,
    NOBODY,
    Key,
    Operations,
    StepGroups,
    in_issue_order,
    key_of,
    operations,
    shared_numbers,
    step_groups,
    step_pieces,
    typical_step,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints

KERNELS_SHOWN = 3  # of a row, those with most time: they say which implementation ran
UNSURE_WEIGHT = 0.5  # in the order of rows: what may be noise does not lead over what is not


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """Device operations of a typical step of each side, partner by partner."""

    a: int
    b: int
    matched: int
    kernel_changed: int  # of the matched ones
    went: int
    appeared: int


class ChangedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One operation or one cause of idling.

    ``change_ns`` is ``appeared_ns - went_ns + moved_ns``; ``moved_ns`` is what operations with a
    partner changed by. For idle time all of it is ``moved_ns``.
    """

    group: str  # device, exposed, idle
    part: str
    what: str  # operator, else kernel; for idle time the operator that the host was in, or ""
    a_ns: int
    b_ns: int
    change_ns: int
    appeared_ns: int
    went_ns: int
    moved_ns: int
    a_count: float  # a typical step
    b_count: float
    noise_ns: int | None  # half width of the 95 % interval, from step to step
    sure: bool | None  # it is more than noise; null: too few steps to tell
    a_kernels: tuple[str, ...] = ()
    b_kernels: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None
    function: str | None = None


def changed_rows(a: Trace, b: Trace) -> tuple[tuple[ChangedRow, ...], Matched | None]:
    """Rows whose changes add up to the change of the typical step, largest first.

    A change that steps show by themselves counts for half of one that is more than that. None
    where a side has no device work in steps.
    """
    left, right = step_groups(a), step_groups(b)
    if not left.groups or not right.groups:
        return (), None
    pairing = _paired(a, b)
    ours, theirs = _by_key(left, {}), _by_key(right, pairing.renamed)
    rows = [
        _row(
            key,
            ours.get(key) or _nothing(left),
            theirs.get(key) or _nothing(right),
            pairing.went_ns.get(key, 0),
            pairing.appeared_ns.get(key, 0),
        )
        for key in dict.fromkeys((*ours, *theirs))
    ]
    rows.sort(key=lambda r: -abs(r.change_ns) * (UNSURE_WEIGHT if r.sure is False else 1.0))
    return tuple(rows), pairing.matched


@dataclass(frozen=True, eq=False)
class _One:
    """A group of one side; ``counted_ns`` has one element a step that counts."""

    mean_ns: int
    count: float
    counted_ns: Ints
    kernels: tuple[str, ...]
    place: Place | None


def _by_key(side: StepGroups, renamed: Mapping[Key, Key]) -> dict[Key, _One]:
    """The groups of a side; those that get one name are put together."""
    found: dict[Key, _One] = {}
    for group, mean in zip(side.groups, side.mean_ns.tolist(), strict=True):
        key = renamed.get(group.key, group.key)
        one = _One(
            mean,
            float(group.count_by_step[side.typical].mean()),
            group.by_step_ns[side.counted],
            tuple(group.kernels),
            group.place,
        )
        before = found.get(key)
        found[key] = one if before is None else _together(before, one)
    return found


def _together(a: _One, b: _One) -> _One:
    return _One(
        a.mean_ns + b.mean_ns,
        a.count + b.count,
        a.counted_ns + b.counted_ns,
        (*a.kernels, *b.kernels),
        a.place or b.place,
    )


def _nothing(side: StepGroups) -> _One:
    return _One(0, 0.0, np.zeros(int(side.counted.sum()), np.int64), (), None)


def _row(key: Key, a: _One, b: _One, went_ns: int, appeared_ns: int) -> ChangedRow:
    change = b.mean_ns - a.mean_ns
    # What went was there and what appeared is: no more than all of it.
    went, appeared = min(went_ns, a.mean_ns), min(appeared_ns, b.mean_ns)
    spread = noise(a.counted_ns, b.counted_ns)
    place = b.place or a.place
    return ChangedRow(
        group=key.group,
        part=key.part,
        what=key.what,
        a_ns=a.mean_ns,
        b_ns=b.mean_ns,
        change_ns=change,
        appeared_ns=appeared,
        went_ns=went,
        moved_ns=change - appeared + went,
        a_count=a.count,
        b_count=b.count,
        noise_ns=spread.half_ns,
        sure=spread.sure,
        a_kernels=a.kernels[:KERNELS_SHOWN],
        b_kernels=b.kernels[:KERNELS_SHOWN],
        file=place.file if place else None,
        line=place.line if place else None,
        function=place.function if place else None,
    )


@dataclass(frozen=True, eq=False)
class _Pairing:
    """What the alignment of a typical step of each side says."""

    went_ns: Mapping[Key, int]  # time of operations without a partner
    appeared_ns: Mapping[Key, int]
    renamed: Mapping[Key, Key]  # keys of B that are another name for a key of A
    matched: Matched


def _paired(a: Trace, b: Trace) -> _Pairing:
    rows = [in_issue_order(t, typical_step(t)) for t in (a, b)]
    described = [operations(t) for t in (a, b)]
    kernel = shared_numbers(described[0].kernel, described[1].kernel)
    operator = shared_numbers(described[0].operator, described[1].operator)
    sequences = [
        _sequence(d, r, k, o) for d, r, k, o in zip(described, rows, kernel, operator, strict=True)
    ]
    partner = align(*sequences)
    has = partner != NO_PARTNER
    taken = np.zeros(len(rows[1]), np.bool_)
    taken[partner[has]] = True
    other = sequences[0].kernel[has] != sequences[1].kernel[partner[has]]
    renamed = _renamed(a, b, rows[0][has][other], rows[1][partner[has]][other])
    appeared = _time_by_key(b, rows[1][~taken])
    return _Pairing(
        went_ns=_time_by_key(a, rows[0][~has]),
        appeared_ns=_sum_renamed(appeared, renamed),
        renamed=renamed,
        matched=Matched(
            a=len(rows[0]),
            b=len(rows[1]),
            matched=int(has.sum()),
            kernel_changed=int(other.sum()),
            went=int((~has).sum()),
            appeared=int((~taken).sum()),
        ),
    )


def _renamed(a: Trace, b: Trace, left: Ints, right: Ints) -> dict[Key, Key]:
    """Keys that are kernel names, and that the alignment pairs with another name in A.

    Vendors and compilers name the same work differently. A key that A has too keeps its name.
    """
    known = {g.key for g in step_groups(a).groups}
    pairs: dict[Key, dict[Key, int]] = {}
    for i, j in zip(left.tolist(), right.tolist(), strict=True):
        ours, theirs = key_of(a, i), key_of(b, j)
        if theirs not in known and ours != theirs:
            votes = pairs.setdefault(theirs, {})
            votes[ours] = votes.get(ours, 0) + 1
    return {theirs: max(votes, key=lambda k: votes[k]) for theirs, votes in pairs.items()}


def _sum_renamed(times: Mapping[Key, int], renamed: Mapping[Key, Key]) -> dict[Key, int]:
    total: dict[Key, int] = {}
    for key, ns in times.items():
        name = renamed.get(key, key)
        total[name] = total.get(name, 0) + ns
    return total


def _sequence(of: Operations, rows: Ints, kernel: Ints, operator: Ints) -> Sequence:
    named = np.array([text != NOBODY for text in of.operator], np.bool_)
    who = of.operator_of[rows]
    return Sequence(
        kernel[of.kernel_of[rows]],
        np.where(named[who], operator[who], NO_NAME) if len(rows) else rows,
        of.category_of[rows],
    )


def _time_by_key(trace: Trace, rows: Ints) -> dict[Key, int]:
    pieces, step = step_pieces(trace), typical_step(trace)
    chosen = (pieces.step == step) & (pieces.op != NO_OP)
    ns = np.zeros(len(trace.device_ops or ()), np.int64)
    np.add.at(ns, pieces.op[chosen], pieces.ns[chosen])
    total: dict[Key, int] = {}
    for row in rows.tolist():
        key = key_of(trace, row)
        total[key] = total.get(key, 0) + int(ns[row])
    return total
