"""Which share of a solver's time its values alone take, on this CPU with one thread.

    python benchmarks/solver_results.py

The least of several calls that take turns, by size: symmetric, general and rectangular matrices of
torch's LAPACK, float32.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

SIZES = (32, 128, 384, 768)
BUDGET_S = 2.0  # for each size and solver
LEAST_TURNS = 3


def main() -> None:
    """Print one line a solver and size."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for size in SIZES:
        square, tall = torch.randn(size, size), torch.randn(2 * size, size)
        symmetric = square @ square.mT
        linalg = torch.linalg
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "eigh, eigvalsh": (
                partial(linalg.eigh, symmetric),
                partial(linalg.eigvalsh, symmetric),
            ),
            "eig, eigvals": (partial(linalg.eig, square), partial(linalg.eigvals, square)),
            "svd, svdvals": (
                partial(linalg.svd, square, full_matrices=False),
                partial(linalg.svdvals, square),
            ),
            "svd, svdvals (tall)": (
                partial(linalg.svd, tall, full_matrices=False),
                partial(linalg.svdvals, tall),
            ),
            "qr, qr mode r": (partial(linalg.qr, square), partial(linalg.qr, square, mode="r")),
            "qr, qr mode r (tall)": (partial(linalg.qr, tall), partial(linalg.qr, tall, mode="r")),
        }
        for name, calls in pairs.items():
            whole, values = least_of_each(calls)
            print(f"{name:22} {size:5} {1e3 * whole:9.3f} ms  {values / whole:.2f} stays")


def least_of_each(calls: tuple[Callable[[], Any], Callable[[], Any]]) -> tuple[float, float]:
    """The least seconds of each, in turns."""
    least, until, turns = [float("inf")] * 2, time.perf_counter() + BUDGET_S, 0
    while turns < LEAST_TURNS or time.perf_counter() < until:
        for at, call in enumerate(calls):
            began = time.perf_counter()
            call()
            least[at] = min(least[at], time.perf_counter() - began)
        turns += 1
    return least[0], least[1]


if __name__ == "__main__":
    main()
