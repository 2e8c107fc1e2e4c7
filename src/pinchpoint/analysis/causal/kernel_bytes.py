"""What kernels move, from names and grids, where the operator's shapes are unknown.

Kernels in replayed graphs have no operator, and lists of tensors no recorded shapes. The generic
kernels of PyTorch handle a fixed number of elements a block (``ATen/native/cuda``:
``CUDALoops.cuh``, ``MultiTensorApply.cuh``, ``IndexKernelUtils.cu``), those of CuPy an element a
thread (``cupy/_core/_kernel.pyx``); the last block may have fewer, so what is said is the most that
they can move, and limits made of it are never too short.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pinchpoint.analysis.tables.kernels import volumes
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask, distinct, distinct_rows

ITEMS_A_THREAD = 8  # of the vectorised kernel since PyTorch 2.6
ITEMS_BEFORE = 4  # that, until tensors' addresses came in a std::array
CHUNK = 65_536  # elements a block of multi_tensor_apply
_VECTORISED = regex(
    r"(?:un)?(?:vectorized|rolled)_elementwise_kernel<.*(detail::A|a)rray<char\*, \D*(\d{1,9})"
)
_STRIDED = regex(
    r"elementwise_kernel(?:_manual_unroll)?<\D*(\d{1,9}), \D*(\d{1,9}), at::native::gpu_kernel_impl"
)
_LISTS = regex(r"multi_tensor_apply_kernel<.*?(FusedOptimizer)?TensorListMetadata<\D*(\d{1,9})")
_INDEXED = regex(r"index_elementwise_kernel<(\d{1,9}), (\d{1,9})")
_OPAQUE = regex(r"index_(?:put_|copy_)?kernel_impl<.*?OpaqueType<(\d{1,3})")  # bytes an element
_CUPY = regex(r"^cupy_\w+?__((?:(?:bool|u?int|float|complex)\d{0,3}_?)+)$")
_CUPY_TYPE = regex(r"bool|\d{1,3}")  # a truth value, or how many bits
_GATHERED = regex(r"vectorized_gather_kernel<(\d{1,9})")  # bytes that a thread takes at once
_TYPE = regex(r"\b(double|long|float|BFloat16|Half|bool|unsigned char|int)\b")
_WIDTHS = {"double": 8, "long": 8, "float": 4, "int": 4, "BFloat16": 2, "Half": 2}
_GATHER = "aten::index"


def bytes_by_grid(trace: Trace, wanted: Mask) -> tuple[Floats, Mask]:
    """Bytes of the wanted rows of ``device_ops``, NaN where unknown; and which are rows by index.

    What ``x[i]`` takes is read and written; its index, one a row of two elements or more, is left
    out. The width of its elements is the operator's, of other kernels that in their name.
    """
    ops = trace.device_ops
    assert ops is not None
    calls = launched_calls(trace)
    out, by_index = np.full(len(ops), np.nan), np.zeros(len(ops), np.bool_)
    rows = np.flatnonzero(wanted & ops.known("grid"))
    if not len(rows):
        return out, by_index
    groups, which = distinct_rows(
        ops["name"][rows].astype(np.int64),
        ops["grid"][rows].astype(np.int64),
        ops.filled("block", -1)[rows].astype(np.int64),
        calls.which[rows].astype(np.int64),
    )
    found = np.full(len(groups), np.nan)
    indexed = np.zeros(len(groups), np.bool_)
    kernels = {name: _kernel(trace.names[name]) for name in distinct(groups[:, 0]).tolist()}
    product = np.append(volumes(trace), 0)  # the last one for -1: no block is known
    groups[:, 1:3] = product[groups[:, 1:3]]
    for at, (name, blocks, threads, call) in enumerate(groups.tolist()):
        kernel = kernels[name]
        given = calls.calls[call].call if call < len(calls.calls) else None
        if (match := kernel.indexed) and given and given.name == _GATHER:
            found[at] = 2 * given.element_bytes(0) * int(match[1]) * int(match[2]) * blocks
            indexed[at] = True
        elif match and kernel.index_bytes and given is None:
            found[at] = 2 * kernel.index_bytes * int(match[1]) * int(match[2]) * blocks
            indexed[at] = True
        elif (match := kernel.gathered) and blocks:
            found[at], indexed[at] = 2 * int(match[1]) * threads * blocks, True
        elif blocks and kernel.modelled and kernel.elements:
            moved = kernel.elements(kernel.modelled, blocks, threads) * kernel.element_bytes
            found[at] = moved or math.nan
    out[rows], by_index[rows] = found[which], indexed[which]
    return out, by_index


_Match = re.Match[str] | None


class _Kernel(NamedTuple):
    """What the name of a kernel says: how it matches each pattern, and the width it moves."""

    indexed: _Match
    index_bytes: int  # of an element that such a kernel reads and writes; 0 where not said
    gathered: _Match
    modelled: _Match
    elements: Callable[[re.Match[str], int, int], int] | None
    element_bytes: int


def _kernel(name: str) -> _Kernel:
    found = ((pattern.search(name), elements) for pattern, elements in _MODELS)
    modelled, elements = next((one for one in found if one[0]), (None, None))
    opaque = _OPAQUE.search(name)
    return _Kernel(
        _INDEXED.search(name), int(opaque[1]) if opaque else 0, _GATHERED.search(name), modelled,
        elements, _width(name),
    )  # fmt: skip


def _width(name: str) -> int:
    if (types := _CUPY.match(name)) is not None:  # of all operands together
        widths = _CUPY_TYPE.findall(types[1])
        return sum(1 if width == "bool" else int(width) // 8 for width in widths)
    found = _TYPE.search(name[name.find("<") :])
    return _WIDTHS.get(found[1], 1) if found else 4


def _vectorised(match: re.Match[str], blocks: int, threads: int) -> int:
    items = ITEMS_BEFORE if match[1] == "detail::A" else ITEMS_A_THREAD
    return int(match[2]) * blocks * threads * items


def _strided(match: re.Match[str], blocks: int, threads: int) -> int:
    tensors = 3 if "Binary" in match.string else 2
    return tensors * blocks * int(match[1]) * int(match[2])


def _listed(match: re.Match[str], blocks: int, threads: int) -> int:
    """An optimizer reads all of its lists and writes all but the gradients."""
    lists = int(match[2])
    return (2 * lists - 1 if match[1] else lists) * blocks * CHUNK


def _each_thread(match: re.Match[str], blocks: int, threads: int) -> int:
    return blocks * threads


_MODELS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int, int], int]], ...] = (
    (_VECTORISED, _vectorised),
    (_STRIDED, _strided),
    (_LISTS, _listed),
    (_CUPY, _each_thread),
)
