"""Loops of a step, and which of their operations need what the turn before gave.

Operations of the forward pass that come at the same places again and again are a loop; its period
is the shortest after which places and names repeat. An operation is *carried* if what it gives
comes back to it in a later turn, by tensors: through an activation, a buffer, a parameter. What is
not carried can be done for all turns at once. Carried sums and products with one carried factor are
a scan. Where the host reads a tensor in a loop, a later turn may rest on that unseen.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pinchpoint.capture.flow.operations import ESCAPE, OVERWRITES, Operation
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.stacks import Stack
from pinchpoint.frozen import dataclass

FEWEST_TURNS = 16  # as many as the rule about loops wants; layers of a net are fewer, or are named
MOST_SOURCES = 256  # of one tensor: what is made of more comes after a loop, not in it
_SUMS = ("add", "sub", "rsub", "neg", "clone", "_to_copy", "copy", "maximum", "minimum")
_PRODUCTS = ("mul", "div", "lerp", "addcmul", "addcdiv")  # of what stands first and what is there

_Lies = tuple[Any, ...]  # how a tensor lies in its storage: type, size, stride, offset and more
_Edge = tuple[int, int, int]  # what gave something, what needs it, and as which of its tensors


@dataclass(frozen=True)
class Loop:
    """Operations of one loop, by their places in the step."""

    operations: tuple[int, ...]
    carried: tuple[int, ...]
    turns: int
    way: str  # free: nothing is carried; scan: sums are; chain: something else is; unseen


def loops(step: Sequence[Operation], stacks: Sequence[Stack]) -> Iterator[Loop]:
    """The loops of one step."""
    forward = [at for at, one in enumerate(step) if not one.backward and not idle(one)]
    for operations, period in _periodic(step, forward, stacks, 0):
        yield _loop(step, operations, period)


def _token(one: Operation) -> tuple[int, str]:
    return one.stack, one.kind.name


# ------------------------------------------------------------------------------------------------
# Which operations are a loop


def _periodic(
    step: Sequence[Operation], some: Sequence[int], stacks: Sequence[Stack], depth: int
) -> Iterator[tuple[list[int], int]]:
    """Operations that repeat, and after how many: of all of these, or of those that the frame at
    this depth calls at one place."""
    for part in _apart(step, some):
        period = _period([_token(step[at]) for at in part])
        if len(part) >= FEWEST_TURNS * period:
            yield part, period
            continue
        deeper = [at for at in part if len(stacks[step[at].stack]) > depth]
        calls = defaultdict(list)
        for at in deeper:
            calls[stacks[step[at].stack][depth]].append(at)
        for mine in calls.values():
            yield from _periodic(step, mine, stacks, depth + 1)


def _apart(step: Sequence[Operation], some: Sequence[int]) -> Iterator[list[int]]:
    """Those that come often enough, in stretches that have no kind of operation in common."""
    counts: dict[tuple[int, str], list[int]] = defaultdict(list)
    for at in some:
        counts[_token(step[at])].append(at)
    often = {token: ats for token, ats in counts.items() if len(ats) >= FEWEST_TURNS}
    end, part = -1, list[int]()
    for at in sorted(at for ats in often.values() for at in ats):
        if at > end and part:
            yield part
            part = []
        part.append(at)
        end = max(end, often[_token(step[at])][-1])
    if part:
        yield part


def _period(tokens: Sequence[tuple[int, str]]) -> int:
    """The shortest distance at which all tokens are the same (Knuth, Morris and Pratt)."""
    fallback, length = [0] * len(tokens), 0
    for i in range(1, len(tokens)):
        while length and tokens[i] != tokens[length]:
            length = fallback[length - 1]
        length += tokens[i] == tokens[length]
        fallback[i] = length
    return len(tokens) - fallback[-1]


# ------------------------------------------------------------------------------------------------
# What rests on what


def _loop(step: Sequence[Operation], operations: Sequence[int], period: int) -> Loop:
    number = {at: i for i, at in enumerate(operations)}
    edges, through, unseen = _needs(step, number)
    carried = _in_circles(period, {(a % period, b % period) for a, b, _ in edges})
    inside = tuple(at for i, at in enumerate(operations) if i % period in carried)
    way = "unseen" if unseen else "free" if not carried else "chain"
    if way == "chain" and not through and _linear(step, operations, edges, carried, period):
        way = "scan"
    return Loop(tuple(operations), inside, len(operations) // period, way)


def _needs(step: Sequence[Operation], number: dict[int, int]) -> tuple[set[_Edge], bool, bool]:
    """Pairs of operations of the loop, the second of which needs what the first gave; whether
    others, of a backward pass, stand between some; and whether something rests on the host, or on
    too much to follow."""
    edges: set[_Edge] = set()
    through = False
    there: dict[int, list[tuple[_Lies | None, frozenset[int]]]] = defaultdict(list)
    for at in range(min(number), max(number) + 1):
        one = step[at]
        if one.view or one.kind.sizes_only:
            continue
        overwritten = {n for n, _ in one.writes} if one.kind.name in OVERWRITES else ()
        mine, sources = number.get(at), set[int]()
        for position, (storage, lies) in enumerate(one.reads):
            for region, of_it in () if storage in overwritten else there.get(storage, ()):
                if region is None or _overlap(region, lies):
                    sources |= of_it
                    if mine is not None:
                        edges |= {(source, mine, position) for source in of_it}
        read = one.kind is ESCAPE or one.kind.read_by_host
        if (read and (sources or mine is not None)) or len(sources) > MOST_SOURCES:
            return edges, through, True
        through |= mine is None and bool(sources)
        gives = frozenset(sources) if mine is None else frozenset((mine,))
        for storage in one.makes:
            there[storage] = [(None, gives)]
        lie = dict(one.reads)
        for storage, whole in one.writes:
            kept = [] if whole else there[storage]
            there[storage] = [*kept, (None if whole else lie.get(storage), gives)]
    return edges, through, False


def _overlap(one: _Lies, other: _Lies) -> bool:
    """Whether two tensors in a storage may have an element in common."""
    (shape, stride, begin), (shape_, stride_, begin_) = one[1:4], other[1:4]
    if (shape, stride) == (shape_, stride_):
        apart = abs(begin - begin_)
        for step, size in sorted(zip(stride, shape, strict=True), reverse=True):
            apart -= min(apart // step, size - 1) * step if step else 0
        return bool(apart == 0)
    ends = [
        b + sum((n - 1) * s for n, s in zip(size, steps, strict=True))
        for size, steps, b in ((shape, stride, begin), (shape_, stride_, begin_))
    ]
    return bool(begin <= ends[1] and begin_ <= ends[0])


def _in_circles(period: int, edges: set[tuple[int, int]]) -> set[int]:
    """Places in a turn from which a way leads back to them (Tarjan's components, by two walks)."""
    after: dict[int, list[int]] = defaultdict(list)
    before: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
    found = {a for a, b in edges if a == b}
    left = set(range(period))
    while left:
        at = left.pop()
        both = _reached(at, after) & _reached(at, before)
        if len(both) > 1:
            found |= both
        left -= both
    return found


def _reached(at: int, after: dict[int, list[int]]) -> set[int]:
    seen, todo = {at}, [at]
    while todo:
        for other in after.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def _linear(
    step: Sequence[Operation],
    operations: Sequence[int],
    edges: set[_Edge],
    carried: set[int],
    period: int,
) -> bool:
    """Whether all that is carried is added, or multiplied by what is not."""
    names = {step[operations[place]].kind.name: place for place in carried}
    if not all(_plain(name) in _SUMS + _PRODUCTS for name in names):
        return False
    inputs: dict[int, set[int]] = defaultdict(set)
    for before, at, position in edges:
        if before % period in carried and at % period in carried:
            inputs[at].add(position)
    return not any(
        _plain(step[operations[at]].kind.name) in _PRODUCTS and positions != {0}
        for at, positions in inputs.items()
        if len(step[operations[at]].reads) > 1
    )


def _plain(name: str) -> str:
    return name.removeprefix("aten::").rstrip("_")
