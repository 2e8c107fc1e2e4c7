"""What is said to be the same in most of the watched steps, and whether its bits were.

An operation of one step is that of another as the n-th of its name and shapes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinchpoint.capture.flow.carried import goes_on
from pinchpoint.capture.flow.numbers import Content, Numbered, numbered
from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.positions import Position, positions
from pinchpoint.capture.flow.repeats import idle, repeated
from pinchpoint.capture.flow.watch import Watch
from pinchpoint.frozen import dataclass

# Of the steps that follow one another; in the others what it is made from was new.
LEAST_RATIO = 0.5
# Bits of what a step hands on are looked at from the second one on, and it is the third that reads
# these: of what is computed from it, the first two comparisons do not tell.
UNTOLD = 2


@dataclass(frozen=True)
class Claims:
    """Of one of the steps, whose number is ``step``; lists have one element an operation."""

    step: int
    operations: Sequence[Operation]
    members: list[str]  # step, within, first (what others repeat) or empty
    ratio: list[float]  # of steps after another one in which it is so
    numbers: Sequence[int]


def numbers_of(watch: Watch) -> Numbered:
    """Numbers for all values that were seen so far."""
    return numbered(watch.steps, watch.storages.all, read_sums(watch, watch.storages.contents))


def to_compare(watch: Watch) -> dict[Position, int]:
    """Answers of the last whole step that are said to be known, and are read by other work; and
    which output each is."""
    found, step = numbers_of(watch), len(watch.steps) - 2
    operations = watch.steps[step]
    members = _repeated(watch, step, watch.steps[: step + 1], found)
    places = positions(operations)
    return {places[at]: which for at, which in edge(operations, members)}


def _repeated(
    watch: Watch, step: int, steps: Sequence[Sequence[Operation]], found: Numbered
) -> list[str]:
    came = found.news[step] or goes_on(step, steps[step], watch.storages.all)
    came = came or _has_other_shapes(steps[step - 1], steps[step])
    return repeated(step, steps, found, came=came)


def _has_other_shapes(before: Sequence[Operation], now: Sequence[Operation]) -> bool:
    """Whether something is longer or shorter than in the step before, as a cache is after another
    token: no batch that is given again does that, whatever tokens come."""
    there = {(one.kind.name, one.shapes) for one in before}
    return any((one.kind.name, one.shapes) not in there for one in now)


def claims(watch: Watch, found: Numbered) -> Claims:
    """What is the same in most steps, of the step in which most of it is."""
    steps = watch.steps
    told = [[""] * len(steps[0])] + [
        _repeated(watch, n, steps, found) for n in range(1, len(steps))
    ]
    places = [positions(step) for step in steps]
    verdict = [
        dict(zip(some, how, strict=True)) for some, how in zip(places[1:], told[1:], strict=True)
    ]
    last = max(range(2, len(steps)), key=lambda n: (sum(map(bool, told[n])), n))
    totals = [Counter(key for key, _ in some) for some in places[1:]]
    mine = Counter(key for key, _ in places[last])
    members, ratio = [], []
    for at, position in enumerate(places[last]):
        how = told[last][at]
        # Where a step has more of a kind, as one in which a request begins, which of them it is is
        # not known: then it is not said of that step.
        often = [
            said.get(position) == how and total[position[0]] == mine[position[0]]
            for said, total in zip(verdict, totals, strict=True)
        ]
        if watch.handed_on and not any(often[:UNTOLD]) and all(often[UNTOLD:]):
            often = often[UNTOLD:]
        ratio.append(sum(often) / len(often))
        members.append(how if how and ratio[-1] >= LEAST_RATIO else "")
    kept = _equal(steps[last], members, _Compared(watch, places, members, found, last))
    members = [how if how == "first" or kept[at] else "" for at, how in enumerate(members)]
    return Claims(last, steps[last], members, ratio, found.number[last])


def edge(operations: Sequence[Operation], members: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Members whose answers are used outside, or kept; and which of the outputs it is."""
    last: dict[int, int] = {}
    used: set[int] = set()
    read: set[int] = set()
    for at, one in enumerate(operations):
        if not idle(one):
            numbers = {number for number, _ in one.reads}
            read |= numbers
            if not members[at] or not _gives(one):
                used |= numbers
        if members[at]:
            for number in (*one.makes, *(n for n, _ in one.writes)):
                last[number] = at
    for number, at in last.items():
        if number in used or number not in read:
            makes = operations[at].makes
            yield at, makes.index(number) if number in makes else 0


def _equal(
    operations: Sequence[Operation], members: Sequence[str], compared: "_Compared"
) -> list[bool]:
    """Of members whether they lead to an answer whose bits were compared, and to none that was
    another one."""
    edges: dict[int, list[bool | None]] = defaultdict(list)
    for at, _ in edge(operations, members):
        edges[at].append(compared.verdict(at))
    leads: dict[int, list[bool | None]] = defaultdict(list)  # by storage: what its readers lead to
    status = [False] * len(operations)
    for at in range(len(operations) - 1, -1, -1):
        if members[at]:
            one = operations[at]
            outputs = {*one.makes, *(number for number, _ in one.writes)}
            told = [*edges[at], *(verdict for number in outputs for verdict in leads[number])]
            verdict = False if False in told else True if True in told else None
            status[at] = verdict is True
            for number, _ in one.reads:
                leads[number].append(verdict)
    made = {number: status[at] for at, one in enumerate(operations) for number in one.makes}
    for at, one in enumerate(operations):
        if members[at] and not _gives(one):  # a look of the host at what is known
            status[at] = any(made.get(number) for number, _ in one.reads)
    return status


def _gives(one: Operation) -> bool:
    """Whether it gives something that may be compared."""
    return bool(one.makes or one.writes)


class _Compared:
    """Sums over the bits of answers that have one number."""

    def __init__(
        self,
        watch: Watch,
        places: list[list[Position]],
        members: Sequence[str],
        found: Numbered,
        last: int,
    ) -> None:
        self._sums = [read_sums(watch, sums) for sums in watch.sums]
        self._places, self._members, self._last = places, members, last
        self._number = [
            dict(zip(some, numbers, strict=True))
            for some, numbers in zip(places, found.number, strict=True)
        ]
        self._alike: dict[int, list[Position]] = defaultdict(list)
        for at, how in enumerate(members):
            if how:
                self._alike[found.number[last][at]].append(places[last][at])

    def verdict(self, at: int) -> bool | None:
        """Whether the bits of an answer were the same; None where they were not compared."""
        place = self._places[self._last][at]
        told = self._across(place) if self._members[at] == "step" else self._within(place)
        return None if not told else all(told)

    def _across(self, place: Position) -> list[bool]:
        found = []
        for before in range(len(self._sums) - 1):
            numbers = [self._number[n].get(place) for n in (before, before + 1)]
            sums = [self._sums[n].get(place) for n in (before, before + 1)]
            if numbers[0] == numbers[1] is not None and None not in sums:
                found.append(sums[0] == sums[1])
        return found

    def _within(self, place: Position) -> list[bool]:
        mine = self._number[self._last][place]
        found = []
        for sums in self._sums:
            told = [sums[other] for other in self._alike[mine] if other in sums]
            if len(told) > 1:
                found.append(len(set(told)) == 1)
        return found


def read_sums(watch: Watch, there: dict[Any, Any]) -> Mapping[Any, Content]:
    """Sums from where they lie, in one go a device."""
    found: dict[Any, Content] = {}
    by_device: dict[Any, list[Any]] = defaultdict(list)
    for key, value in there.items():
        if isinstance(value, tuple):
            found[key] = value
        else:
            by_device[value.device].append(key)
    for keys in by_device.values():
        read = watch.torch.stack([there[key] for key in keys]).tolist()
        for key, (bits, alike) in zip(keys, read, strict=True):
            found[key] = there[key] = (bits, alike)
    return found
