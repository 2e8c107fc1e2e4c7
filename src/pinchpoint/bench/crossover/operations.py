"""The operations that are compared, each over one size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROW = 1024  # columns of the row-wise operations
HEAD = 64  # width of an attention head
CHANNELS = 64


@dataclass(frozen=True)
class Operation:
    """``inputs(n)`` gives shapes; ``run`` the work on tensors of these shapes."""

    name: str
    size_is: str
    least: int
    most: int
    inputs: Callable[[int], tuple[tuple[int, ...], ...]]
    run: Callable[..., Any]
    flop: Callable[[int], float]


def _torch() -> Any:
    import torch

    return torch


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "matmul",
        "n of an n x n product",
        8,
        4096,
        lambda n: ((n, n), (n, n)),
        lambda a, b: a @ b,
        lambda n: 2.0 * n**3,
    ),
    Operation("add", "elements", 64, 1 << 26, lambda n: ((n,), (n,)), lambda a, b: a + b, float),
    Operation("sum", "elements", 64, 1 << 26, lambda n: ((n,),), lambda a: a.sum(), float),
    Operation(
        "exp", "elements", 64, 1 << 26, lambda n: ((n,),), lambda a: a.exp(), lambda n: 10.0 * n
    ),
    Operation(
        "softmax",
        f"rows of {ROW}",
        1,
        1 << 16,
        lambda n: ((n, ROW),),
        lambda a: _torch().softmax(a, -1),
        lambda n: 5.0 * n * ROW,
    ),
    Operation(
        "layer_norm",
        f"rows of {ROW}",
        1,
        1 << 16,
        lambda n: ((n, ROW),),
        lambda a: _torch().nn.functional.layer_norm(a, (ROW,)),
        lambda n: 8.0 * n * ROW,
    ),
    Operation("sort", "elements", 64, 1 << 24, lambda n: ((n,),), lambda a: a.sort().values, float),
    Operation(
        "conv2d",
        f"n of an n x n image, {CHANNELS} channels, 3 x 3",
        4,
        256,
        lambda n: ((1, CHANNELS, n, n), (CHANNELS, CHANNELS, 3, 3)),
        lambda x, w: _torch().nn.functional.conv2d(x, w, padding=1),
        lambda n: 2.0 * 9 * CHANNELS**2 * n**2,
    ),
    Operation(
        "attention",
        f"sequence length, 8 heads of {HEAD}",
        8,
        4096,
        lambda n: ((1, 8, n, HEAD),) * 3,
        lambda q, k, v: _torch().nn.functional.scaled_dot_product_attention(q, k, v),
        lambda n: 4.0 * 8 * n**2 * HEAD,
    ),
)


def sizes(operation: Operation, factor: int = 4) -> list[int]:
    """Geometric sizes from the least to the most."""
    found = [operation.least]
    while found[-1] * factor <= operation.most:
        found.append(found[-1] * factor)
    return found
