"""What adding rows to rows by index takes when few of the targets coincide."""

from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall
from pinchpoint.diagnosis.evidence.attainable import Attainable
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import bytes_of

# An atomic addition takes as long as moving so many bytes of device memory. Measured on an H200
# (CUDA 13, torch 2.11, float32 and bfloat16): 16 M to 268 M additions at random rows take 31 to
# 40 bytes each in index_add_, half of it in scatter_add_. The middle of what index_add_ took.
ADD_BYTES = 35
NARROW_ROW_BYTES = 16  # from here on neighbours share a piece of memory; 4 numbers take 39 bytes
NARROW_ADD_BYTES = 74  # below: each fetches a piece of 32 bytes and writes it back; as measured
FEW_INDICES = (
    16  # so few are added one after the other by a kernel of its own (indexFuncSmallIndex)
)

_INDEX_ADD = ("aten::index_add_", "aten::index_add")
_SCATTER = ("aten::scatter_add_", "aten::scatter_add", "aten::scatter_reduce_")
BY_ATOMICS = (*_INDEX_ADD, *_SCATTER)
SORTED = ("aten::_index_put_impl_",)


@dataclass(frozen=True)
class Adds:
    """Additions of one call."""

    count: int  # of single numbers
    row_bytes: int  # that lie side by side at each target


def adds_of(of: LaunchedCall) -> Adds | None:
    """The additions that a call makes by index; None where shapes do not tell, or too few."""
    call = of.call
    if call.name in _INDEX_ADD:
        added, along_rows = 3, call.integers(1) == (0,)
        indices = call.size(2) if call.shape(2) else 0
    elif call.name in _SCATTER:
        added, along_rows = 2, call.integers(1) == (0,)
        indices = call.size(2)
    elif call.name in SORTED:
        added, along_rows = 2, True
        indices = call.size(2)
    else:
        return None
    target, source = call.shape(0), call.shape(added)
    if target is None or source is None or indices <= FEW_INDICES:
        return None
    width = bytes_of(call.dtype(0)) or call.element_bytes(0)
    return Adds(elements(source), (elements(target[1:]) if along_rows else 1) * width)


def adds_ns(well: Attainable, of: LaunchedCall) -> float | None:
    """What the additions take where targets rarely coincide; None where unknown."""
    adds = adds_of(of)
    if adds is None:
        return None
    each = ADD_BYTES if adds.row_bytes >= NARROW_ROW_BYTES else NARROW_ADD_BYTES
    return _moving_ns(well, adds.count * each)


def _moving_ns(well: Attainable, size: float) -> float | None:
    rate = well.spec.memory_bytes_per_s
    return size / rate * 1e9 if rate else None


def dense_source(of: LaunchedCall) -> bool:
    """Whether what is added lies in memory in its own order, or its strides are not recorded.

    Reading across a layout is slow by itself, and no matter of targets.
    """
    place = 3 if of.call.name in _INDEX_ADD else 2
    shape, stride = of.call.shape(place), of.stride(place)
    if of.call.name in _SCATTER:
        shape, stride = of.call.shape(3), of.stride(3)
    return shape is None or stride is None or not stride or stride[-1] <= 1
