"""How much of what ``torch.save`` writes, and ``torch.load`` reads, the tensors of a call hold.

A tensor is written with all of its storage: of a view of a batch, the batch. Containers are looked
into; of a call that holds anything else nothing is known.
"""

import sys
from collections.abc import Iterable
from dataclasses import field
from math import prod
from statistics import median_low
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.stacks import spelt_stack
from pinchpoint.frozen import dataclass

MOST_VALUES = 10_000  # of one call: 10 ms, where writing so many tensors takes a second
MOST_PLACES = 32  # of a program
MOST_SIZES = 4096  # of one place: 64 KB
_PLAIN = (int, float, complex, str, bytes, type(None))

Place = tuple[tuple[CodeType, int], ...]  # code and instruction, innermost first


@dataclass
class _Calls:
    """Of one kind at one place."""

    calls: int = 0
    ns: int = 0
    told: int = 0  # calls of which all values were looked at
    held_bytes: int = 0  # of the tensors of these
    stored_bytes: int = 0  # of their storages
    sizes: list[tuple[int, int]] = field(default_factory=list)  # bytes stored and ns of the first


class TensorFiles:
    """All calls of the run, by place."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, Place], _Calls] = {}

    def called(self, kind: str, place: Place, value: Any, ns: int) -> None:
        """A call of this kind, ``save`` or ``load``, wrote or gave a value."""
        key = (kind, place)
        if key not in self._calls and len(self._calls) >= MOST_PLACES:
            return
        calls = self._calls.setdefault(key, _Calls())
        calls.calls += 1
        calls.ns += ns
        size = held_and_stored(value)
        if size is not None:
            calls.told += 1
            calls.held_bytes += size[0]
            calls.stored_bytes += size[1]
            if len(calls.sizes) < MOST_SIZES:
                calls.sizes.append((size[1], ns))

    def document(self) -> list[dict[str, Any]]:
        """As the run folder has it, longest first."""
        ordered = sorted(self._calls.items(), key=lambda one: -one[1].ns)
        return [
            {
                "kind": kind,
                "at": spelt_stack(place),
                "calls": of.calls,
                "ns": of.ns,
                "told": of.told,
                "held_bytes": of.held_bytes,
                "stored_bytes": of.stored_bytes,
                "thirds": _thirds(of.sizes),
            }
            for (kind, place), of in ordered
        ]


def held_and_stored(value: Any) -> tuple[int, int] | None:
    """Bytes of the tensors in a value, and of their storages, each once; None where it holds what
    cannot be looked into."""
    torch = sys.modules["torch"]
    held: dict[int, dict[Any, int]] = {}  # by storage and by how a tensor lies in it
    stored: dict[int, int] = {}
    left, seen = [value], 0
    while left:
        one = left.pop()
        seen += 1
        if seen > MOST_VALUES:
            return None
        if isinstance(one, torch.Tensor):
            if type(one) not in (torch.Tensor, torch.nn.Parameter) or one.layout != torch.strided:
                return None
            storage = torch._C.TensorBase.untyped_storage(one)  # what a watch replaces is not asked
            lies = (one.storage_offset(), tuple(one.shape), one.stride())
            stored[storage._cdata] = storage.nbytes()
            held.setdefault(storage._cdata, {})[lies] = _own_bytes(one)
        elif isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
        elif not isinstance(one, _PLAIN):
            return None
    return sum(_at_most(stored[n], of.values()) for n, of in held.items()), sum(stored.values())


def _thirds(sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Median bytes, and nanoseconds, of the third with least bytes and of that with most."""
    third, ordered = len(sizes) // 3, sorted(sizes)
    if not third:
        return []
    parts = (ordered[:third], ordered[-third:])
    return [(median_low(b for b, _ in part), median_low(ns for _, ns in part)) for part in parts]


def _own_bytes(tensor: Any) -> int:
    """Of its elements, those that an expanded one repeats once."""
    looks = zip(tensor.shape, tensor.stride(), strict=True)
    sizes = [int(size) for size, step in looks if step or not size]
    return prod(sizes) * int(tensor.element_size())


def _at_most(most: int, parts: Iterable[int]) -> int:
    return min(most, sum(parts))
