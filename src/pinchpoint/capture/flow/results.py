"""Solvers of whose results nobody reads the costly one.

While a watch is on, torch computes vectors for calls that ask for values alone, too: whether they
were asked for is for the recording to say.
"""

from collections.abc import Sequence

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.storages import Storage

# Of their results the one that a cheaper call gives; it leaves out the others.
_CHEAPER_GIVES = {
    "aten::_linalg_eigh": 0,  # eigenvalues, vectors
    "aten::linalg_eig": 0,
    "aten::_linalg_svd": 1,  # left vectors, values, right vectors
    "aten::linalg_qr": 1,  # Q, R
}
_RESULTS = {"aten::_linalg_svd": 3}  # of the others 2


def costly_unread(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> list[list[bool]]:
    """For each operation whether what a cheaper call gives is all that is used of it."""
    used = read_or_kept(steps, storages)
    return [[_is_costly_unread(one, storages, used) for one in step] for step in steps]


def _is_costly_unread(one: Operation, storages: Sequence[Storage], used: frozenset[int]) -> bool:
    gives = _CHEAPER_GIVES.get(one.kind.name)
    if gives is None or one.backward or len(one.makes) != _RESULTS.get(one.kind.name, 2):
        return False
    others = [number for order, number in enumerate(one.makes) if order != gives]
    asked = all(storages[number].bytes for number in others)  # else it was told to leave them out
    return asked and one.makes[gives] in used and used.isdisjoint(others)


def read_or_kept(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> frozenset[int]:
    """Storages that any operation reads but to look at them in another way, and what stays."""
    read = {n for step in steps for one in step if not one.view for n, _ in one.reads}
    kept = (n for n, one in enumerate(storages) if one.alive or one.escaped or one.after_backward)
    return frozenset(read.union(kept))
