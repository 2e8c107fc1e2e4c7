"""Products with matrices most of whose numbers are zero: diagonals, one number a row, and few."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pinchpoint.capture.ways.other import Other, same
from pinchpoint.capture.ways.structure import mostly_zeros

Given = Mapping[str, Any]
_Way = tuple[str, Callable[[], Any]]
_DIAGONAL, _FEW = "product-with-diagonal", "product-with-zeros"
# Multiplications of a product: fewer are a matter of calls, on any device.
LEAST_PRODUCTS = 1 << 22
TINY_SIDE = 8  # of matrices in a batch: tiles of a product are 16 wide and more
MOST_LAID_OUT = 1 << 24  # numbers of the products of a batch, side by side


def of_mm(torch: Any, given: Given) -> Iterator[Other]:
    """``left @ right``."""
    yield from _product(torch, given["self"], given["mat2"], lambda found: found)


def of_addmm(torch: Any, given: Given) -> Iterator[Other]:
    """The same with something added."""
    added, alpha, beta = given["self"], given.get("alpha", 1), given.get("beta", 1)

    def finished(found: Any) -> Any:
        return torch.add(found if alpha == 1 else alpha * found, added, alpha=beta)

    yield from _product(torch, given["mat1"], given["mat2"], finished)


def _product(torch: Any, left: Any, right: Any, finished: Callable[[Any], Any]) -> Iterator[Other]:
    work = left.numel() * right.shape[-1]
    if left.dim() != 2 or work < LEAST_PRODUCTS or not left.is_floating_point():
        return
    if mostly_zeros(left):
        found = _of_left(torch, left, right)
    else:
        found = _of_right(torch, left, right) if mostly_zeros(right) else None
    if found is not None:
        key, run = found
        yield Other(key, lambda: finished(run()), lambda answer, it: same(torch, answer, it))


def _of_left(torch: Any, left: Any, right: Any) -> _Way | None:
    """With hardly a number in the first matrix. Of a multiple of the identity nothing is told."""
    if (diagonal := _diagonal(left)) is not None:
        multiple = bool((diagonal == diagonal[0]).all())
        return None if multiple else (_DIAGONAL, lambda: right * diagonal.unsqueeze(1))
    if (one := _one_in_each_row(left)) is not None:
        number, factor = one
        return "product-with-one-hot", lambda: right.index_select(0, number) * factor
    return _FEW, partial(torch.mm, left.to_sparse_csr(), right)


def _of_right(torch: Any, left: Any, right: Any) -> _Way | None:
    """With hardly a number in the second one, likewise."""
    if (diagonal := _diagonal(right)) is not None:
        multiple = bool((diagonal == diagonal[0]).all())
        return None if multiple else (_DIAGONAL, lambda: left * diagonal)
    few, turned = right.mT.contiguous().to_sparse_csr(), left.mT.contiguous()
    return _FEW, lambda: torch.mm(few, turned).mT


def _diagonal(a: Any) -> Any | None:
    """Its numbers, where no others are there."""
    if a.shape[0] != a.shape[1]:
        return None
    on = a.diagonal()
    return on.clone() if int((on != 0).sum()) == int((a != 0).sum()) else None


def _one_in_each_row(a: Any) -> tuple[Any, Any] | None:
    """Where each row has its one number, and which."""
    if not bool(((a != 0).sum(1) == 1).all()):
        return None
    number = (a != 0).int().argmax(1)
    return number, a.gather(1, number.unsqueeze(1))


def of_bmm(torch: Any, given: Given) -> Iterator[Other]:
    """Many products of tiny matrices."""
    left, right = given["self"], given["mat2"]
    rows, inner, columns = left.shape[1], left.shape[2], right.shape[2]
    if len(right) > 1 and right.stride(0) == 0 and left.is_floating_point():
        yield Other(
            "product-with-one-matrix",
            lambda: left.reshape(-1, inner).mm(right[0]).view(-1, rows, columns),
            lambda answer, it: same(torch, answer, it),
        )
        return
    laid_out = left.shape[0] * rows * inner * columns
    if max(rows, inner, columns) > TINY_SIDE or laid_out > MOST_LAID_OUT:
        return
    if laid_out < LEAST_PRODUCTS // 8 or not left.is_floating_point():
        return
    yield Other(
        "product-of-tiny",
        lambda: (left.unsqueeze(3) * right.unsqueeze(1)).sum(2),
        lambda answer, it: same(torch, answer, it),
    )
