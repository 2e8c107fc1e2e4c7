"""Runs of large elementwise kernels on tensors of one size, with nothing else between them."""

from collections.abc import Callable

import numpy as np

from pinchpoint.analysis.costs import OperatorCall, cost_of
from pinchpoint.analysis.costs.call import once_per_call
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.analysis.host.input_arguments import Shape, input_dtypes, input_shapes, parsed
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import bytes_of
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct, distinct_rows, whole

# ------------------------------------------------------------------------------------------------
# What the operator behind each device operation was given: shapes, types, values, strides.
#
# A step repeats its calls, so everything is kept once for each distinct call; a device operation
# knows which one it belongs to.


_GIVEN = ("name", "shapes", "dtypes", "values", "strides")


@dataclass(frozen=True)
class LaunchedCall:
    """A distinct call of an operator; ``strides`` has one entry an input, or none."""

    call: OperatorCall
    strides: tuple[Shape | None, ...]

    def stride(self, i: int) -> Shape | None:
        """Strides of input ``i`` in elements; None where they were not recorded."""
        return self.strides[i] if i < len(self.strides) else None


@dataclass(frozen=True, eq=False)
class LaunchedCalls:
    """The distinct calls, and for each row of ``device_ops`` its call and its operator.

    ``which`` is ``len(calls)``, and ``operator`` is ``len(host_ops)``, where there is none.
    """

    calls: tuple[LaunchedCall, ...]
    which: Rows
    operator: Rows  # row of host_ops

    def where(self, test: Callable[[LaunchedCall], bool]) -> Mask:
        """Device operations whose call passes; the test is asked once for each distinct call."""
        passed = np.array([test(c) for c in self.calls] + [False], np.bool_)
        result: Mask = passed[self.which]
        return result

    def numbers(self, of: Callable[[LaunchedCall], float | None]) -> Floats:
        """A number for each device operation from its call; NaN where there is none."""
        values = [of(c) for c in self.calls]
        table = np.array([np.nan if v is None else v for v in values] + [np.nan], np.float64)
        result: Floats = table[self.which]
        return result


@once_per_trace
def launched_calls(trace: Trace) -> LaunchedCalls:
    """The calls behind all device operations; empty where the recording has no operators."""
    ops, host = trace.device_ops, trace.host_ops
    operator = launching_operators(trace).astype(np.intp)
    if ops is None or host is None or not len(host):
        return LaunchedCalls((), np.zeros(len(operator), np.intp), operator)
    rows = distinct(operator[operator < len(host)])
    calls, member = distinct_calls(trace, rows)
    which_of_row = np.full(len(host) + 1, len(calls), np.intp)
    which_of_row[rows] = member
    return LaunchedCalls(calls, which_of_row[operator], operator)


def distinct_calls(trace: Trace, rows: Rows) -> tuple[tuple[LaunchedCall, ...], Rows]:
    """The distinct calls among these rows of ``host_ops``, and which of them each row is."""
    host = trace.host_ops
    assert host is not None
    given = (host.filled(column, -1)[rows].astype(np.int64) for column in _GIVEN)
    distinct, member = distinct_rows(*given)
    texts = [[None if at < 0 else trace.names[at] for at in row] for row in distinct.tolist()]
    return tuple(_call(*row) for row in texts), member


def _call(
    name: str | None,
    shapes: str | None,
    dtypes: str | None,
    values: str | None,
    strides: str | None,
) -> LaunchedCall:
    scalars = (
        tuple(v if isinstance(v, str) else "" for v in (parsed(values) or ()) if values)
        if values
        else ()
    )
    call = OperatorCall(
        name or "",
        (input_shapes(shapes) if shapes else None) or (),
        (input_dtypes(dtypes) if dtypes else None) or (),
        scalars,
    )
    found = (input_shapes(strides) if strides else None) or ()
    return LaunchedCall(call, tuple(_flat(s) for s in found))


def _flat(entry: Shape | tuple[Shape, ...] | None) -> Shape | None:
    """Strides of one tensor; those of a list of tensors are left out."""
    if not entry or isinstance(entry[0], tuple):
        return None
    return entry


# ------------------------------------------------------------------------------------------------
# Runs of large elementwise kernels on tensors of one size, with nothing else between them.


LARGE_BYTES = 8 << 20  # moved by one kernel: 3 µs of an H100; less is a matter of latency
TINY_NS = 3_000  # work that short does not part two kernels of one chain

_PLAIN = (Category.ELEMENTWISE, Category.DATA_MOVEMENT, Category.COPY_D2D)
_CASTS = ("aten::copy_", "aten::_to_copy")


@dataclass(frozen=True, eq=False)
class PointwiseChains:
    """Large elementwise kernels of the judged steps; arrays with one element for each.

    Kernels of one chain follow each other on their stream and have tensors of one size.
    """

    rows: Rows  # of device_ops, in order of chains
    chain: Rows  # number of the chain
    bytes: Ints  # that the kernel moves
    tensor_bytes: Ints  # of its result
    widens: Mask  # casts to a type of more bytes
    narrows: Mask  # casts to one of fewer
    operator: Rows  # position of the operator's name in the trace's names

    def __len__(self) -> int:
        return int(self.chain[-1]) + 1 if len(self.chain) else 0

    def count(self, of: Mask) -> Ints:
        """How many kernels of each chain are in a mask."""
        counted: Ints = np.bincount(self.chain[of], minlength=len(self))
        return counted

    def total(self, values: Ints) -> Ints:
        """The sum over the kernels of each chain."""
        summed: Ints = np.bincount(self.chain, values, len(self)).astype(np.int64)
        return summed

    @property
    def mixed(self) -> Mask:
        """Chains of more than one operator; a loop over a single one measures it, as a rule."""
        pairs, _ = distinct_rows(self.chain, self.operator)
        several: Mask = np.bincount(pairs[:, 0], minlength=len(self)) > 1
        return several

    @property
    def round_trips(self) -> Mask:
        """Chains that cast to a wider type and back."""
        there, back = self.count(self.widens), self.count(self.narrows)
        both: Mask = (there > 0) & (back > 0)
        return both


@once_per_trace
def pointwise_chains(trace: Trace) -> PointwiseChains:
    """The chains of the judged steps; none where shapes were not recorded."""
    ops, calls = trace.device_ops, launched_calls(trace)
    if ops is None:
        nothing = np.zeros(0, np.intp)
        no = nothing > 0
        return PointwiseChains(nothing, nothing, nothing, nothing, no, no, nothing)
    moved = np.nan_to_num(calls.numbers(_bytes))
    size = whole(calls.numbers(_size))
    plain = np.isin(category_of_device_ops(trace), _PLAIN) & (moved >= LARGE_BYTES)
    size = np.where(plain, size, 0)
    parting = (ops["kind"] != DeviceKind.MEMSET) & (ops["duration_ns"] >= TINY_NS)
    rows = np.flatnonzero(device_ops_in_steps(trace) & (plain | parting))
    lane = ops["device"].astype(np.int64) * (1 << 40) + ops.filled("stream", 0)
    rows = rows[np.lexsort((ops["start_ns"][rows], lane[rows]))]
    new = np.diff(size[rows], prepend=-1) != 0
    new |= np.diff(lane[rows], prepend=-1) != 0
    number = np.cumsum(new) - 1
    kept = size[rows] > 0
    rows = rows[kept]
    chain = np.unique(number[kept], return_inverse=True)[1].reshape(-1).astype(np.intp)
    change = calls.numbers(_widening)[rows]
    return PointwiseChains(
        rows,
        chain,
        whole(moved[rows]),
        whole(size[rows] * calls.numbers(_width)[rows]),
        change > 0,
        change < 0,
        _names(trace, calls.operator[rows]),
    )


def _names(trace: Trace, operators: Rows) -> Rows:
    host = trace.host_ops
    if host is None:
        return np.zeros(len(operators), np.intp)
    found: Rows = host["name"][operators].astype(np.intp)
    return found


def _bytes(of: LaunchedCall) -> float | None:
    cost = cost_of(of.call)
    return None if cost is None or cost.matrix or cost.bytes is None else float(cost.bytes)


def _size(of: LaunchedCall) -> float | None:
    """Elements of the largest tensor."""
    return max((float(of.call.size(i)) for i in of.call.tensors()), default=None)


def _width(of: LaunchedCall) -> float | None:
    """Bytes of an element of the first tensor; of a cast, that is the target."""
    first = next(iter(of.call.tensors()), None)
    return None if first is None else float(of.call.element_bytes(first))


def _widening(of: LaunchedCall) -> float | None:
    """Bytes that a cast adds to each element; None for what is no cast."""
    if of.call.name not in _CASTS or len(of.call.dtypes) < 2:
        return None
    target, source = (bytes_of(d) for d in of.call.dtypes[:2])
    return None if target is None or source is None else float(target - source)


@once_per_call
def in_different_orders(of: LaunchedCall) -> bool:
    """Whether the large operands of a call do not lie in memory in one order.

    An operand that is repeated along the innermost dimension of another one (the sums of rows that
    divide these rows) is read once a row, wherever its values lie.
    """
    shapes = [of.call.shape(i) for i in range(len(of.call.shapes))]
    largest = max((of.call.size(i) for i, s in enumerate(shapes) if s), default=0)
    large: list[tuple[Shape, int, int]] = []
    for i, shape in enumerate(shapes):
        stride = of.stride(i)
        if shape is None or stride is None or of.call.size(i) < largest:
            continue
        found = _innermost(shape, stride)
        if found is not None:
            large.append((stride, *found))
    inner = {dimension for _, dimension, _ in large}
    read = [one for one in large if not any(one[0][d : d + 1] == (0,) for d in inner)]
    return any(step > 1 for *_, step in read) or len({dimension for _, dimension, _ in read}) > 1


def _innermost(shape: Shape, stride: Shape) -> tuple[int, int] | None:
    """The dimension whose neighbours are closest in memory, and how close; None if it is one point.

    Dimensions that are repeated rather than stored (stride 0) count for nothing.
    """
    stored = [(step, -i) for i, (n, step) in enumerate(zip(shape, stride, strict=False)) if n > 1]
    stored = [(step, at) for step, at in stored if step > 0]
    if not stored:
        return None
    step, at = min(stored)
    return -at, step
