"""Matrices, and products of them that are put off."""

from pinchpoint.capture.flow.operations import Tensor
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class Matrix:
    """Something that is there: a number that says what it is, in one of its two directions."""

    key: int
    rows: int
    columns: int
    turned: bool = False

    @property
    def turned_round(self) -> "Matrix":
        """In the other direction."""
        return Matrix(self.key, self.columns, self.rows, not self.turned)


@dataclass(frozen=True)
class Pair:
    """``left @ core @ right``, none of which is multiplied yet; no core: nothing between them."""

    left: Matrix
    core: Matrix | None
    right: Matrix
    batch: int
    by: int  # the operation that gave it
    key: int  # of what it is when it is computed
    turned: bool = False

    @property
    def rows(self) -> int:
        """Of the product."""
        return self.left.rows

    @property
    def columns(self) -> int:
        """Of the product."""
        return self.right.columns

    @property
    def turned_round(self) -> "Pair":
        """In the other direction."""
        left, right = self.right.turned_round, self.left.turned_round
        core = self.core.turned_round if self.core else None
        return Pair(left, core, right, self.batch, self.by, self.key, not self.turned)


Value = Matrix | Pair


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor as an operation has it."""
    shape: tuple[int, ...] = tensor[1][1]
    return shape


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps."""
    stride, found = 1, list[int]()
    for size in reversed(shape):
        found.append(stride)
        stride *= size
    return tuple(reversed(found))


def turned_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape or strides with the last two turned round."""
    return (*sizes[:-2], *sizes[:-3:-1])
