"""Attention that stores its scores: products, softmax and what lies between, found by shapes.

Scores have one number for each pair of query and key, ``(…, T, S)``. A softmax over such a tensor
that a batched product made, or that one consumes, is attention written out.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

LEAST_LENGTH = 128  # of queries and keys; with fewer, scores fit into caches and launches decide

# Where the operands stand among the inputs.
_PRODUCTS = {"aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
_WHOLE = ("aten::matmul", "aten::einsum")
_FORWARD = ("aten::_softmax", "aten::_safe_softmax")
_BACKWARD = "aten::_softmax_backward_data"
_MASKING = ("aten::masked_fill", "aten::masked_fill_", "aten::where", "aten::add", "aten::add_")


@dataclass(frozen=True, eq=False)
class StoredScores:
    """What attention with stored scores does in the judged steps."""

    products: Rows  # rows of device_ops: products that make or consume scores
    others: Rows  # softmax, masks, scaling, copies of scores
    flops: float  # of the same attention over all judged steps, what a mask spares left out
    bytes: int  # of one tensor of scores, the largest
    shape: Shape  # of that tensor
    wide: bool  # scores come from products in 32-bit formats
    masked: bool
    biased: bool  # numbers of their own for each head or request are added to the scores


@dataclass(frozen=True)
class _Scores:
    """One kind of scores: ``batch`` times ``(queries, keys)``."""

    batch: int
    queries: int
    keys: int

    @property
    def count(self) -> int:
        return self.batch * self.queries * self.keys

    def has_size_of(self, shape: Shape | None) -> bool:
        """Whether a tensor has one element for each score."""
        if shape is None or len(shape) < 2 or elements(shape) != self.count:
            return False
        return set(shape[-2:]) == {self.queries, self.keys}

    def width(self, of: LaunchedCall) -> int | None:
        """Width of the heads, if the call is the product that makes these scores."""
        a, b = _operands(of)
        if a is None or b is None or (a[0], a[1], b[2]) != (self.batch, self.queries, self.keys):
            return None
        return a[2]


@once_per_trace
def stored_scores(trace: Trace) -> StoredScores | None:
    """Attention with stored scores in the judged steps; None without any."""
    calls, inside = launched_calls(trace), device_ops_in_steps(trace)
    used = distinct(calls.which[inside])
    kinds = [calls.calls[i] for i in used.tolist() if i < len(calls.calls)]
    scores = {s: w for s in _candidates(kinds) if (w := _width(s, kinds)) is not None}
    if not scores:
        return None
    of_product = calls.where(lambda of: any(_multiplies(s, of) for s in scores)) & inside
    of_scores = calls.where(lambda of: any(_touches(s, of) for s in scores)) & inside
    of_scores |= _preparing(trace, of_product) & inside
    masked = any(_masks(s, of) for s in scores for of in kinds)
    largest = max(scores, key=lambda s: s.count)
    first = next(of for of in kinds if largest.width(of) is not None)
    return StoredScores(
        np.flatnonzero(of_product),
        np.flatnonzero(of_scores & ~of_product),
        sum(_flops(trace, s, width, inside, masked=masked) for s, width in scores.items()),
        largest.count * first.call.element_bytes(_PRODUCTS[first.call.name][0]),
        (largest.batch, largest.queries, largest.keys),
        first.call.element_bytes(_PRODUCTS[first.call.name][0]) >= 4,
        masked,
        any(_adds_bias(s, of) for s in scores for of in kinds),
    )


def _preparing(trace: Trace, of_product: Mask) -> Mask:
    """Operations of the same ``matmul``: copies of operands that a batched product needs dense."""
    host, operator = trace.host_ops, launched_calls(trace).operator
    assert host is not None
    whole = rows_named(trace, host, _WHOLE.__contains__)
    around = np.append(nearest(parents(host), whole), len(host))[operator]
    found: Mask = np.isin(around, around[of_product], kind="table")
    found &= around < len(host)
    return found


def _candidates(kinds: list[LaunchedCall]) -> set[_Scores]:
    found = set()
    for of in kinds:
        shape = of.call.shape(0)
        if of.call.name not in _FORWARD or shape is None or len(shape) < 2:
            continue
        if min(shape[-2:]) >= LEAST_LENGTH:
            found.add(_Scores(elements(shape[:-2]), shape[-2], shape[-1]))
    return found


def _width(scores: _Scores, kinds: list[LaunchedCall]) -> int | None:
    return next((w for of in kinds if (w := scores.width(of)) is not None), None)


def _operands(of: LaunchedCall) -> tuple[Shape | None, Shape | None]:
    where = _PRODUCTS.get(of.call.name)
    if where is None:
        return None, None
    a, b = of.call.shape(where[0]), of.call.shape(where[1])
    whole = a is not None and b is not None and len(a) == len(b) == 3
    return (a, b) if whole else (None, None)


def _multiplies(scores: _Scores, of: LaunchedCall) -> bool:
    a, b = _operands(of)
    if a is None or b is None:
        return False
    result = (a[0], a[1], b[2])
    return any(scores.has_size_of(shape) for shape in (a, b, result))


def _touches(scores: _Scores, of: LaunchedCall) -> bool:
    return any(scores.has_size_of(of.call.shape(i)) for i in range(len(of.call.shapes)))


def _masks(scores: _Scores, of: LaunchedCall) -> bool:
    """Whether one mask for all heads and requests is laid over the scores: as a rule, causal."""
    if of.call.name not in _MASKING or not _touches(scores, of):
        return False
    one = scores.queries * scores.keys
    shapes = (of.call.shape(i) for i in range(len(of.call.shapes)))
    return any(s and elements(s) == one and s[-2:] == (scores.queries, scores.keys) for s in shapes)


def _adds_bias(scores: _Scores, of: LaunchedCall) -> bool:
    """Whether more than one matrix is added to scores: positions by head, masks by request. Which
    of them a kernel may leave out is not in their shape."""
    if of.call.name not in ("aten::add", "aten::add_") or not _touches(scores, of):
        return False
    one = scores.queries * scores.keys
    shapes = (of.call.shape(i) for i in range(len(of.call.shapes)))
    return any(
        s and s[-2:] == (scores.queries, scores.keys) and one < elements(s) < scores.count
        for s in shapes
    )


def _flops(trace: Trace, scores: _Scores, width: int, inside: Mask, *, masked: bool) -> float:
    """Two products forward, five backward (the fused kernel makes one of them again)."""
    calls = launched_calls(trace)

    def times(names: tuple[str, ...]) -> int:
        hit = calls.where(lambda of: of.call.name in names and _touches(scores, of)) & inside
        return len(distinct(calls.operator[hit]))

    whole = 2 * (2 * times(_FORWARD) + 5 * times((_BACKWARD,))) * scores.count * width
    return whole / 2 if masked and scores.queries == scores.keys else float(whole)
