"""The work of each operator call that launches kernels: FLOPs, bytes, device time, format."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import OperatorCall, cost_of
from pinchpoint.analysis.device.compiled import counted
from pinchpoint.analysis.device.kernel_precision import (
    UNKNOWN,
    MatrixUnits,
    Precision,
    precision_of_device_ops,
)
from pinchpoint.analysis.host.input_arguments import input_dtypes, input_shapes, parsed
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Floats, Ints, Mask, Rows, distinct_rows

NOT_KNOWN = -1  # no cost is below 0
_LARGEST = 2**62  # a cost beyond this is nonsense in the file

# How torch spells the types of an operator's inputs, for recordings that hold only the kernel's.
_SPELT = {
    Precision.BF16: "c10::BFloat16", Precision.FP16: "c10::Half", Precision.FP32: "float",
    Precision.TF32: "float", Precision.FP64: "double", Precision.FP8: "c10::Float8_e4m3fn",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class OperatorWork:
    """One element an operator call; ``rows`` are the calls' rows in ``host_ops``.

    ``flops``, ``unmasked_flops`` (causal masks ignored) and ``bytes`` are NOT_KNOWN where there
    is no model or the recording does not hold the shapes.
    """

    rows: Rows
    flops: Rows
    unmasked_flops: Rows
    bytes: Rows
    matrix: Mask  # the model says: fit for matrix units
    precision: Codes  # of the longest kernel; UNKNOWN where it cannot be told
    on_matrix_units: Codes  # MatrixUnits of the longest kernel
    device_ns: Rows  # sum over its kernels
    first_ns: Rows  # start of its first kernel
    device: NDArray[np.int32]

    @property
    def modelled(self) -> Mask:
        """Calls whose FLOPs are known."""
        known: Mask = self.flops != NOT_KNOWN
        return known

    @property
    def understood(self) -> Mask:
        """Calls of which at least the FLOPs or the bytes are known."""
        known: Mask = self.modelled | (self.bytes != NOT_KNOWN)
        return known


@once_per_trace
def operator_work(trace: Trace) -> OperatorWork:
    """All operator calls that launched kernels themselves, by row; empty without any."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not len(ops) or not len(host):
        return _nothing()
    kernels = np.flatnonzero((ops["kind"] == DeviceKind.KERNEL) & ops.known("host_op"))
    if not len(kernels):
        return _nothing()
    rows, call = np.unique(ops["host_op"][kernels].astype(np.int64), return_inverse=True)
    duration = ops["duration_ns"][kernels]
    device_ns = np.zeros(len(rows), np.int64)
    np.add.at(device_ns, call, duration)
    first_ns = np.full(len(rows), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first_ns, call, ops["start_ns"][kernels])
    longest = kernels[_last_of_each(call, duration)]
    formats = precision_of_device_ops(trace)
    precision = formats.precision[longest]
    flops, unmasked, size, matrix = _costs(trace, host, rows, precision)
    done, moved = (
        _of_programs(found[kernels], call) for found in (counted(trace).flops, counted(trace).bytes)
    )
    unknown = (flops == NOT_KNOWN) & (size == NOT_KNOWN)
    flops, unmasked = np.where(unknown, done, flops), np.where(unknown, done, unmasked)
    size, matrix = np.where(unknown, moved, size), matrix | (unknown & (done > 0))
    return OperatorWork(
        rows, flops, unmasked, size, matrix, precision, formats.matrix_units[longest],
        device_ns, first_ns, ops["device"][longest],
    )  # fmt: skip


def _of_programs(of_kernels: Floats, call: Rows) -> Rows:
    """What compiled programs count of all kernels of each call; NOT_KNOWN where they count none."""
    known = ~np.isnan(of_kernels)
    total = np.bincount(call, np.where(known, of_kernels, 0.0))
    told = np.bincount(call, known) > 0
    return np.where(told, np.minimum(total, _LARGEST), NOT_KNOWN).astype(np.int64)


def _last_of_each(group: Rows, weight: Rows) -> Rows:
    """For each group 0..n-1 the position of its heaviest member."""
    order = np.lexsort((weight, group))
    ends = np.append(np.flatnonzero(np.diff(group[order])), len(order) - 1)
    last: Rows = order[ends]
    return last


def _costs(
    trace: Trace, host: Table, rows: Rows, precision: Codes
) -> tuple[Rows, Rows, Rows, Mask]:
    """Costs of the rows, worked out once for each distinct call."""
    columns = [host["name"][rows].astype(np.int64)]
    columns += [host.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values")]
    columns.append(precision.astype(np.int64))
    distinct, which = distinct_rows(*columns)
    found = np.full((len(distinct), 3), NOT_KNOWN, np.int64)
    matrix = np.zeros(len(distinct), np.bool_)
    for i, (name, shapes, dtypes, values, code) in enumerate(distinct.tolist()):
        call = call_of(trace.names, name, shapes, dtypes, values)
        if call is None:
            continue
        typed = bool(call.dtypes)
        if not typed and code in _SPELT:
            call, typed = _with_types(call, _SPELT[Precision(code)]), True
        cost = cost_of(call)
        if cost is None:
            continue
        size = cost.bytes if typed else None
        costs = (cost.flops, cost.unmasked_flops, size)
        found[i] = [NOT_KNOWN if c is None or c > _LARGEST else c for c in costs]
        matrix[i] = cost.matrix
    return found[which, 0], found[which, 1], found[which, 2], matrix[which]


def call_of(
    names: tuple[str, ...], name: int, shapes: int, dtypes: int, values: int
) -> OperatorCall | None:
    """The call that four positions in ``names`` spell; None where its shapes are not known."""
    if shapes == NOT_KNOWN or (sizes := input_shapes(names[shapes])) is None:
        return None
    types = () if dtypes == NOT_KNOWN else input_dtypes(names[dtypes]) or ()
    scalars = () if values == NOT_KNOWN else parsed(names[values]) or ()
    return OperatorCall(names[name], sizes, types, tuple(str(v) for v in scalars))


def _with_types(call: OperatorCall, dtype: str) -> OperatorCall:
    return replace(call, dtypes=tuple(dtype if shape else "" for shape in call.shapes))


@dataclass(frozen=True)
class Work:
    """What calls do together: at least this much, where a share of their device time is known."""

    flops: int | None  # None: not known of any
    bytes: int | None
    known_ratio: float  # of their device time, of which FLOPs or bytes are known


def work_by(trace: Trace, key: Ints) -> dict[int, Work]:
    """The work of rows of ``host_ops`` with equal keys; negative ones belong to none."""
    work = operator_work(trace)
    found: dict[int, Work] = {}
    keys = key[work.rows]
    for one in np.unique(keys[keys >= 0]).tolist():
        mine = keys == one
        flops, size = work.flops[mine], work.bytes[mine]
        took = max(int(work.device_ns[mine].sum()), 1)
        found[one] = Work(
            flops=int(flops[flops != NOT_KNOWN].sum()) if (flops != NOT_KNOWN).any() else None,
            bytes=int(size[size != NOT_KNOWN].sum()) if (size != NOT_KNOWN).any() else None,
            known_ratio=float(work.device_ns[mine][work.understood[mine]].sum() / took),
        )
    return found


def peak_type(precision: int, on_matrix_units: int, *, matrix: bool) -> str | None:
    """The key of the peak that work is held against: ``bf16``, ``tf32``, ``fp32``, … or None.

    Elementwise work in 16 bits is computed by the fp32 units. None: float32 products whose
    kernel does not tell whether it used TF32.
    """
    if not matrix:
        return "fp64" if precision == Precision.FP64 else "fp32"
    if precision == UNKNOWN:
        return None
    if precision == Precision.FP64 and on_matrix_units == MatrixUnits.YES:
        return "fp64_matrix"
    if precision == Precision.FP32 and on_matrix_units == MatrixUnits.YES:
        return "fp32_matrix"
    return Precision(precision).name.lower()


def _nothing() -> OperatorWork:
    none = np.zeros(0, np.int64)
    bits = np.zeros(0, np.uint8)
    return OperatorWork(
        none, none, none, none, bits.astype(bool), bits, bits, none, none, bits.astype(np.int32)
    )
