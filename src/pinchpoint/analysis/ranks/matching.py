"""Which call of one rank is which call of another.

Best by the sequence number that the process group counts (recorded since torch 2.12). Else by the
step's number and the position in it: ``ProfilerStep`` numbers are those of the program, alike on
all ranks. Where neither is there, the ranks' lists are slid along each other: what belongs together
has the same kinds and sizes in a row, and ends at the same distance in time, whatever the clocks
say.
"""

from collections.abc import Callable, Iterator
from dataclasses import field

import msgspec
import numpy as np

from pinchpoint.analysis.ranks.collective_calls import PAIR, POINT_TO_POINT
from pinchpoint.analysis.ranks.summary import (
    UNKNOWN,
    CallKind,
    ProcessGroup,
    RankSummary,
    pack,
    unpack,
    unpack_small,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints, Mask

Source = Callable[[], Iterator[RankSummary]]  # every rank once, in order of rank, again and again

STEP_SHIFT = 24  # a key is the step's number and, in the low bits, the position in it
MIDDLE = 1 << 20  # key of the reference's first call where lists are slid along each other
MOST_SLID = 256  # calls by which the beginnings of two recordings may differ
MOST_COMPARED = 256  # calls, evenly spread, for one place
LEAST_OVERLAP = 0.5  # of the shorter list
ALIKE_FACTOR = 2.0  # between scatters that are as good as each other
SAME_END_NS = 2_000  # ranks leave a collective within microseconds: less scatter means nothing
MOST_DRIFT = 150e-6  # crystal clocks stay within 100 ppm; beyond this, calls do not belong together
MOST_APART_NS = 250_000_000  # of clocks; beyond it, recordings were made at different times
MOST_DIFFERENT = 0.02  # calls of another kind in lists that belong together
_MASK = (1 << 40) - 1  # fits an int64, and two kinds of calls hardly ever share a number

# All ranks leave these together, because each needs something from every other one.
SYNCHRONISING = ("allreduce", "allgather", "reduce_scatter", "alltoall", "barrier", "all_reduce",
                 "all_gather", "allgather_base", "all_to_all")  # fmt: skip
ONE_TO_ALL = ("broadcast", "scatter")


@dataclass(frozen=True)
class GroupName:
    """A process group as all its ranks write it."""

    name: str
    description: str
    ranks: str
    size: int | None
    by_the_host: bool = False

    @staticmethod
    def of(group: ProcessGroup, kind: str) -> "GroupName":
        """The group of a call; without a name all ranks are taken to be in one."""
        host = ":" in kind
        return GroupName(
            group.name or "", group.description or "", group.ranks or "", group.size, host
        )


def synchronises(kind: str) -> bool:
    """Whether all ranks leave a collective of this kind at the same time."""
    return kind.split(":")[-1] in SYNCHRONISING


def meets(kind: str) -> bool:
    """Whether ranks wait for each other in a call of this kind.

    The two ends of a transfer do; but the sender may be done before the receiver is, so clocks
    are not told by it. Of what the host's backend sends from one rank to all, too: who comes first
    stands in it until the rank that sends is there.
    """
    return kind == PAIR or synchronises(kind) or _from_one_by_the_host(kind)


def _from_one_by_the_host(kind: str) -> bool:
    return ":" in kind and kind.split(":")[-1] in ONE_TO_ALL


def one_end(kind: str) -> bool:
    """Whether it is a send or a receive of which the other rank is not known."""
    return kind.split(":")[-1] in POINT_TO_POINT


@dataclass(frozen=True, eq=False)
class GroupCalls:
    """One rank's calls of one group, in order; arrays of one length."""

    group: GroupName
    at: Ints  # position in the rank's columns
    kind: Ints  # position in the rank's ``call_kinds``
    alike: Ints  # hash of kind and size, the same on all ranks


def by_group(summary: RankSummary) -> list[GroupCalls]:
    """The rank's calls, a list a group."""
    kind = unpack_small(summary.calls.kind)
    kinds = summary.call_kinds
    names = [GroupName.of(summary.groups[k.group], k.kind) for k in kinds]
    alike = np.array([_alike(k) for k in kinds], np.int64)
    out = []
    for name in dict.fromkeys(names):
        mine = np.array([n == name for n in names], np.bool_)
        at = np.flatnonzero(mine[kind])
        out.append(GroupCalls(name, at, kind[at], alike[kind[at]]))
    return out


def _alike(kind: CallKind) -> int:
    text = f"{kind.kind} {kind.bytes}"
    value = 0
    for byte in text.encode("utf-8", "replace"):
        value = (value * 1_000_003 + byte) & _MASK
    return value


@dataclass
class _Seen:
    """What is known of a group's ranks before any call is matched."""

    sequences: bool = True
    marked: bool = True
    stride: int = 1
    one_stride: bool = True
    reference: tuple[Ints, Ints] | None = None  # ends and hashes of its first rank


@dataclass
class Matching:
    """Gives every call a key that is the same on all ranks of its group."""

    groups: dict[GroupName, _Seen] = field(default_factory=dict)
    slid_by: dict[tuple[GroupName, int], int | None] = field(default_factory=dict)  # by rank

    def look_at(self, summary: RankSummary) -> None:
        """Learn from one rank; every rank once, before the first key is asked for."""
        sequence = unpack_small(summary.calls.sequence)
        for calls in by_group(summary):
            seen = self.groups.get(calls.group)
            if seen is None:
                ends = _ends(summary)[calls.at]
                seen = self.groups[calls.group] = _Seen(
                    stride=summary.calls.stride, reference=(ends, calls.alike)
                )
            seen.sequences &= bool((sequence[calls.at] != UNKNOWN).all())
            seen.marked &= summary.steps.how == "marker"
            seen.one_stride &= summary.calls.stride == seen.stride

    def keys(self, summary: RankSummary, calls: GroupCalls) -> Ints | None:
        """The key of each call; None where this rank's calls cannot be matched."""
        seen = self.groups[calls.group]
        if seen.sequences:
            return unpack_small(summary.calls.sequence)[calls.at]
        if seen.marked:
            number = unpack(summary.steps.number)
            step = number[unpack_small(summary.calls.step)[calls.at]]
            return (step << STEP_SHIFT) + unpack_small(summary.calls.place)[calls.at]
        if not seen.one_stride or seen.reference is None:
            return None
        place = (calls.group, UNKNOWN if summary.rank is None else summary.rank)
        if place not in self.slid_by or summary.rank is None:
            mine = (_ends(summary)[calls.at], calls.alike)
            self.slid_by[place] = slid(seen.reference, mine)
        shift = self.slid_by[place]
        return None if shift is None else np.arange(len(calls.at)) - shift + MIDDLE

    def how(self, group: GroupName) -> str:
        """In words, by what the group's calls were matched."""
        seen = self.groups[group]
        if seen.sequences:
            return "sequence numbers"
        return "step numbers and order" if seen.marked else "kinds and distances in time"


def _ends(summary: RankSummary) -> Ints:
    return unpack(summary.calls.start_ns) + unpack(summary.calls.duration_ns)


def slid(reference: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> int | None:
    """How many calls later the reference's first call stands in the other list; None if nowhere.

    Both are ends in ns and hashes of kind and size. Steps that are all alike fit in many places;
    of those the one counts that needs the clocks to be least apart.
    """
    fits: list[tuple[float, float, int]] = []  # scatter of the distances, distance, shift
    length = min(len(reference[0]), len(other[0]))
    least = max(int(LEAST_OVERLAP * length), 1)
    for shift in sorted(range(-MOST_SLID, MOST_SLID + 1), key=abs):
        first, second = _overlap(len(reference[0]), len(other[0]), shift)
        if first.stop - first.start < least:
            continue
        different = np.count_nonzero(reference[1][first] != other[1][second])
        if different > MOST_DIFFERENT * (first.stop - first.start):
            continue
        every = 1 + (first.stop - first.start) // MOST_COMPARED
        times = reference[0][first][::every]
        apart = other[0][second][::every] - times
        fits.append((_scatter(times, apart), abs(float(np.median(apart))), shift))
    if not fits:
        return None
    good = max(ALIKE_FACTOR * min(fits)[0], SAME_END_NS)
    distance, shift = min((d, s) for scatter, d, s in fits if scatter <= good)
    return shift if distance <= MOST_APART_NS else None


def _scatter(times: Ints, apart: Ints) -> float:
    """Median distance of the values from their trend: clocks drift."""
    half = len(apart) // 2
    middle = float(np.median(apart))
    if not half:
        return 0.0
    early, late = (float(np.median(part)) for part in (apart[:half], apart[half:]))
    between = float(np.median(times[half:]) - np.median(times[:half]))
    slope = np.clip((late - early) / max(between, 1.0), -MOST_DRIFT, MOST_DRIFT)
    return float(np.median(np.abs(apart - middle - slope * (times - np.median(times)))))


def _overlap(reference: int, other: int, shift: int) -> tuple[slice, slice]:
    first = max(-shift, 0)
    last = min(reference, other - shift)
    return slice(first, max(last, first)), slice(first + shift, max(last, first) + shift)


def thinned(keys: Ints, most: int) -> Mask:
    """About ``most`` of the keys, chosen by their value, so that all ranks choose the same ones."""
    if len(keys) <= most:
        return np.ones(len(keys), np.bool_)
    parts = 1
    while len(keys) > most * parts:
        parts *= 2
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    chosen: Mask = (mixed >> np.uint64(40)) % np.uint64(parts) == 0
    return chosen


# ------------------------------------------------------------------------------------------------
# One numbering of steps for all ranks, where no marker of the program gives one.
#
# Steps that are inferred are counted from the beginning of each rank's recording, and recordings
# begin at different steps: a rank's host may run hundreds of milliseconds ahead of its device.
# The step in which ranks call one and the same collective is the same step.


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
