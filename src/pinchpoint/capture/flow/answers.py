"""What the heaviest operations of a rank gave, for comparing ranks: sums over bits, no values.

Ranks that compute the same from the same give the same bits, whichever steps of theirs were
watched. What is the same in each step, or one value all over, tells nothing; and what is made of
nothing but weights is the same wherever these are, such as their copies in another type.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pinchpoint.capture.flow.claims import read_sums
from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.places import Chain, spelt
from pinchpoint.capture.flow.positions import Position, positions
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.watch import Watch

MOST_ANSWERS = 64  # of a step, the largest; each takes a few kernels to sum
LEAST_BYTES = 1 << 20  # of an answer: below, computing it takes no longer than handing it out
_FEWEST_STEPS = 2  # with another answer in each
_DIGEST_BYTES = 8  # of a hash: no sum over values is written


def several_ranks() -> bool:
    """Whether this process is one rank of several."""
    torch: Any = sys.modules.get("torch.distributed")
    try:
        return bool(torch.is_initialized() and torch.get_world_size() > 1)
    except (AttributeError, RuntimeError, ValueError):  # not there, or built without
        return False


def heaviest(watch: Watch) -> dict[Position, int]:
    """Answers of the last whole step that ranks may have in common, and which output each is."""
    operations = watch.steps[-2]
    named = zip(positions(operations), operations, strict=True)
    large = [(one.bytes, at) for at, one in named if _is_heavy(one)]
    return {at: 0 for _, at in sorted(large, key=lambda one: -one[0])[:MOST_ANSWERS]}


def _is_heavy(one: Operation) -> bool:
    computes = one.makes and not (idle(one) or one.writes or one.random or one.kind.opaque)
    return bool(computes) and one.bytes >= LEAST_BYTES and not one.kind.sizes_only


def answers(
    watch: Watch, wanted: set[Position], from_inputs: Sequence[bool], lines: Sequence[Chain]
) -> list[dict[str, Any]]:
    """Notes about those that were another one in each step; ``from_inputs`` is of the last one."""
    sums = [read_sums(watch, some) for some in watch.sums]
    operations = watch.steps[-2]
    places = positions(operations)
    totals = Counter(key for key, _ in places)
    found = []
    for position, one, given in zip(places, operations, from_inputs, strict=True):
        looked_at = given and position in wanted
        told = [some[position] for some in sums if position in some] if looked_at else []
        digests = [_digest(bits) for bits, alike in told if not alike]
        if len(digests) >= _FEWEST_STEPS and len(set(digests)) == len(told):
            key, order = position
            note: dict[str, Any] = {
                "name": key[0],
                "shapes": key[1],
                "count": totals[key],
                "which": order,
            }
            place = spelt([(lines[one.stack], 1)])
            note |= {"place": place[0] if place else None, "bytes": one.bytes}
            found.append(note | {"backward": one.backward, "digests": digests})
    return found


def _digest(bits: int) -> str:
    return blake2b(str(bits).encode(), digest_size=_DIGEST_BYTES).hexdigest()
