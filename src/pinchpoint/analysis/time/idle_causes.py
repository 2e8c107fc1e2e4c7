"""Idle time of the typical step, summed by cause and place: what a reader can act on."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pinchpoint.analysis.host.source_lines import Place, place, places
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.statistics import rounded_mean, share_out
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import Gaps, gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints

Aspect = Literal["frame", "module", "operator", "annotation"]

MOST_KEYS = 10_000_000  # numbers of eight bytes: a table of 80 MB at most

_ASPECTS: tuple[Aspect, ...] = ("frame", "module", "operator", "annotation")


@dataclass(frozen=True, eq=False)
class IdleCause:
    """Idle time with one kind and one place.

    ``place`` has the aspects that were grouped by, and those others that all members share.
    """

    kind: GapKind
    place: Place
    ns_per_step: int
    gaps_per_step: float  # how many gaps of the device it takes part in
    pieces: Ints  # positions in ``gaps(trace)``, of the chosen steps
    longest: int  # position in ``gaps(trace)`` of its longest piece
    at_ns: int  # where that begins
    name: str | None  # of the responsible call, operator or frame there


def idle_causes(
    trace: Trace, *, by: Sequence[Aspect] = ("frame", "operator"), all_steps: bool = False
) -> tuple[IdleCause, ...]:
    """Causes of idle time, most time first; they add up to the idle time of the typical step.

    With ``all_steps`` the mean of all complete steps is told, so that stalls which come once in
    many steps are seen; without a complete step that is the same as the typical one.
    """
    windows, found = steps(trace), gaps(trace)
    chosen = windows.complete if all_steps and windows.complete.any() else windows.typical
    pieces = np.flatnonzero(chosen[found.step]) if len(found) else np.zeros(0, np.int64)
    if not len(pieces):
        return ()
    n = int(chosen.sum())
    group = _groups(trace, found, pieces, by)
    lasting = found.end_ns[pieces] - found.start_ns[pieces]
    sums = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(sums, group, lasting)
    mean = share_out(sums, n, rounded_mean(int(sums.sum()), n))
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(sums) + 1))
    causes = [
        _cause(trace, found, pieces[order[edges[i] : edges[i + 1]]], int(mean[i]), n)
        for i in np.argsort(-mean, kind="stable").tolist()
    ]
    return tuple(causes)


def _groups(trace: Trace, found: Gaps, pieces: Ints, by: Sequence[Aspect]) -> Ints:
    around = places(trace)
    row = found.row[pieces]
    key = found.kind[pieces].astype(np.int64)
    for aspect in by:
        of_name = _numbered(getattr(around, aspect)[row] - NO_ROW)
        key = _numbered(key * (int(of_name.max()) + 1) + of_name)
    return key


def _numbered(values: Ints) -> Ints:
    """The same groups as small numbers from 0 without holes."""
    if int(values.max()) > MOST_KEYS:  # sorting is slower than a table, but needs no room for one
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    present = np.bincount(values) > 0
    numbers: Ints = np.cumsum(present) - 1
    return numbers[values]


def _cause(trace: Trace, found: Gaps, pieces: Ints, ns_per_step: int, n: int) -> IdleCause:
    around, row = places(trace), found.row[pieces]
    shared = [_if_one(getattr(around, aspect)[row]) for aspect in _ASPECTS]
    longest = int(pieces[np.argmax(found.end_ns[pieces] - found.start_ns[pieces])])
    responsible = int(found.row[longest])
    named = responsible != NO_ROW
    return IdleCause(
        kind=GapKind(int(found.kind[longest])),
        place=place(trace, *shared, backward=bool(around.backward[row].all())),
        ns_per_step=ns_per_step,
        gaps_per_step=(1 + int(np.count_nonzero(np.diff(found.gap[pieces])))) / n,
        pieces=pieces,
        longest=longest,
        at_ns=int(found.start_ns[longest]),
        name=trace.names[host_rows(trace).name[responsible]] if named else None,
    )


def _if_one(values: Ints) -> int:
    return int(values[0]) if (values == values[0]).all() else NO_ROW
