"""What a call is given, in numbers: kinds, shapes, and whether it was given the same before."""

import sys
from collections.abc import Hashable
from pathlib import Path
from types import FunctionType
from typing import Any

from pinchpoint.capture.process.contents import Contents, Untold
from pinchpoint.capture.samples.expressions import UNKNOWN, Sized

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
MOST_SAMPLED = 4096  # numbers of an array that are looked at, at even distances
_MOST_INSIDE = 64  # of a container, that a description looks at
_LONGEST = 1 << 17  # plain values of a list, which take a millisecond or two
_LARGEST = 1 << 62  # sizes and options; a larger number is a value of something
_LONGEST_PATH = 4096  # as Linux has it
_FEW = 8  # whole numbers of a list, that may be a shape
_ALIKE = 1e-6  # of the largest number: a matrix computed as symmetric differs by rounding


def described(name: str, value: Any) -> dict[str, Any]:
    """One value by its kind and size. What a text says is never kept."""
    return {"name": name, **(_plain(value) or _array(value) or _of_class(value))}


def _plain(value: Any) -> dict[str, Any] | None:
    kind = type(value)
    if value is UNKNOWN:
        return {"kind": "unknown"}
    if kind in (bool, int):
        return {"kind": kind.__name__, "value": float(value) if abs(value) < _LARGEST else None}
    if kind is float:
        return {"kind": "float"}
    if value is None:
        return {"kind": "None"}
    if kind in (str, bytes):
        return {"kind": kind.__name__, "shape": [len(value)]}
    if kind in (list, tuple):
        return _sequence(value)
    return {"kind": "array", "shape": list(value.shape)} if kind is Sized else None


def _of_class(value: Any) -> dict[str, Any]:
    kind = type(value)
    full = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__name__ == "ufunc":
        return {"kind": full, "text": value.__name__}
    if kind in (dict, set, frozenset) or full == "collections.deque":
        return {"kind": full.removeprefix("builtins."), "shape": [len(value)]}
    if full in ("pandas.DataFrame", "pandas.Series") or full.startswith("pandas.core."):
        return {"kind": full, "shape": _sizes(getattr(value, "shape", ()))}
    inside = getattr(value, "__dict__", {})
    inside = inside if isinstance(inside, dict) else {}
    shape = inside.get("_shape", inside.get("_size"))  # of sparse matrices, and of images
    return {"kind": full, "shape": _sizes(shape)}


def _sizes(shape: Any) -> list[int]:
    whole = isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
    return list(shape) if whole else []


def _array(value: Any) -> dict[str, Any] | None:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        read = _in_memory(numpy, value)
        return {
            "kind": "array",
            "shape": list(value.shape),
            "dtype": str(value.dtype)[:40],
            "dense": bool(value.flags.c_contiguous),
            "is_of": _structure(numpy, value) if read else "",
            "value": _largest(numpy, value) if read else None,
        }
    if numpy is not None and isinstance(value, numpy.generic):
        return {"kind": "scalar", "dtype": str(value.dtype)[:40]}
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        shape = [int(n) for n in value.shape]
        return {"kind": "tensor", "shape": shape, "dtype": str(value.dtype).removeprefix("torch.")}
    return None


def _in_memory(numpy: Any, value: Any) -> bool:
    """Whether to look at its numbers reads no file and runs no code of a class of the program."""
    while type(value) is numpy.ndarray:
        if value.base is None:
            return True
        value = value.base
    return type(value).__module__ not in ("mmap", "numpy")  # maps of files, and classes of arrays


def _structure(numpy: Any, value: Any) -> str:
    """``symmetric``, ``diagonal`` or empty, of a matrix, by numbers at even distances; ``even`` of
    numbers that are as far from each other."""
    if value.dtype.kind not in "fiu":
        return ""
    if value.ndim == 1 and 3 <= value.size <= MOST_SAMPLED:
        apart = numpy.diff(value.astype(float))
        even = apart[0] > 0 and numpy.abs(apart - apart[0]).max() <= _ALIKE * apart[0]
        return "even" if even else ""
    if value.ndim != 2 or value.shape[0] != value.shape[1]:
        return ""
    n = value.shape[0]
    at = numpy.unique(numpy.linspace(0, n - 1, min(n, int(MOST_SAMPLED**0.5))).astype(int))
    part = value[numpy.ix_(at, at)].astype(float)
    if len(at) < 2 or not numpy.isfinite(part).all() or not part.any():
        return ""
    if not (part - numpy.diag(numpy.diag(part))).any():
        return "" if value[0, 1:].any() or value[1:, 0].any() else "diagonal"
    largest = numpy.abs(part).max()
    return "symmetric" if numpy.abs(part - part.T).max() <= _ALIKE * largest else ""


def _largest(numpy: Any, value: Any) -> float | None:
    """Of whole numbers that are not below zero, by some at even distances."""
    if value.dtype.kind not in "iu" or value.ndim != 1 or not value.size:
        return None
    part = value[:: max(value.size // MOST_SAMPLED, 1)]
    return float(part.max()) if part.min() >= 0 else None


def _sequence(value: Any) -> dict[str, Any]:
    """A list by its length, and what most of it is made of."""
    step = max(len(value) // _MOST_INSIDE, 1)
    inside = [described("", one) for one in value[::step][:_MOST_INSIDE]]
    inside = [one for one in inside if one["kind"] != "unknown"]
    kinds = {one["kind"] for one in inside}
    first = inside[0] if inside else {}
    found: dict[str, Any] = {"kind": type(value).__name__, "shape": [len(value)]}
    if kinds == {"int"} and len(inside) == len(value) <= _FEW:
        sizes = [max(int(one), 0) for one in value]
        return found | {"of": "int", "of_shape": sizes}
    if len(kinds) == 1:
        found |= {"of": first["kind"], "of_shape": first.get("shape", [])}
        dtypes = {one.get("dtype", "") for one in inside}
        found |= {"dtype": dtypes.pop() if len(dtypes) == 1 else ""}
    return found


def content(value: Any, contents: Contents) -> Hashable:
    """A word for what a value holds; raises :class:`Untold` where that is not told by reading it,
    as of objects, which may have changed within."""
    kind = type(value)
    if kind in (list, tuple):
        if len(value) > MOST_SAMPLED:
            return _of_long(value)
        return (kind.__name__, *(content(one, contents) for one in value))
    if kind in _PLAIN:
        return contents.of(value).word
    if isinstance(value, Path):
        return ("Path", str(value))
    if isinstance(value, type | FunctionType):
        return (kind.__name__, id(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic | numpy.dtype):
        if isinstance(value, numpy.ndarray) and not _in_memory(numpy, value):
            raise Untold("a map of a file is not read for this")
        return contents.of(value).word
    torch = sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        # How often it was written to tells whether it is as it was, without reading it.
        return (id(value), value.data_ptr(), tuple(value.shape), value._version)
    if kind.__module__.startswith("scipy.sparse") and hasattr(value, "__dict__"):
        return contents.of(value).word
    raise Untold(f"a {kind.__name__} is not looked into")


def _of_long(value: Any) -> Hashable:
    if len(value) > _LONGEST or not set(map(type, value)) <= {int, float, str, bool}:
        raise Untold("too long, or not of plain values")
    return (type(value).__name__, len(value), hash(tuple(value)))


def file_at(value: Any) -> tuple[int, int] | None:
    """When a file was written, and its size; None where a value is no path of one."""
    if not isinstance(value, str | Path) or len(str(value)) > _LONGEST_PATH:
        return None
    try:
        found = Path(value).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size
