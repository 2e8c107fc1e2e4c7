"""What values hold, as short words: two that hold the same have the same word.

Plain values are themselves, arrays and tensors on the CPU a checksum of all their bytes, containers
what is in them, and any other object which one it is. What lies on a device is not read: of that
there are shapes alone. What cannot be told raises :class:`Untold`.
"""

import sys
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from pinchpoint.frozen import dataclass

# Of one value, and in all of a look: a checksum takes a second for one to three GB.
MOST_BYTES, MOST_IN_ALL_BYTES = 32 << 20, 128 << 20
MOST_ITEMS = 4096  # of containers, in all of one value
SAMPLED = 4096  # numbers of an array, at even distances
_PLAIN = (type(None), bool, int, complex, type(Ellipsis))
_BY_NAME = ("torch.device", "torch.dtype", "torch.Size", "numpy.dtype")


class Untold(Exception):
    """What a value holds is not known: too much of it, or of a kind that is not looked into."""


@dataclass(frozen=True)
class Content:
    """What was told of one value, or of the arguments of one call."""

    word: Hashable
    numbers: int = 0  # and letters, in it
    varied: bool = False  # they are not all the same one
    arrays: int = 0
    unread: bool = False  # something of it lies on a device
    tiny_ratio: float = 0.0  # most of one array: numbers too small for all of their digits


class Contents:
    """Reads values, and counts what it has read."""

    def __init__(self) -> None:
        self._left_bytes = MOST_IN_ALL_BYTES

    def of(self, value: Any, *, result: bool = False) -> Content:
        """Raises :class:`Untold`. ``result``: what lies on a device is no answer."""
        reading = _Reading(result=result)
        word = reading.word(value, self)
        return Content(
            word,
            reading.numbers,
            reading.varied,
            reading.arrays,
            reading.unread,
            reading.tiny_ratio,
        )

    def read(self, size: int) -> None:
        """So many bytes are about to be read."""
        if size > MOST_BYTES or size > self._left_bytes:
            raise Untold("it holds too much to compare")
        self._left_bytes -= size


class _Reading:
    """Of one value."""

    def __init__(self, *, result: bool) -> None:
        self._result, self._items = result, 0
        self._first: Hashable = None
        self.numbers = self.arrays = 0
        self.varied = self.unread = False
        self.tiny_ratio = 0.0

    def word(self, value: Any, contents: Contents, depth: int = 0) -> Hashable:
        self._items += 1
        if self._items > MOST_ITEMS or depth > 6:
            raise Untold("it holds too many objects to compare")
        kind = type(value)
        if kind in _PLAIN:
            return self._plain(value, value)
        if kind is float:
            return self._plain(value, repr(value))  # nan is not equal to itself
        if kind in (str, bytes):
            return self._text(value)
        if isinstance(value, tuple) or kind in (list, set, frozenset):
            inside = [self.word(one, contents, depth + 1) for one in value]
            ordered = isinstance(value, tuple) or kind is list
            return (kind.__name__, tuple(inside) if ordered else frozenset(inside))
        if kind in (dict, OrderedDict, defaultdict):  # others may make what they are asked for
            items = ((key, self.word(one, contents, depth + 1)) for key, one in value.items())
            return (kind.__name__, tuple((_name_of(key), one) for key, one in items))
        return self._of_library(value, kind, contents, depth)

    def _of_library(self, value: Any, kind: type, contents: Contents, depth: int) -> Hashable:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and kind is numpy.ndarray:
            return self._array(numpy, value, contents)
        if numpy is not None and isinstance(value, numpy.generic):
            self.numbers += 1
            return (value.dtype.str, value.tobytes())
        if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
            return self._tensor(torch, value, contents)
        full = f"{kind.__module__}.{kind.__qualname__}"
        if full in _BY_NAME or full.startswith("numpy.dtypes."):
            return (full, str(value))
        if kind.__module__.startswith("pathlib"):
            return (full, str(value))
        if self._by_what_it_holds(value, kind):
            return (full, self.word(vars(value), contents, depth + 1))
        if self._result:
            raise Untold(f"a {kind.__name__} is not looked into")
        return (full, id(value))

    def _by_what_it_holds(self, value: Any, kind: type) -> bool:
        """Objects that are data: dataclasses, namespaces, sparse matrices. As an answer, any that
        has attributes; as an argument, which one it is says it better."""
        if not hasattr(value, "__dict__") or isinstance(value, type | FunctionType | ModuleType):
            return False
        data = hasattr(kind, "__dataclass_fields__") or kind.__module__.startswith("scipy.sparse")
        return data or self._result or kind.__name__ in ("Namespace", "SimpleNamespace")

    def _plain(self, value: Any, word: Hashable) -> Hashable:
        self.numbers += 1
        if self._first is None:
            self._first = word
        self.varied |= word != self._first
        return (type(value).__name__, word)

    def _text(self, value: str | bytes) -> Hashable:
        self.numbers += len(value)
        self.varied |= len(set(value[:SAMPLED])) > 1
        return (type(value).__name__, len(value), hash(value))

    def _array(self, numpy: Any, value: Any, contents: Contents) -> Hashable:
        if value.dtype.hasobject:
            raise Untold("an array of objects is not looked into")
        contents.read(value.nbytes)
        flat = numpy.ascontiguousarray(value).reshape(-1)
        self.arrays += 1
        self.numbers += flat.size
        sample = flat[:: max(flat.size // SAMPLED, 1)]
        if flat.size:
            self.varied |= bool((sample != sample[0]).any())
        if flat.dtype.kind == "f" and flat.size >= SAMPLED:
            small = (sample != 0) & (abs(sample) < numpy.finfo(flat.dtype).tiny)
            self.tiny_ratio = max(self.tiny_ratio, float(small.mean()))
        word = zlib.crc32(flat.view(numpy.uint8)) if flat.size else 0
        return (value.dtype.str, value.shape, word)

    def _tensor(self, torch: Any, value: Any, contents: Contents) -> Hashable:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Untold(f"a {type(value).__name__} is not looked into")
        known = (str(value.dtype), tuple(value.shape), str(value.device))
        if value.device.type != "cpu":
            if self._result:
                raise Untold("what it gives lies on a device")
            self.unread = True
            return known
        size = value.numel() * value.element_size()
        contents.read(size)
        plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self.arrays += 1
        self.numbers += value.numel()
        sample = plain[:: max(len(plain) // SAMPLED, 1)]
        if len(sample):
            self.varied |= bool((sample != sample[0]).any())
        if value.is_floating_point() and value.numel() >= SAMPLED:
            small = (sample != 0) & (sample.abs() < torch.finfo(value.dtype).tiny)
            self.tiny_ratio = max(self.tiny_ratio, float(small.float().mean()))
        return (*known, zlib.crc32(plain.view(torch.uint8).numpy()) if size else 0)


def _name_of(key: Any) -> Hashable:
    if isinstance(key, str | int | float | bytes | tuple):
        return key
    return (type(key).__name__, id(key))


MOST_ATTRIBUTES = 256  # of one object
SMALL_BYTES = 1 << 20  # of an array that is one


def states(values: Iterable[Any]) -> Hashable:
    """What the attributes of objects are, not looked into deeper: it tells whether a call has
    changed one of them, as those do that are made for what they change."""
    return tuple(
        (name, _state(one))
        for value in values
        for name, one in list(getattr(value, "__dict__", {}).items())[:MOST_ATTRIBUTES]
    )


def _state(value: Any) -> Hashable:
    kind, numpy = type(value), sys.modules.get("numpy")
    if kind in _PLAIN or kind in (float, str, bytes):
        return repr(value) if kind is float else value
    if numpy is not None and kind is numpy.ndarray:
        small = value.nbytes <= SMALL_BYTES and not value.dtype.hasobject
        flat = numpy.ascontiguousarray(value).reshape(-1) if small and value.size else None
        return (id(value), 0 if flat is None else zlib.crc32(flat.view(numpy.uint8)))
    if isinstance(value, list | dict | set):
        return (id(value), len(value))
    return (id(value), getattr(value, "_version", None))  # how often a tensor was written to
