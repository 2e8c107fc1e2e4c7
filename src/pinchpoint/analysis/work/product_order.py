"""Matrices that are multiplied by their own transpose on the long side.

``p(X Xᵀ) X`` is ``X p(Xᵀ X)`` for every polynomial p, and on the short side of X all of it is
smaller. A recording does not say which tensor a call reads; the strides of X and Xᵀ beside their
shapes, powers of a square matrix of that size and a product with X again do. Of ``(A B) C`` shapes
alone say too little: the backward pass makes a gradient and reads the activation of its size next.
"""

from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints

# Where the matrices are in the inputs of a product.
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "addmm_": 1, "baddbmm_": 1}
# What may stand between the products: multiples by a number, and sums of powers of one matrix.
_MULTIPLES = ("mul", "mul_", "div", "div_", "neg", "neg_", "copy_", "_to_copy", "clone")
_SUMS = ("add", "add_", "sub", "sub_")
# Calls until the large matrix is multiplied down: Newton-Schulz in separate operators has six, and
# an optimizer that goes through many matrices together begins with the next one after its own.
_FURTHEST = 12
LEAST_TIMES = 1.5  # that the products take, of what another order would: less is lost in a launch


@dataclass(frozen=True, eq=False)
class LongOrder:
    """Products of a step that the short side makes smaller."""

    device_rows: Ints
    left_ratio: Floats  # of the FLOPs of each
    largest: Shape  # the matrix by its own transpose, of most work
    made_of: Shape  # the matrix


@dataclass(frozen=True)
class _Product:
    batch: int
    rows: int
    inner: int
    columns: int
    first: Shape
    second: Shape
    strides: tuple[Shape | None, Shape | None]
    own_transpose: bool  # and nothing added to it

    @property
    def operands(self) -> tuple[tuple[Shape, Shape | None], ...]:
        """With the strides of each."""
        return (self.first, self.strides[0]), (self.second, self.strides[1])

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def result(self) -> Shape:
        return (*self.first[:-2], self.rows, self.columns)


@once_per_trace
def long_order(trace: Trace) -> LongOrder | None:
    """All of them; None where there are none, or where shapes were not recorded."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not len(host):
        return None
    given = launched_calls(trace)
    products = [_product(of) for of in given.calls]
    large = np.array([p is not None and _grows(p) for p in products] + [False], np.bool_)
    device = np.flatnonzero(device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL))
    if not large[given.which[device]].any():
        return None
    rows, first = np.unique(given.operator[device], return_index=True)
    known = rows < len(host)
    rows, calls = rows[known], given.which[device[first]][known]
    order = np.lexsort((host["start_ns"][rows], host["thread"][rows]))
    rows, calls = rows[order], calls[order]
    left: dict[int, float] = {}
    most: tuple[int, _Product] | None = None
    for at in np.flatnonzero(large[calls]).tolist():
        if int(rows[at]) in left:
            continue
        ahead = calls[at : at + 1 + _FURTHEST].tolist()
        found = _multiplied_down([given.calls[i] for i in ahead], [products[i] for i in ahead])
        left.update({int(rows[at + i]): ratio for i, ratio in found.items()})
        made = products[ahead[0]]
        if found and made and (most is None or made.flops > most[0]):
            most = made.flops, made
    if most is None:
        return None
    mine = device[np.isin(given.operator[device], list(left))]
    ratio = np.array([left[row] for row in given.operator[mine].tolist()])
    made = most[1]
    return LongOrder(mine, ratio, made.result, made.first)


def _product(of: LaunchedCall) -> _Product | None:
    name = of.call.name.removeprefix("aten::")
    at = _PRODUCTS.get(name) if of.call.name.startswith("aten::") else None
    if at is None:
        return None
    a, b = of.call.shape(at), of.call.shape(at + 1)
    if not a or not b or len(a) != len(b) or len(a) < 2 or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    strides = of.stride(at), of.stride(at + 1)
    turned = at == 0 and a == (*b[:-2], b[-1], b[-2]) and _turned(*strides)
    return _Product(elements(a[:-2]), a[-2], a[-1], b[-1], a, b, strides, turned)


def _turned(a: Shape | None, b: Shape | None) -> bool:
    """Whether the second is read along its columns as the first along its rows: a matrix and its
    transpose. The other way round are gradients of weights."""
    return a is not None and b is not None and a[-2:] == (b[-1], b[-2]) and a[-1] == 1 < a[-2]


def _grows(made: _Product) -> bool:
    """Whether it is a matrix by its own transpose, on the long side."""
    return made.own_transpose and made.rows >= LEAST_TIMES * made.inner


def _multiplied_down(
    calls: Sequence[LaunchedCall], products: Sequence[_Product | None]
) -> dict[int, float]:
    """Of the first call, which makes a large matrix, and those behind it until the matrix is
    multiplied with what it was made from: what the short side leaves of each; nothing where that
    does not happen."""
    made = products[0]
    assert made is not None
    big, ratio, powers = made.result, made.inner / made.rows, []
    for at, (of, product) in enumerate(zip(calls[1:], products[1:], strict=True), 1):
        if product is not None and big in (product.first, product.second):
            if product.first == product.second:
                powers.append(at)
                continue
            other = product.operands[1 if product.first == big else 0]
            if other not in made.operands:  # lies in memory as it, too: weights lie otherwise
                return {}
            return {0: ratio, at: ratio, **dict.fromkeys(powers, ratio**3)}
        if not _keeps(of, elements(big)):
            return {}
    return {}


def _keeps(of: LaunchedCall, size: int) -> bool:
    """Whether a call leaves a matrix of this size alone, or makes a multiple of it or a sum. Views
    have the same size in other shapes."""
    read = [elements(of.call.shape(i) or ()) for i in of.call.tensors()]
    if size not in read:
        return True
    name = of.call.name.removeprefix("aten::")
    once = read.count(size) == 1 or "copy" in name
    return name in _SUMS or (name in _MULTIPLES and once)
