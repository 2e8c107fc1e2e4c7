"""Operations that are slow with the values that they are given: numbers that are next to zero.

A processor takes many times as long for floating-point numbers below the smallest normal one, as a
state has that decays and gets nothing new. In one of the watched steps the arguments of operations
are looked at on the CPU; where some of their numbers are that small, the operation runs on copies
of its arguments as they are, and on copies in which these numbers are zero, in turn. What it takes
then is the only thing that differs.
"""

import time
from collections.abc import Callable
from typing import Any

from pinchpoint.capture.flow.operations import Kind, Shapes
from pinchpoint.frozen import dataclass

MOST_LOOKED_AT = 1 << 15  # elements of a tensor, at even distances: some 0.05 ms
LEAST_RATIO = 1e-3  # of these, below which no operation is slower by what counts
TURNS = 3  # of each, the quickest of which counts
MOST_BYTES = 1 << 25  # of the arguments, which are copied: 10 ms at 10 GB/s, for all turns
MOST_NS = 400_000_000  # of all trials of a process
LEAST_SLOWER = 1.5  # times, below which it may be chance
_FLOATS = ("float32", "float64")

_Key = tuple[str, Shapes, int]  # name, shapes, number of the stack


@dataclass(frozen=True)
class Slow:
    """An operation that its values make slow; times are of its thread on a core."""

    ratio: float  # of the elements of the argument that has most of them
    ns: int
    ns_left: int  # with zeros in their place


class TinyValues:
    """Looks at operations of one step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.looks = False
        self.slow: dict[int, Slow] = {}  # by the operation's number in its step
        self._tried: dict[_Key, Slow | None] = {}
        self._cost_ns = 0

    def look(
        self, at: int, kind: Kind, shapes: Shapes, stack: int, call: tuple[Any, Any, Any]
    ) -> None:
        """At an operation that is about to run, ``call`` with its arguments and keywords."""
        func, args, kwargs = call
        left = kind.random or kind.opaque or kind.sizes_only or kind.read_by_host
        if left or not kind.name.startswith("aten::"):
            return
        tensors: list[Any] = []
        _each((args, kwargs), self._torch.Tensor, tensors.append)
        ratio = max(map(self._ratio, tensors), default=0.0)
        if ratio < LEAST_RATIO or sum(t.nbytes for t in tensors) > MOST_BYTES:
            return
        key = (kind.name, shapes, stack)
        if key not in self._tried:
            if self._cost_ns > MOST_NS:
                return
            began = time.perf_counter_ns()
            self._tried[key] = self._try(func, args, kwargs, ratio)
            self._cost_ns += time.perf_counter_ns() - began
        found = self._tried[key]
        if found is not None:
            self.slow[at] = found

    def _ratio(self, tensor: Any) -> float:
        """Elements that are next to zero, of those that are looked at."""
        torch = self._torch
        if not self._judged(tensor):
            return 0.0
        a_side = max(int(MOST_LOOKED_AT ** (1 / max(tensor.dim(), 1))), 1)
        some = tensor[tuple(slice(None, None, -(-n // a_side)) for n in tensor.shape)].abs()
        tiny = (some > 0) & (some < _least(torch, tensor))
        return int(tiny.count_nonzero()) / int(some.numel())

    def _judged(self, tensor: Any) -> bool:
        torch = self._torch
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
        return plain and str(tensor.dtype).endswith(_FLOATS) and tensor.numel() > 0

    def _try(self, func: Any, args: Any, kwargs: Any, ratio: float) -> Slow | None:
        """The operation on copies, as they are and with zeros, in turn."""
        ns: list[int] = []
        ns_left: list[int] = []
        for _ in range(TURNS):
            for times, change in ((ns, self._torch.clone), (ns_left, self._zeroed)):
                mine, named = _each((args, kwargs), self._torch.Tensor, change)
                began = time.thread_time_ns()
                func(*mine, **named)
                times.append(max(time.thread_time_ns() - began, 1))
        found = Slow(round(ratio, 6), min(ns), min(ns_left))
        return found if found.ns >= LEAST_SLOWER * found.ns_left else None

    def _zeroed(self, tensor: Any) -> Any:
        if not self._judged(tensor):
            return tensor.clone()
        return tensor.masked_fill(tensor.abs() < _least(self._torch, tensor), 0.0)


def _least(torch: Any, tensor: Any) -> float:
    """Below it, a product with a number of ordinary size, or what is left of a sum, may have no
    normal number: 1e-31 of single precision."""
    info = torch.finfo(tensor.dtype)
    return float(info.tiny / info.eps)


def _each(value: Any, tensor: Any, change: Callable[[Any], Any]) -> Any:
    """The same arguments, with ``change`` of each tensor in its place."""
    if isinstance(value, tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(_each(v, tensor, change) for v in value)
    if isinstance(value, dict):
        return {name: _each(one, tensor, change) for name, one in value.items()}
    return value
