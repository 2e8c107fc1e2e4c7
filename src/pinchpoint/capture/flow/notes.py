"""Notes of operations: which of a step they are, and where in the program."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.places import Chain, spelt
from pinchpoint.capture.flow.positions import Key, positions
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.capture.flow.tiny_values import Slow
from pinchpoint.capture.flow.zero_payloads import Zeros
from pinchpoint.capture.ways.solving import LEAVES_OUT
from pinchpoint.capture.ways.trials import Trials

MOST_OPERATIONS = 256  # of different names and shapes in a note
# What is written for one operation, whatever its size: a kernel of a few microseconds.
LEAST_BYTES = 1 << 16


def note_of(
    kind: str,
    operations: Sequence[Operation],
    mine: Sequence[int],
    site: dict[int, Chain],
    some_shape: Collection[str] = (),
) -> dict[str, Any]:
    """A note of the operations ``mine`` of a step, with a ``weight`` for their order; ``site`` is
    where each of them belongs."""
    weights = {at: operations[at].bytes + LEAST_BYTES for at in mine}
    return {
        "kind": kind,
        "places": spelt((site[at], weights[at]) for at in mine),
        "operations": operations_told(operations, mine, some_shape),
        "backward": all(operations[at].backward for at in mine),
        "times": len(mine),
        "bytes": sum(operations[at].bytes for at in mine),
        "weight": sum(weights.values()),
    }


def operations_told(
    operations: Sequence[Operation], mine: Iterable[int], some_shape: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Which these are, of those with their names and shapes, and of those with their names."""
    mine = sorted(mine)
    places = positions(operations, some_shape)
    names = positions(operations, {one.kind.name for one in operations})
    totals = Counter(key for key, _ in places)
    of_names = Counter(key for key, _ in names)
    which: dict[Key, list[int]] = defaultdict(list)
    of_name: dict[Key, list[int]] = defaultdict(list)
    for at in mine:
        key, order = places[at]
        which[key].append(order)
        of_name[key].append(names[at][1])
    heaviest = sorted(which, key=lambda key: -len(which[key]))[:MOST_OPERATIONS]
    return [
        {
            "name": key[0],
            "shapes": key[1],
            "count": totals[key],
            "which": _ranges(which[key]),
            "of_name": of_names[key[0], None],
            "which_of_name": _ranges(of_name[key]),
        }
        for key in heaviest
    ]


def _ranges(orders: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of stretches of numbers."""
    found: list[tuple[int, int]] = []
    for order in sorted(orders):
        if found and order == found[-1][1] + 1:
            found[-1] = (found[-1][0], order)
        else:
            found.append((order, order))
    return found


def slow_by_values(
    operations: Sequence[Operation], slow: Mapping[int, Slow], lines: Sequence[Chain]
) -> Iterator[dict[str, Any]]:
    """Operations that are slow with numbers next to zero; those that were tried as one together."""
    alike: dict[int, list[int]] = defaultdict(list)
    for at, tried in slow.items():
        alike[id(tried)].append(at)  # two trials may have given the same figures
    for mine in alike.values():
        one = slow[mine[0]]
        note = note_of("tiny", operations, mine, {at: lines[operations[at].stack] for at in mine})
        del note["weight"]
        left = {"read_ratio": one.ratio, "left_ratio": round(one.ns_left / one.ns, 6)}
        yield note | left | {"tried_ns": one.ns}


def quicker_otherwise(
    steps: Sequence[Sequence[Operation]],
    storages: Sequence[Storage],
    trials: Trials,
    lines: Sequence[Chain],
) -> Iterator[dict[str, Any]]:
    """Operations that another way was quicker for, of the last step that had them."""
    for tried, places in trials.found():
        step = max(number for number, _ in places)
        operations = steps[step]
        mine = [at for number, at in places if number == step and at < len(operations)]
        if tried.key == LEAVES_OUT:
            mine = [at for at in mine if _is_read_in_part(operations, at, storages)]
        if mine:
            site = {at: lines[operations[at].stack] for at in mine}
            note = note_of("way", operations, mine, site)
            del note["weight"]
            left = {"left_ratio": round(tried.ns_left / tried.ns, 6), "tried_ns": tried.ns}
            yield note | left | {"way": tried.key}


def _is_read_in_part(operations: Sequence[Operation], at: int, storages: Sequence[Storage]) -> bool:
    """Whether nobody reads all of the largest thing that an operation makes, nor keeps it."""
    largest = max(operations[at].makes, key=lambda number: storages[number].bytes)
    one = storages[largest]
    reads = [
        lies
        for later in operations[at + 1 :]
        for number, lies in later.reads
        if number == largest and not later.view
    ]
    whole = max((prod(lies[1]) for lies in reads), default=0)
    *batch, rows, columns = operations[at].shapes[0]
    kept = one.alive or one.escaped or one.after_backward
    return not kept and 2 * whole <= prod(batch) * max(rows, columns) ** 2


def sent_as_zeros(
    operations: Sequence[Operation], seen: Mapping[int, Zeros], lines: Sequence[Chain]
) -> Iterator[dict[str, Any]]:
    """Notes of what is sent, and of other work on as many rows; none where little is sent so."""
    rows = {zeros.rows for zeros in seen.values() if zeros.sent}
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at, zeros in seen.items():
        if at < len(operations) and zeros.rows in rows:
            alike[operations[at].kind.name, operations[at].stack].append(at)
    for mine in alike.values():
        note = note_of("zeros", operations, mine, {at: lines[operations[at].stack] for at in mine})
        del note["weight"]
        ratio = sum(seen[at].ratio for at in mine) / len(mine)
        yield note | {"read_ratio": round(ratio, 6), "left_ratio": round(1 - ratio, 6)}
