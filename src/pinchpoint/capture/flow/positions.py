"""Which operation of one step is which of another.

An operation is the n-th of its name and shapes. Batches that are padded to their longest row have
other shapes in each step: where operations of a name come at the same places in the same order in
all steps and have other shapes there, they are the n-th of their name.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from pinchpoint.capture.flow.operations import Operation, Shapes

Key = tuple[str, Shapes | None]  # a name and shapes; None: whatever they are
Position = tuple[Key, int]


def positions(
    operations: Sequence[Operation], of_any_shape: Collection[str] = ()
) -> list[Position]:
    """Name and shapes of each operation, and how many of these came before it."""
    counts: Counter[Key] = Counter()
    found = []
    for one in operations:
        name = one.kind.name
        key = (name, None if name in of_any_shape else one.shapes)
        found.append((key, counts[key]))
        counts[key] += 1
    return found


def of_any_shape(steps: Sequence[Sequence[Operation]]) -> frozenset[str]:
    """Names of operations that come in the same order in all steps, with other shapes."""
    first, *others = (_by_name(step) for step in steps)
    found = set()
    for name, (places, shapes) in first.items():
        told = [other.get(name) for other in others]
        same_places = all(one is not None and one[0] == places for one in told)
        if same_places and any(one is not None and one[1] != shapes for one in told):
            found.add(name)
    return frozenset(found)


def _by_name(step: Sequence[Operation]) -> dict[str, tuple[list[int], list[Shapes]]]:
    found: dict[str, tuple[list[int], list[Shapes]]] = {}
    for one in step:
        places, shapes = found.setdefault(one.kind.name, ([], []))
        places.append(one.stack)
        shapes.append(one.shapes)
    return found
