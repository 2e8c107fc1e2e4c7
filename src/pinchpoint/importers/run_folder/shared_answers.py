"""What several ranks of a run computed alike: the same bits, step by step."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.run_folder.documents import read
from pinchpoint.run_folder.layout import VALUES
from pinchpoint.run_folder.values import AnswerNote, ValuesDocument
from pinchpoint.trace.run_values import Frame, VainOperations, VainWork

# Of the steps that two ranks watched: one may have begun a step or two later than the other.
_LEAST_COMMON_RATIO = 0.5
# What they give was computed elsewhere.
_MOVES = ("aten::cat", "aten::stack", "aten::clone", "aten::_to_copy", "aten::index_select")
_Key = tuple[str, tuple[tuple[int, ...], ...]]


def of_ranks(folder: Path, mine: ValuesDocument) -> Iterator[VainWork]:
    """The operations of one rank that others compute as well, together."""
    if not mine.answers:
        return
    others = [_digests(one) for one in _peers(folder, mine)]
    ranks = {id(one): 1 + sum(_same(one, theirs) for theirs in others) for one in mine.answers}
    shared = [one for one in mine.answers if ranks[id(one)] > 1]
    if shared:
        yield VainWork(
            "ranks",
            tuple(_places(shared)),
            tuple(_operations(shared)),
            all(one.backward for one in shared),
            len(shared),
            min(ranks[id(one)] for one in shared),  # the least that sharing out gives
            None,
            1.0,
            shared_ratio=sum(one.bytes for one in shared) / sum(one.bytes for one in mine.answers),
        )


def _peers(folder: Path, mine: ValuesDocument) -> Iterator[ValuesDocument]:
    for path in sorted((folder / VALUES).glob("rank*.json")):
        try:
            found = read(path, ValuesDocument).document
        except UnreadableFile:
            continue
        if found.rank != mine.rank:
            yield found


def _digests(document: ValuesDocument) -> dict[tuple[_Key, int], frozenset[str]]:
    return {((one.name, one.shapes), one.which): frozenset(one.digests) for one in document.answers}


def _same(one: AnswerNote, theirs: dict[tuple[_Key, int], frozenset[str]]) -> bool:
    other = theirs.get(((one.name, one.shapes), one.which), frozenset())
    common = len(other.intersection(one.digests))
    return common > 0 and common >= _LEAST_COMMON_RATIO * min(len(other), len(one.digests))


def _places(group: list[AnswerNote]) -> list[Frame]:
    """Heaviest first; those of backward passes, which one line starts, behind all others that
    compute, and what only moves behind these."""
    weight: dict[Frame, int] = defaultdict(int)
    computed = [one for one in group if one.name not in _MOVES]
    group, forward = computed or group, {one.place for one in group if not one.backward}
    for one in group:
        if one.place is not None:
            weight[one.place] += one.bytes
    return sorted(weight, key=lambda place: (place not in forward, -weight[place]))


def _operations(group: list[AnswerNote]) -> Iterator[VainOperations]:
    by_key: dict[_Key, list[AnswerNote]] = defaultdict(list)
    for one in group:
        by_key[one.name, one.shapes].append(one)
    for (name, shapes), some in by_key.items():
        which = tuple((one.which, one.which) for one in some)
        size = max(one.bytes for one in some)
        yield VainOperations(name, shapes, some[0].count, which, bytes_each=size)
