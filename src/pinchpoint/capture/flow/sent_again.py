"""What a rank sends to others with the same bits in every step, such as a table that never changes.

Of what one rank alone decides (a broadcast of its own, a scatter, a send) sums over bits are taken
as it is about to be sent, in each of the watched steps.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pinchpoint.capture.flow.notes import note_of
from pinchpoint.capture.flow.operations import Kind, Operation
from pinchpoint.capture.flow.places import Chain
from pinchpoint.capture.flow.positions import Position, positions
from pinchpoint.capture.flow.storages import content

SENDS = ("c10d::broadcast_", "c10d::scatter_", "c10d::send")
LEAST_BYTES = 1 << 16  # of a message: smaller ones take as long as empty ones
MOST_BYTES = 1 << 28  # of all in a step: a sum over so many takes 0.1 s on one core
FEWEST_STEPS = 5  # in which it was sent, one after the other


class SentAgain:
    """Takes sums of what is sent, on the CPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.looks = False
        self._sums: dict[int, dict[Position, tuple[int, ...]]] = defaultdict(dict)  # by the step
        self._counts: dict[int, Counter[Any]] = defaultdict(Counter)
        self._bytes: Counter[int] = Counter()

    def look(self, step: int, kind: Kind, args: Any, shapes: Any) -> None:
        """At an operation that is about to run; ``shapes`` are those of all its tensors."""
        key = kind.name, shapes
        order = self._counts[step][key]
        self._counts[step][key] += 1
        tensors = self._sent(kind.name, args)
        size = sum(one.nbytes for one in tensors)
        self._bytes[step] += size
        if size < LEAST_BYTES or self._bytes[step] > MOST_BYTES:
            return
        if all(one.device.type == "cpu" for one in tensors):
            self._sums[step][key, order] = tuple(self._bits(one) for one in tensors)

    def _sent(self, name: str, args: Any) -> list[Any]:
        if name == "c10d::send":
            return list(args[0])
        group_at, given = (1, args[0]) if name == "c10d::broadcast_" else (2, args[1])
        if args[group_at + 1] != _rank_in(args[group_at]):
            return []
        return [one for some in given for one in (some if isinstance(some, list) else [some])]

    def _bits(self, tensor: Any) -> int:
        whole = tensor.detach().contiguous()
        if whole.untyped_storage().nbytes() != whole.nbytes:
            whole = whole.clone()
        return int(content(self._torch, whole.untyped_storage())[0])

    def same_in_all(self, operations: Sequence[Operation], step: int) -> list[int]:
        """Numbers of the operations of a step whose message was the same in all steps."""
        steps = [self._sums[one] for one in sorted(self._sums)]
        found = []
        for at, position in enumerate(positions(operations)):
            told = [sums[position] for sums in steps if position in sums]
            again = len(told) >= FEWEST_STEPS and len(set(told)) == 1
            if again and position in self._sums[step]:
                found.append(at)
        return found


def _rank_in(group: Any) -> int:
    """This process's number in a group, as its collectives count."""
    kind: Any = sys.modules["torch.distributed"].ProcessGroup
    return int((group if isinstance(group, kind) else kind.unbox(group)).rank())


def sent_again(
    operations: Sequence[Operation], mine: Sequence[int], lines: Sequence[Chain]
) -> Iterator[dict[str, Any]]:
    """Notes of what is sent again, by the line that does."""
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at in mine:
        alike[operations[at].kind.name, operations[at].stack].append(at)
    for some in alike.values():
        note = note_of("sent", operations, some, {at: lines[operations[at].stack] for at in some})
        del note["weight"]
        yield note
