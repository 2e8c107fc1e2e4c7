"""Which kind of work each device operation is.

A kernel is judged by its own name first; where that leaves room (a CUTLASS kernel serves matrix
products, convolutions and attention alike), by the operator that launched it.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.kernel_names import (
    CLAIMS,
    Category,
    category_claimed_by_operator,
    category_hinted_by_operator,
    category_of_kernel_name,
)
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.graph_replays import of_operators
from pinchpoint.trace import DeviceKind, HostKind, MemoryKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes

__all__ = ["NO_CATEGORY", "Category", "by_distinct", "category_of_device_ops"]


NO_CATEGORY = 0  # no member of Category has it

_HOST_MEMORY = (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.HOST)
_DEVICE_MEMORY = (MemoryKind.DEVICE, MemoryKind.UNIFIED, MemoryKind.ARRAY)


@once_per_trace
def category_of_device_ops(trace: Trace) -> Codes:
    """The Category of every row of ``device_ops``; shape ``(rows,)``, empty if there are none."""
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0, np.uint8)
    code = by_distinct(trace.names, ops["name"], category_of_kernel_name)
    code = _claimed(trace, ops, _of_compiled(trace, ops, code))
    kind = ops["kind"]
    code[kind == DeviceKind.COLLECTIVE] = Category.COLLECTIVE
    code[kind == DeviceKind.MEMSET] = Category.MEMSET
    copies = kind == DeviceKind.COPY
    code[copies] = _direction(ops)[copies]
    code.flags.writeable = False
    return code


def by_distinct(
    names: tuple[str, ...], positions: NDArray[np.int32], judge: Callable[[str], int | None]
) -> Codes:
    """``judge`` of each named row, asked once per distinct name; NO_CATEGORY for None."""
    table = np.zeros(len(names), np.uint8)
    for position in np.flatnonzero(np.bincount(positions, minlength=1)):
        table[position] = judge(names[position]) or NO_CATEGORY
    return table[positions]


# What XLA calls an operation (``hlo_category``); "convolution" is any product, also of matrices.
_OF_XLA = {
    "convolution": Category.GEMM,
    "convolution fusion": Category.GEMM,
    "dot": Category.GEMM,
    "loop fusion": Category.ELEMENTWISE,
    "non-fusion elementwise": Category.ELEMENTWISE,
    "reduce": Category.REDUCTION,
    "reduce fusion": Category.REDUCTION,
    "reduce-window": Category.POOLING,
    "sort": Category.SORTING,
    "gather": Category.EMBEDDING,
    "scatter": Category.EMBEDDING,
    "data formatting": Category.DATA_MOVEMENT,
    "pad": Category.DATA_MOVEMENT,
    "transpose": Category.DATA_MOVEMENT,
}


def _of_compiled(trace: Trace, ops: Table, code: Codes) -> Codes:
    """What XLA says of operations whose names say nothing (``fusion.3``): a TPU's."""
    compiled = trace.compiled_ops
    if compiled is None or not len(compiled) or len(trace.api_calls or ()):
        return code
    said = np.zeros(len(compiled), np.uint8)
    for number in np.unique(compiled.filled("category", -1)).tolist():
        if number >= 0 and (found := _OF_XLA.get(trace.names[number])):
            said[(compiled.filled("category", -1)) == number] = found
    begun = zip(compiled["start_ns"].tolist(), compiled.filled("device", -1).tolist(), strict=True)
    told_at = {pair: kind for pair, kind in zip(begun, said.tolist(), strict=True) if kind}
    pairs = zip(ops["start_ns"].tolist(), ops["device"].tolist(), strict=True)
    told = np.array([told_at.get(pair, NO_CATEGORY) for pair in pairs], np.uint8)
    return np.where((code == Category.OTHER) & (told != NO_CATEGORY), told, code)


def _claimed(trace: Trace, ops: Table, code: Codes) -> Codes:
    """Hand kernels over to the operators around their launch, as far as CLAIMS allows."""
    host = trace.host_ops
    if host is None or not len(host):
        return code
    speaks = (host["kind"] == HostKind.OPERATOR) | (host["kind"] == HostKind.ANNOTATION)
    strong = by_distinct(trace.names, host["name"], category_claimed_by_operator)
    strong[~speaks] = NO_CATEGORY
    around = nearest(parents(host), strong != NO_CATEGORY)
    launcher = ops.filled("host_op", len(host))
    claim = np.append(strong, NO_CATEGORY)[np.append(around, len(host))[launcher]]
    allowed = np.zeros((max(Category) + 1, max(Category) + 1), np.bool_)
    for claimer, claimed in CLAIMS.items():
        allowed[claimer, list(claimed)] = True
    code = np.where(allowed[claim, code], claim, code)
    hint = of_operators(
        trace,
        lambda rows: by_distinct(trace.names, rows["name"], category_hinted_by_operator),
        NO_CATEGORY,
    ).astype(np.uint8)
    return np.where((code == Category.OTHER) & (hint != NO_CATEGORY), hint, code)


def _direction(ops: Table) -> Codes:
    source, target = ops.filled("from_memory", 0), ops.filled("to_memory", 0)
    from_host, to_host = np.isin(source, _HOST_MEMORY), np.isin(target, _HOST_MEMORY)
    from_device, to_device = np.isin(source, _DEVICE_MEMORY), np.isin(target, _DEVICE_MEMORY)
    peer = (source == MemoryKind.PEER) | (target == MemoryKind.PEER)
    code = np.full(len(ops), Category.COPY_OTHER, np.uint8)
    code[from_host & to_device] = Category.COPY_H2D
    code[from_device & to_host] = Category.COPY_D2H
    code[from_device & to_device] = Category.COPY_D2D
    code[peer] = Category.COPY_P2P
    return code
