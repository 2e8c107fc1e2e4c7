"""Trials of other ways: what an operator takes with its own arguments, and what another way does.

An operator of a watched step for which another way is known runs again, and so does the other way,
in turn, on the same arguments: told is what gives the same and takes clearly less. Each place is
tried once; at each later call the arguments are looked at, and what fits once only is not told.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from pinchpoint.capture.flow.operations import Kind, Shapes, named_arguments
from pinchpoint.capture.ways.convolving import of_convolution, of_max_pool, of_mean_pool
from pinchpoint.capture.ways.multiplying import of_addmm, of_bmm, of_mm
from pinchpoint.capture.ways.ordering import of_sort, of_transform, of_unique, of_unique_rows
from pinchpoint.capture.ways.other import Other
from pinchpoint.capture.ways.selecting import (
    of_kth,
    of_median,
    of_row_additions,
    of_running_sum,
    of_topk,
)
from pinchpoint.capture.ways.solving import (
    of_cholesky,
    of_determinant,
    of_eig,
    of_exponential,
    of_inverse,
    of_least_squares,
    of_pseudo_inverse,
    of_solve,
    of_svd,
)
from pinchpoint.frozen import dataclass

Ways = Callable[[Any, Any], Iterator[Other]]
WAYS: dict[str, Ways] = {
    "aten::_linalg_svd": of_svd,
    "aten::linalg_eig": of_eig,
    "aten::linalg_inv_ex": of_inverse,
    "aten::_linalg_solve_ex": of_solve,
    "aten::_linalg_det": of_determinant,
    "aten::_linalg_slogdet": of_determinant,
    "aten::linalg_matrix_exp": of_exponential,
    "aten::linalg_pinv": of_pseudo_inverse,
    "aten::mm": of_mm,
    "aten::addmm": of_addmm,
    "aten::bmm": of_bmm,
    "aten::convolution": of_convolution,
    "aten::max_pool2d_with_indices": of_max_pool,
    "aten::avg_pool2d": of_mean_pool,
    "aten::sort": of_sort,
    "aten::_unique2": of_unique,
    "aten::unique_dim": of_unique_rows,
    "aten::_fft_c2c": of_transform,
    "aten::linalg_cholesky_ex": of_cholesky,
    "aten::linalg_lstsq": of_least_squares,
    "aten::topk": of_topk,
    "aten::kthvalue": of_kth,
    "aten::median": of_median,
    "aten::cumsum": of_running_sum,
    "aten::index_add": of_row_additions,
    "aten::scatter_add": of_row_additions,
    "aten::index_add_": of_row_additions,
    "aten::scatter_add_": of_row_additions,
}
TURNS = 3  # of each way, the quickest of which counts
LONG_NS = 100_000_000  # of one call: it runs once more at most
LEAST_NS = 50_000  # of one call: below it, what is seen is the clock and the call itself
LEAST_QUICKER = 1.5  # times, below which it may be chance
MOST_NS = 1_000_000_000  # of all trials of a process; one that began is ended
MOST_LOOKS_NS = 500_000_000  # of looks at arguments
# Of the arguments of a call: what ways lay beside them is some times that.
MOST_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
FREE_TIMES = 8  # so many times the arguments are to be free on a device

Place = tuple[str, Shapes, Any]  # name, shapes, what tells the lines around from others


@dataclass(frozen=True)
class Tried:
    """Of one place; times are by the clock, with all work on a device done."""

    key: str
    ns: int
    ns_left: int


class Trials:
    """Tries ways in the steps that are watched."""

    def __init__(self, torch: Any, free_bytes: Callable[[Any], int]) -> None:
        self._torch, self._free_bytes = torch, free_bytes
        self._tried: dict[Place, Tried | None] = {}
        self._at: dict[Place, list[tuple[int, int]]] = {}  # step and number there
        self.cost_ns = self._looks_ns = 0

    def look(
        self, at: tuple[int, int], kind: Kind, shapes: Shapes, stack: Any, call: tuple[Any, ...]
    ) -> None:
        """At an operation that is about to run; ``at``: its step, and its number there."""
        ways = WAYS.get(kind.name)
        place = (kind.name, shapes, stack)
        if ways is None or (place in self._tried and self._tried[place] is None):
            return
        func, args, kwargs = call
        began = time.perf_counter_ns()
        other = self._other(ways, dict(named_arguments(kind, args, kwargs)))
        self._looks_ns += time.perf_counter_ns() - began
        before = self._tried.get(place)
        if before is not None:
            if other is None or other.key != before.key:  # not always so
                self._tried[place] = None
        else:
            self._tried[place] = None
            if other is not None and self.cost_ns < MOST_NS:
                began = time.perf_counter_ns()
                try:
                    mine, named = self._own(kind, args), self._own(kind, kwargs)
                    self._tried[place] = self._try(lambda: func(*mine, **named), other)
                finally:
                    self.cost_ns += time.perf_counter_ns() - began
        if self._tried[place] is not None:
            self._at.setdefault(place, []).append(at)

    def _own(self, kind: Kind, given: Any) -> Any:
        """The same arguments with copies of those that the operator writes to."""
        pairs = (
            given.items() if isinstance(given, dict) else zip(kind.arguments, given, strict=False)
        )
        told = {
            name: one.clone()
            if name in kind.writes and isinstance(one, self._torch.Tensor)
            else one
            for name, one in pairs
        }
        return told if isinstance(given, dict) else tuple(told.values())

    def found(self) -> Iterator[tuple[Tried, list[tuple[int, int]]]]:
        """What was quicker, with its operations."""
        for place, tried in self._tried.items():
            if tried is not None:
                yield tried, self._at[place]

    def by_place(self) -> Iterator[tuple[Place, Tried | None]]:
        """All places that were tried."""
        yield from self._tried.items()

    def _other(self, ways: Ways, given: dict[str, Any]) -> Other | None:
        torch = self._torch
        tensors = [one for one in given.values() if isinstance(one, torch.Tensor)]
        size = sum(one.numel() * one.element_size() for one in tensors)
        kinds = {one.device.type for one in tensors}
        plain = all(one.layout is torch.strided and not _is_lazy(one) for one in tensors)
        if self._looks_ns > MOST_LOOKS_NS or not plain or len(kinds) != 1:
            return None
        (kind,) = kinds
        if not 0 < size <= MOST_BYTES.get(kind, 0):
            return None
        if kind == "cuda" and FREE_TIMES * size > self._free_bytes(torch):
            return None
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sparse tensors in beta: not the program's
            return next(ways(torch, given), None)

    def _try(self, original: Callable[[], Any], other: Other) -> Tried | None:
        with self._torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ns, answer = self._timed(original)
            _, found = self._timed(other.run)  # the first may make plans
            if ns < LEAST_NS or not other.gives_the_same(answer, found):
                return None
            del answer, found
            turns = 1 if ns > LONG_NS else TURNS
            left = ns
            for _ in range(turns):
                left = min(left, self._timed(other.run)[0])
                if turns > 1:
                    ns = min(ns, self._timed(original)[0])
        return Tried(other.key, ns, left) if ns >= LEAST_QUICKER * left else None

    def _timed(self, run: Callable[[], Any]) -> tuple[int, Any]:
        cuda = self._torch.cuda
        wait = cuda.synchronize if cuda.is_initialized() else lambda: None
        wait()
        began = time.perf_counter_ns()
        answer = run()
        wait()
        return max(time.perf_counter_ns() - began, 1), answer


def _is_lazy(tensor: Any) -> bool:
    """Below the dispatcher's modes nothing resolves what was put off."""
    return bool(tensor.is_conj() or tensor.is_neg())
