"""What sorting and selecting must move: passes over the keys, one for each digit of them.

A radix sort, the fastest that is known for large inputs on a device, takes one digit of 8 bits a
pass, in each of which keys and what goes with them are read and written, after one that counts
(Adinets and Merrill, Onesweep, arXiv 2206.01784; CUB's DeviceRadixSort, which PyTorch calls, does
as many). What a block holds is sorted there, in one pass over memory. A selection by digits only
reads, once a digit and once more to gather (ATen, TensorTopK.cu).
"""

from collections.abc import Callable, Mapping

from pinchpoint.analysis.costs.call import Cost, OperatorCall

INDEX_BYTES = 8  # of the places that sort, topk and their like return
LONGEST_IN_A_BLOCK = 4_096  # keys; ATen, SortStable.cu: longer rows take passes over memory
_DIGIT_BYTES = 1  # of CUB: 8 bits, 256 places to write to


def _sorted(call: OperatorCall) -> Cost | None:
    """``sort(x, dim)``: values and their places."""
    length = _length(call)
    return None if length is None else _keys_sorted(call, length, with_places=True)


def _unique(call: OperatorCall) -> Cost | None:
    """``_unique2(x, sorted, return_inverse, …)``: sorted, and gone through once more."""
    if call.shape(0) is None:
        return None
    cost = _keys_sorted(call, call.size(0), with_places=call.flag(2))
    assert cost.bytes is not None
    return Cost(cost.flops, cost.bytes + call.bytes(0))


def _keys_sorted(call: OperatorCall, length: int, *, with_places: bool) -> Cost:
    keys, width = call.size(0), call.element_bytes(0)
    each_way = keys * (width + (INDEX_BYTES if with_places else 0))
    if length <= LONGEST_IN_A_BLOCK:
        return Cost(keys, call.bytes(0) + each_way)
    return Cost(keys, call.bytes(0) + width // _DIGIT_BYTES * 2 * each_way)


def _selected(call: OperatorCall) -> Cost | None:
    """``topk(x, k, dim)``, ``kthvalue``, ``median``; what is returned is small."""
    length = _length(call)
    if length is None:
        return None
    digits = call.element_bytes(0) // _DIGIT_BYTES if length > LONGEST_IN_A_BLOCK else 0
    return Cost(call.size(0), (digits + 1) * call.bytes(0))


def _length(call: OperatorCall) -> int | None:
    """Keys that are sorted together: of the dimension that is named, else of the last one."""
    shape = call.shape(0)
    if shape is None:
        return None
    at = _DIMENSION_AT.get(call.name.removeprefix("aten::"), ())
    named = [n for i in at if (n := call.integers(i)) is not None and len(n) == 1]
    dim = named[0][0] if named else -1
    return shape[dim] if -len(shape) <= dim < len(shape) else shape[-1]


# Where the dimension stands; sort has an overload with ``stable`` before it.
_DIMENSION_AT = {"sort": (1, 2), "argsort": (1, 2), "topk": (2,), "kthvalue": (2,), "mode": (1,)}

SORTING: Mapping[str, Callable[[OperatorCall], Cost | None]] = {
    f"aten::{name}": model
    for model, names in (
        (_sorted, ("sort", "argsort", "msort", "mode")),
        (_unique, ("_unique2", "_unique")),
        (_selected, ("topk", "kthvalue", "median", "nanmedian")),
    )
    for name in names
}
