"""Shapes, strides, types and values of operator inputs, from the text that traces keep them in.

A trace holds each distinct text once, so parsing each distinct text once is enough; the results
are remembered. Text that is not what it should be gives None: recordings come from anywhere.
"""

from functools import lru_cache
from typing import Any

import msgspec

Shape = tuple[int, ...]

# Sizes are int64 in every framework. 16 of them multiply to less than the largest float, 2**1024;
# no recording that we know has more than 8 dimensions.
_SIZE_END = 2**63
_MOST_DIMENSIONS = 16  # networks use 8 at most; what has more is no shape

_REMEMBERED = 1 << 14  # more distinct texts than the largest trace that we have seen holds


@lru_cache(maxsize=_REMEMBERED)
def parsed(text: str) -> tuple[Any, ...] | None:
    """A JSON list as nested tuples; None if the text is no JSON list."""
    try:
        value = msgspec.json.decode(text)
        return _as_tuples(value) if isinstance(value, list) else None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


@lru_cache(maxsize=_REMEMBERED)
def input_shapes(text: str) -> tuple[Shape | tuple[Shape, ...] | None, ...] | None:
    """One entry an input: a shape, a tuple of shapes for a list of tensors, None for no tensor.

    Scalars and absent inputs are written as ``[]`` like tensors without dimensions; both are
    ``()``. Strides have the same form.
    """
    inputs = parsed(text)
    return None if inputs is None else tuple(_shape(entry) for entry in inputs)


@lru_cache(maxsize=_REMEMBERED)
def input_dtypes(text: str) -> tuple[str, ...] | None:
    """One type an input as the recorder spells it, empty where it gives none."""
    inputs = parsed(text)
    return None if inputs is None else tuple(e if isinstance(e, str) else "" for e in inputs)


def tensor_shapes(text: str) -> tuple[Shape, ...]:
    """All tensor shapes with at least one dimension, lists of tensors laid flat."""
    flat: list[Shape] = []
    for entry in input_shapes(text) or ():
        if entry and isinstance(entry[0], tuple):
            flat += [s for s in entry if isinstance(s, tuple) and s]
        elif entry:
            flat.append(entry)  # type: ignore[arg-type]
    return tuple(flat)


@lru_cache(maxsize=_REMEMBERED)
def is_sparse(shapes: str, strides: str) -> bool:
    """Whether an input has a shape and no strides: it is no array, and holds less than its shape
    says (COO and CSR matrices, nested tensors)."""
    sizes, steps = input_shapes(shapes) or (), input_shapes(strides) or ()
    pairs = zip(sizes, steps, strict=False)
    return any(size and step == () for size, step in pairs)


def elements(shape: Shape) -> int:
    """How many elements a tensor of this shape has."""
    count = 1
    for size in shape:
        count *= size
    return count


def _shape(entry: Any) -> Shape | tuple[Shape, ...] | None:
    if not isinstance(entry, tuple):
        return None
    if _is_shape(entry) or all(isinstance(e, tuple) and _is_shape(e) for e in entry):
        return entry
    return None


def _is_shape(entry: tuple[Any, ...]) -> bool:
    return len(entry) <= _MOST_DIMENSIONS and all(
        type(size) is int and 0 <= size < _SIZE_END for size in entry
    )


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(v) for v in value) if isinstance(value, list) else value
