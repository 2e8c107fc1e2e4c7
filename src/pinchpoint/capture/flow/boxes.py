"""The part of what an operation made that others look at, as a range in each of its dimensions.

Several reads of one result, such as longer and longer ends of a cache, share most of what they
read: the smallest box around all of them is at least what is read.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

Box = tuple[
    tuple[int, int], ...
]  # in each dimension of what was made: first, and one past the last

_SELECTS = "aten::index_select"
_COPIES = frozenset(f"aten::{name}" for name in ("_to_copy", "clone", "copy_"))


def box_of_view(
    made: Sequence[int], shape: Sequence[int], stride: Sequence[int], at: int
) -> Box | None:
    """Where a view lies in what was made, row after row; None where that is no box."""
    steps = [prod(made[dim + 1 :]) for dim in range(len(made))]
    found, rest = [], at
    for step in steps:
        first, rest = divmod(rest, step) if step else (0, rest)
        found.append([first, first + 1])
    for size, by in zip(shape, stride, strict=True):
        if size == 1:
            continue
        dims = [dim for dim, step in enumerate(steps) if step == by and made[dim] > 1]
        if len(dims) != 1 or found[dims[0]][1] - found[dims[0]][0] > 1:
            return None
        found[dims[0]][1] = found[dims[0]][0] + size
    if any(last > size for (_, last), size in zip(found, made, strict=True)):
        return None
    return tuple((first, last) for first, last in found)


def around(one: Box, other: Box) -> Box:
    """The smallest box that holds both."""
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def share_of(box: Box, made: Sequence[int]) -> float:
    """Of what was made."""
    return prod(last - first for first, last in box) / max(prod(made), 1)


def read_through(
    name: str, plain: Any, source: Sequence[int], given: Sequence[int], box: Box
) -> Box | None:
    """What a copy, or a choice of whole slices, reads of its source where this much of what it
    gives is read; None for anything else."""
    if len(source) != len(given):
        return None
    if name in _COPIES:
        return box if tuple(source) == tuple(given) else None
    if name != _SELECTS:
        return None
    dim = int(plain[0][1]) % len(source)
    return tuple((0, source[at]) if at == dim else one for at, one in enumerate(box))
