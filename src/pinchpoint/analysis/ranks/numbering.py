"""One numbering of steps for all ranks, where no marker of the program gives one.

Steps that are inferred are counted from the beginning of each rank's recording, and recordings
begin at different steps: a rank's host may run hundreds of milliseconds ahead of its device. The
step in which ranks call one and the same collective is the same step.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from pinchpoint.analysis.ranks.matching import GroupName, Matching, Source, by_group, thinned
from pinchpoint.analysis.ranks.summary import RankSummary, pack, unpack, unpack_small
from pinchpoint.trace.arrays import Ints

ANCHORS = 64  # collectives of a group that are compared


def step_shifts(source: Source, matching: Matching) -> Ints:
    """What has to be added to the step numbers of each rank."""
    known: dict[GroupName, tuple[Ints, Ints]] = {}
    shifts, first = [], 0
    for summary in source():
        anchors = _anchors(summary, matching)
        shift = 0 if summary.steps.how == "marker" else _shift(anchors, known)
        for group, keys, number in anchors:
            known.setdefault(group, (keys, number + shift))
        shifts.append(shift)
        first = min([first, *(unpack(summary.steps.number)[:1] + shift).tolist()])
    return np.array(shifts, np.int64) - first


def renumbered(source: Source, shifts: Ints) -> Source:
    """The same ranks with their step numbers shifted."""
    if not shifts.any():
        return source

    def read() -> Iterator[RankSummary]:
        for summary, shift in zip(source(), shifts.tolist(), strict=True):
            number = pack(unpack(summary.steps.number) + shift)
            steps = msgspec.structs.replace(summary.steps, number=number)
            yield msgspec.structs.replace(summary, steps=steps)

    return read


def _anchors(summary: RankSummary, matching: Matching) -> list[tuple[GroupName, Ints, Ints]]:
    """A few calls of each group: their keys, ascending, and the numbers of their steps."""
    number, step = unpack(summary.steps.number), unpack_small(summary.calls.step)
    out = []
    for calls in by_group(summary):
        keys = matching.keys(summary, calls)
        if keys is None or not len(keys):
            continue
        kept = thinned(keys, ANCHORS)
        keys, at = keys[kept], calls.at[kept]
        order = np.argsort(keys, kind="stable")
        out.append((calls.group, keys[order], number[step[at]][order]))
    return out


def _shift(
    anchors: list[tuple[GroupName, Ints, Ints]], known: dict[GroupName, tuple[Ints, Ints]]
) -> int:
    differences = [np.zeros(0, np.int64)]
    for group, keys, number in anchors:
        if group in known:
            theirs, their_number = known[group]
            _, mine, other = np.intersect1d(keys, theirs, return_indices=True)
            differences.append(their_number[other] - number[mine])
    together = np.concatenate(differences)
    return round(float(np.median(together))) if len(together) else 0
