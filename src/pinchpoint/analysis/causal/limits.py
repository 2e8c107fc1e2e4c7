"""The least time of each device operation for what its operator needs, at rates that are reached.

Limit of an operator call = the largest of bytes needed ÷ attainable bandwidth, FLOPs ÷ attainable
rate, and the start of one kernel; never more than it took. All launches of one call share it: a
call that launches a kernel a matrix needs only one. Where a ceiling was measured on the machine it
is the attainable rate; of a data sheet, programs reach the shares below.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.causal.convolutions import by_its_backward, convolutions
from pinchpoint.analysis.causal.kernel_bytes import bytes_by_grid
from pinchpoint.analysis.causal.needed import needed, takes_narrow_rows
from pinchpoint.analysis.causal.replayed import replayed_calls
from pinchpoint.analysis.causal.transfers import transfer_ns
from pinchpoint.analysis.costs import Cost
from pinchpoint.analysis.costs.convolution import of_few_channels
from pinchpoint.analysis.costs.products import dense_mask
from pinchpoint.analysis.device.compiled import counted
from pinchpoint.analysis.device.kernel_precision import Precision, precision_of_device_ops
from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.limits.roofs import Roof, Roofs, roofs
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.operator_work import peak_type
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Mask, distinct_rows

# Shares of the data sheet that good kernels reach on large work: products 0.7 to 0.85, fused
# attention 0.26 to 0.75. Memory: the median of vectorised elementwise kernels on 256 MB and more is
# 0.93 on H100 (28 recordings), 0.89 on H200 (36) and V100 (3), 0.87 on MI300X.
MEMORY_REACHED = 0.88
# Rows at random places: an H200 took 0.85 to 12 million rows of 512 bytes out of tables of 0.1, 6
# and 61 GB, and wrote them, at 1.7 TB/s, 0.35 of its peak; 1.7 billion rows a second, of 128 bytes,
# too. That is what its gathers reach, a block a row: what its memory would, is not known.
RANDOM_ROWS_REACHED = 0.35  # of rows narrower than a line no rate is known
_BY_ROW = regex(r"aten::_?(index|gather|scatter|embedding|take|put_)")
# Passes of a radix sort write to 256 places at once. An H200 took 128 million keys of 8 bytes at
# 0.46 of its peak a pass, 43 million of 4 bytes with places of 8 at 0.59; counting and gathering
# what is equal went at 0.49. An A100 is said to reach 0.6 (Onesweep, arXiv 2206.01784: 29.4
# billion keys of 4 bytes a second).
SORT_REACHED = 0.5
_BY_SORT = regex(r"aten::(sort|argsort|msort|mode|_unique|unique_consecutive)")
PRODUCTS_REACHED = 0.7  # the least of those
# Fused attention: 0.28 at 1024 tokens (H100, cuDNN), a tenth at prompts of a few hundred.
ATTENTION_REACHED = 0.1
VECTOR_REACHED = 0.5  # no fused multiply-adds: half of what the data sheet counts
# A kernel that does nothing takes 1.5 to 2.5 µs on the device; one with a tail or two passes,
# a small reduction or a split product, 5 to 10 µs whatever its size.
KERNEL_START_NS = 10_000
# Elements that different threads add to one array: half an add a clock and multiprocessor. An H200
# added 128 million floats spread over 200 000 rows in 0.95 ms (index_add_), 0.52 a clock and each.
ADDS_PER_CLOCK = 0.5
_ADDING = ("index_add", "scatter_add", "index_put", "scatter_reduce", "bincount", "histc")
# Elements out of which some are selected: each place depends on how many come before. An H200 went
# through 71 million truth values in 0.133 ms (nonzero), 2.06 a clock and multiprocessor.
SELECTED_PER_CLOCK = 2.0
_SELECTING = ("nonzero", "masked_select")
MANY_LAUNCHES = 16  # of one operator call: kernels of several passes launch up to a dozen
_ATTENTION = "attention"


@dataclass(frozen=True, eq=False)
class Limits:
    """For each row of ``device_ops`` its share of the limit and of the bytes of its operator call.

    NaN where no limit is known. ``repeated`` are launches of a call beyond its first, where it
    launches many and one would do: ``at_limit_ns`` gives the first of them all of the limit.
    """

    limit_ns: Floats
    bytes: Floats
    repeated: Mask
    at_limit_ns: Floats  # what it took where no limit is known


@once_per_trace
def needed_limits(trace: Trace) -> Limits:
    """The limits of all device operations of operators with a model."""
    ops, known = trace.device_ops, roofs(trace)
    took = np.zeros(0) if ops is None else ops["duration_ns"].astype(np.float64)
    if ops is None or known is None or known.memory is None or not len(took):
        nothing = np.full(len(took), np.nan)
        return Limits(nothing, nothing, np.zeros(len(took), np.bool_), took)
    calls = launched_calls(trace)
    whole = np.bincount(calls.operator, took)[calls.operator]
    share = took / np.maximum(whole, 1.0)
    kinds = _kinds(trace, known)
    tables, sizes = _sparse_tables(trace), convolutions(trace)
    costs = [_needed(of, tables) or by_its_backward(of.call, sizes) for of in calls.calls]
    at = _times(costs, calls.calls, kinds, known)
    size = np.append([np.nan if c is None or c.bytes is None else c.bytes for c in costs], np.nan)
    size, limit = size[calls.which], at[kinds.of_op, calls.which]
    kernels = ops["kind"] == DeviceKind.KERNEL
    by_name, by_index = bytes_by_grid(trace, kernels & np.isnan(limit))
    by_grid = ~np.isnan(by_name)
    rate = np.where(by_index, _bytes_per_s(known, RANDOM_ROWS_REACHED), _bytes_per_s(known))
    limit = np.maximum(np.where(by_grid, by_name / rate * 1e9, limit), KERNEL_START_NS)
    # Of a kernel that its own grid tells the bytes of, they are its own and not its operator's.
    share = np.where(by_grid, 1.0, share)
    limit, size = limit * share, np.where(by_grid, by_name, size) * share
    limit[calls.where(lambda of: takes_narrow_rows(of.call))] = np.nan
    limit, size = _of_captures(trace, limit, size, kinds, known)
    limit, size = _of_twins(ops, took, limit, size)
    compiled, programs = _of_programs(trace, known, kinds)
    size = np.where(np.isnan(limit), programs, size)
    limit = np.where(np.isnan(limit), compiled, limit)
    # Whatever a kernel does, it needs no less than its start.
    limit = np.where(np.isnan(limit) & (took <= KERNEL_START_NS), took, limit)
    moving, moved = transfer_ns(trace, known, _bytes_per_s(known))
    limit, size = np.where(kernels, limit, moving), np.where(kernels, size, moved)
    one_would_do = np.array([c is not None and c.in_turn == 1 for c in costs] + [False])
    return _gathered(trace, np.minimum(limit, took), size, took, one_would_do[calls.which])


def _of_captures(
    trace: Trace, limit: Floats, size: Floats, kinds: "_Kinds", known: Roofs
) -> tuple[Floats, Floats]:
    """With what kernels of replays need whose operators were captured."""
    found = replayed_calls(trace)
    if found is None:
        return limit, size
    costs = [needed(of.call) for of in found.calls]
    of_call = _times(costs, found.calls, kinds, known)[kinds.of_op, found.which]
    unknown = np.isnan(limit)
    moved = np.append([np.nan if c is None or c.bytes is None else c.bytes for c in costs], np.nan)
    needs = np.maximum(of_call, KERNEL_START_NS) * found.share
    return (
        np.where(unknown, needs, limit),
        np.where(unknown, moved[found.which] * found.share, size),
    )


SAME_WORK_RATIO = 1.25  # launches of a kernel with one grid that differ by more do not do the same


def _of_twins(ops: Table, took: Floats, limit: Floats, size: Floats) -> tuple[Floats, Floats]:
    """What launches of the same kernel and grid need that take as long, where no operator is known.

    Of those whose operator is known, the mean.
    """
    unknown = np.isnan(limit)
    kind = distinct_rows(
        ops["name"].astype(np.int64),
        ops.filled("grid", -1).astype(np.int64),
        ops.filled("block", -1).astype(np.int64),
    )[1]
    known = np.where(unknown, 0.0, 1.0)
    count = np.bincount(kind, known)[kind]
    mean = [
        np.bincount(kind, np.where(unknown, 0.0, v))[kind] / count.clip(1)
        for v in (took, limit, size)
    ]
    usual = np.maximum(mean[0], 1.0)
    alike = np.maximum(took / usual, usual / np.maximum(took, 1.0)) <= SAME_WORK_RATIO
    twin = unknown & (count > 0) & alike & ops.known("grid")
    return np.where(twin, mean[1], limit), np.where(twin, mean[2], size)


def _gathered(
    trace: Trace, limit: Floats, size: Floats, took: Floats, one_would_do: Mask
) -> Limits:
    """With the launches that one would do for."""
    calls, known = launched_calls(trace), ~np.isnan(limit)
    first = np.zeros(len(limit), np.bool_)
    first[np.unique(calls.operator, return_index=True)[1]] = True
    many = (np.bincount(calls.operator)[calls.operator] >= MANY_LAUNCHES) & known & one_would_do
    together = np.bincount(calls.operator, np.where(known, limit, 0.0))[calls.operator]
    at_limit = np.where(known, limit, took)
    at_limit = np.where(many, np.where(first, together, 0.0), at_limit)
    return Limits(limit, size, many & ~first, at_limit)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """The peaks that operations may be held against, and which of them each one is."""

    peaks: tuple[str | None, ...]
    of_words: tuple[bool, ...]  # the number format has 4 bytes
    of_op: NDArray[np.intp]


def _kinds(trace: Trace, known: Roofs) -> _Kinds:
    """By the number format of each kernel, as the peaks of products are named."""
    formats = precision_of_device_ops(trace)
    pair = formats.precision.astype(np.int64) * 8 + formats.matrix_units
    distinct, which = np.unique(pair, return_inverse=True)
    peaks = tuple(peak_type(p // 8, p % 8, matrix=True) for p in distinct.tolist())
    of_words = tuple(p // 8 in (Precision.FP32, Precision.TF32) for p in distinct.tolist())
    return _Kinds(peaks, of_words, which.reshape(-1).astype(np.intp))


def _times(
    costs: list[Cost | None], calls: tuple[LaunchedCall, ...], kinds: _Kinds, known: Roofs
) -> Floats:
    """Limit in ns by kind of peak and call; the last call stands for none."""
    stream, rows = _bytes_per_s(known), _bytes_per_s(known, RANDOM_ROWS_REACHED)
    sorting = _bytes_per_s(known, SORT_REACHED)
    out = np.full((len(kinds.peaks), len(calls) + 1), np.nan)
    for at, (cost, of) in enumerate(zip(costs, calls, strict=True)):
        if cost is None or (cost.bytes is None and not cost.matrix):
            continue
        if dense_mask(of.call) is not None:  # what it hides need not be computed, and is not known
            continue
        if of_few_channels(of.call):  # how near the matrix units' rate one can come is not known
            continue
        by_row, by_sort = (bool(names.match(of.call.name)) for names in (_BY_ROW, _BY_SORT))
        moving = (cost.bytes or 0) / (rows if by_row else sorting if by_sort else stream) * 1e9
        in_turn = cost.in_turn * KERNEL_START_NS
        for kind, peak in enumerate(kinds.peaks):
            if not of.call.dtypes and not kinds.of_words[kind]:
                continue  # where no type is recorded, bytes are counted as of 4 an element
            out[kind, at] = np.maximum(_limit(cost, of.call.name, moving, peak, known), in_turn)
    return out


def _bytes_per_s(known: Roofs, reached: float = MEMORY_REACHED) -> float:
    """A measured ceiling is one of streaming."""
    assert known.memory is not None
    of_stream = reached / MEMORY_REACHED
    return known.memory.per_s * (of_stream if known.memory.measured else reached)


def _limit(cost: Cost, name: str, moving_ns: float, peak: str | None, known: Roofs) -> float:
    if not cost.flops:
        return moving_ns
    if any(word in name for word in _ADDING):
        return max(moving_ns, _by_clock_ns(cost.flops, ADDS_PER_CLOCK, known))
    if any(word in name for word in _SELECTING):
        return max(moving_ns, _by_clock_ns(cost.flops, SELECTED_PER_CLOCK, known))
    if cost.matrix:
        roof = _of_products(peak, known)
        reached = ATTENTION_REACHED if _ATTENTION in name else PRODUCTS_REACHED
        if roof is None:
            return float("nan")
        return max(moving_ns, cost.flops / _rate(roof, reached) * 1e9)
    roof = known.compute.get("fp64" if peak == "fp64" else "fp32")
    return (
        moving_ns
        if roof is None
        else max(moving_ns, cost.flops / _rate(roof, VECTOR_REACHED) * 1e9)
    )


def _of_products(peak: str | None, known: Roofs) -> Roof | None:
    """Of kernels that say float32 and matrix units: tf32 where the device has no such peak."""
    return known.compute.get(peak or "tf32") or known.compute.get("tf32")


def _of_programs(trace: Trace, known: Roofs, kinds: _Kinds) -> tuple[Floats, Floats]:
    """Limit and bytes of each row that is an operation of a compiled program, as that counts them.

    FLOPs are those of products and convolutions, on matrix units: of a TPU in bfloat16.
    """
    size, flops = counted(trace).bytes, counted(trace).flops
    told = ~(np.isnan(size) & np.isnan(flops))
    if not told.any():
        return size, size
    found = [_of_products(peak, known) or known.compute.get("bf16") for peak in kinds.peaks]
    rate = np.array([_rate(roof, PRODUCTS_REACHED) if roof else np.nan for roof in found])
    computing = flops / rate[kinds.of_op] * 1e9
    limit = np.fmax(size / _bytes_per_s(known) * 1e9, computing).clip(KERNEL_START_NS)
    return np.where(told, limit, np.nan), size


def _by_clock_ns(elements: int, per_clock: float, known: Roofs) -> float:
    spec = known.spec
    if spec is None or not spec.multiprocessors or not spec.clock_hz:
        return 0.0
    return elements / (per_clock * spec.multiprocessors * spec.clock_hz) * 1e9


def _rate(roof: Roof, reached: float) -> float:
    return roof.per_s * (1.0 if roof.measured and reached != ATTENTION_REACHED else reached)


# ------------------------------------------------------------------------------------------------
# Tables of which a step looks up few rows, and which no product needs whole: their gradients are
# zero elsewhere, and so is what an optimizer that knew would have to do.

FEW_ROWS_RATIO = 0.25  # of a table, looked up in a step; with more, rows pay less than a dense pass
_PRODUCTS = ("mm", "addmm", "bmm", "linear", "matmul")


def _sparse_tables(trace: Trace) -> dict[Shape, float]:
    """Share of the rows that a step looks up, for each table that is hardly touched."""
    looked_up: dict[Shape, float] = {}
    dense: set[Shape] = set()
    calls, steps = launched_calls(trace), max(len(judged_steps(trace)), 1)
    times = np.bincount(calls.which[_one_of_each_call(trace)], minlength=len(calls.calls) + 1)
    for at, of in enumerate(calls.calls):
        call = of.call
        gradient, rows = call.shape(0), call.integers(2)
        if call.name == "aten::embedding_dense_backward" and gradient and rows:
            table = (rows[0], gradient[-1])
            looked_up[table] = looked_up.get(table, 0.0) + call.size(1) * int(times[at]) / steps
        elif call.name.removeprefix("aten::") in _PRODUCTS:
            shapes = [s for i in call.tensors() if (s := call.shape(i)) is not None]
            dense.update(shapes)
            dense.update(s[::-1] for s in shapes)
    return {
        table: rows / table[0]
        for table, rows in looked_up.items()
        if table not in dense and rows < FEW_ROWS_RATIO * table[0]
    }


def _one_of_each_call(trace: Trace) -> NDArray[np.intp]:
    """One device operation of each operator call in the judged steps."""
    calls, mine = launched_calls(trace), np.flatnonzero(device_ops_in_steps(trace))
    return mine[np.unique(calls.operator[mine], return_index=True)[1]]


def _needed(of: LaunchedCall, tables: dict[Shape, float]) -> Cost | None:
    cost = needed(of.call)
    if cost is None or not tables or cost.matrix or cost.bytes is None:
        return cost
    left = _left_ratio(of, tables)
    return Cost(None if cost.flops is None else round(cost.flops * left), round(cost.bytes * left))


def _left_ratio(of: LaunchedCall, tables: dict[Shape, float]) -> float:
    """The share of a call's elements that is not in untouched rows of such a table."""
    call = of.call
    shapes = call.shape_list(0) or tuple(s for s in (call.shape(0),) if s is not None)
    if call.name in ("aten::embedding", "aten::embedding_dense_backward"):
        return 1.0
    whole = sum(map(elements, shapes))
    needs = sum(elements(shape) * tables.get(shape, 1.0) for shape in shapes)
    return needs / whole if whole else 1.0
