"""What a step makes for the next one, and whether a step goes on from what the one before made.

Rows in another order are the same values where the rows are alike, as beams of one request are.
Told by what computed it such a tensor is new in each step, and so is all that is computed from it;
told by its bits it is not.
"""

from collections.abc import Sequence

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.positions import Position, positions
from pinchpoint.capture.flow.repeats import idle, weight
from pinchpoint.capture.flow.storages import Storage

# Less is alike by chance, as one token, a flag or a count may be, and computing with it is quick.
LEAST_BYTES = 1 << 14
# Of a step's work. A training step on one batch goes on from its weights alone: a running mean of
# the loss is handed on there, and hardly anything is computed from it.
GOES_ON_RATIO = 0.5


def handed_on(operations: Sequence[Operation], storages: Sequence[Storage]) -> frozenset[Position]:
    """Operations of a step that is over which made what is there still; gradients left out."""
    return frozenset(
        place
        for place, one in zip(positions(operations), operations, strict=True)
        if not (one.random or one.backward or one.writes or idle(one))
        and any(storages[n].bytes >= LEAST_BYTES and _stays(storages[n]) for n in one.makes)
    )


def goes_on(step: int, operations: Sequence[Operation], storages: Sequence[Storage]) -> bool:
    """Whether most work of a step is done with what steps before it made: the next token is, of
    which no part comes from outside, and which is no repeated measurement all the same."""
    from_before: set[int] = set()
    mine = of = 0
    for one in (one for one in operations if not idle(one)):
        reads = [number for number, _ in one.reads]
        came = any(storages[n].step < step and _made(storages[n]) for n in reads)
        of += weight(one)
        if came or not from_before.isdisjoint(reads):
            mine += weight(one)
            from_before.update(one.makes, (number for number, _ in one.writes))
    return mine >= GOES_ON_RATIO * max(of, 1)


def _stays(one: Storage) -> bool:
    return one.alive and not (one.parameter or one.gradient)


def _made(one: Storage) -> bool:
    return one.made and not (one.parameter or one.gradient or one.backward)
