"""How much of the device's arithmetic a step uses: MFU, HFU, tokens and samples a second.

MFU (model FLOPs utilisation) counts the matrix products, convolutions and attention that the model
needs; HFU (hardware) counts what is done again too, by checkpointing and inside the backward pass
of fused attention, which makes one of its five products again. Both are shares of the dense peak of
the data sheet for the type that most of these FLOPs are in. Causal attention counts the half that
is needed; ``mfu_unmasked`` counts it whole, as the formula of PaLM and many papers do.
"""

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.costs.products import ATTENTION
from pinchpoint.analysis.host.attribution import recomputed_rows
from pinchpoint.analysis.host.input_arguments import elements, input_shapes
from pinchpoint.analysis.limits.roofs import Roof, roofs, spec_of
from pinchpoint.analysis.replay.predict import corrected_step_ns, timed_ns
from pinchpoint.analysis.replay.recording_cost import calibrated
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.analysis.work.operator_work import OperatorWork, operator_work, peak_type
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, distinct_rows
from pinchpoint.trace.names import rows_named


@dataclass(frozen=True)
class Throughput:
    """What a step handles, read from the shapes of its inputs."""

    per_step: int
    unit: str  # tokens, samples
    basis: str  # where the number was read


@dataclass(frozen=True)
class Utilisation:
    """The arithmetic of a typical step; FLOPs are of matrix work unless they say otherwise."""

    step_ns: int
    step_how: str  # "measured without the profiler in the same run", "estimated without the …"
    flops_per_step: int  # recomputation included
    recomputed_flops_per_step: int  # by checkpointing
    attention_again_flops_per_step: int  # by the backward pass of fused attention
    vector_flops_per_step: int  # elementwise work and the like, not in MFU
    dtype: str | None  # type of most of the FLOPs; None without any
    by_dtype: dict[str, int]  # FLOPs a step
    devices: int  # that the work was spread over
    peak: Roof | None  # data sheet, one device
    measured_peak: Roof | None  # GEMM ceiling measured on this machine, if there is one
    mfu: float | None
    hfu: float | None
    mfu_unmasked: float | None
    mfu_of_measured: float | None
    not_modelled_ratio: float | None  # of kernel time: neither FLOPs nor bytes known for it
    throughput: Throughput | None

    @property
    def flop_per_s(self) -> float:
        """Matrix FLOP/s over the whole step, idle time included."""
        return self.flops_per_step / self.step_ns * 1e9 if self.step_ns else 0.0

    @property
    def items_per_s(self) -> float | None:
        """Tokens or samples a second."""
        if self.throughput is None or not self.step_ns:
            return None
        return self.throughput.per_step / self.step_ns * 1e9


@once_per_trace
def utilisation(trace: Trace) -> Utilisation | None:
    """The arithmetic of a typical step; None without steps or without device work."""
    timed = steps(trace)
    work = operator_work(trace)
    if timed.typical_ns is None or not len(work.rows):
        return None
    step = step_of(timed, work.first_ns)
    counted = np.append(timed.typical, False)[step]
    count = int(timed.typical.sum())
    if not count or not counted.any():
        return None
    again = recomputed_rows(trace)[work.rows]
    products = counted & work.matrix & work.modelled
    total = int(work.flops[products].sum())
    recomputed = int(work.flops[products & again].sum())
    in_attention = _made_again(trace, work) & products & ~again
    attention = int(work.flops[in_attention].sum() * AGAIN_RATIO)
    unmasked = int(work.unmasked_flops[products & ~again].sum())
    unmasked -= int(work.unmasked_flops[in_attention].sum() * AGAIN_RATIO)
    vector = int(work.flops[counted & ~work.matrix & work.modelled].sum())
    by_type = _by_type(work, products)
    dtype = max(by_type, key=lambda t: by_type[t], default=None)
    devices = max(len(np.unique(work.device[counted])), 1)
    step_ns, how = _step_time(trace, timed)
    spec, known = spec_of(trace), roofs(trace)
    sheet = None if spec is None or dtype is None else spec.peak_flop_per_s(dtype)
    peak = Roof(sheet, spec.source) if spec is not None and sheet is not None else None
    measured = known.compute.get(dtype) if known is not None and dtype is not None else None
    measured = measured if measured is not None and measured.measured else None

    def share(flops: int, roof: Roof | None) -> float | None:
        if roof is None or not total:
            return None
        return flops / count / (step_ns * 1e-9 * roof.per_s * devices)

    return Utilisation(
        step_ns=step_ns,
        step_how=how,
        flops_per_step=round(total / count),
        recomputed_flops_per_step=round(recomputed / count),
        attention_again_flops_per_step=round(attention / count),
        vector_flops_per_step=round(vector / count),
        dtype=dtype,
        by_dtype={t: round(f / count) for t, f in sorted(by_type.items(), key=lambda p: -p[1])},
        devices=devices,
        peak=peak,
        measured_peak=measured,
        mfu=share(total - recomputed - attention, peak),
        hfu=share(total, peak),
        mfu_unmasked=share(unmasked, peak),
        mfu_of_measured=share(total - recomputed - attention, measured),
        not_modelled_ratio=not_modelled_ratio(trace),
        throughput=throughput(trace),
    )


# The scores, one of five products, are made again where heads of queries and values are alike.
AGAIN_RATIO = 0.2


def _made_again(trace: Trace, work: OperatorWork) -> Mask:
    """Calls of a fused backward pass of attention."""
    host = trace.host_ops
    assert host is not None
    fused = {name for name in ATTENTION if name.endswith("_backward")}
    found: Mask = rows_named(trace, host, fused.__contains__)[work.rows]
    return found


def not_modelled_ratio(trace: Trace, needs_bytes: Floats | None = None) -> float | None:
    """Share of kernel time of which nothing is known: no shapes, no model, inside a graph.

    Of the typical steps, which MFU is of, where there are some; what was launched before the
    recording began has no operator. Fused kernels of a compiler count as known by their bytes;
    they hold no matrix products. So do rows of ``device_ops`` whose ``needs_bytes`` are no NaN.
    Collectives do not count: they are not there to compute. None without kernels.
    """
    ops = trace.device_ops
    if ops is None:
        return None
    kernels, timed = ops["kind"] == DeviceKind.KERNEL, steps(trace)
    inside = kernels & np.append(timed.typical, False)[step_of(timed, ops["start_ns"])]
    kernels = inside if inside.any() else kernels
    total = int(ops["duration_ns"][kernels].sum())
    work, host = operator_work(trace), trace.host_ops
    known = np.zeros(0 if host is None else len(host) + 1, np.bool_)
    known[work.rows[work.understood]] = True
    told = np.zeros(len(ops), np.bool_) if host is None else known[ops.filled("host_op", -1)]
    if needs_bytes is not None:
        told = told | ~np.isnan(needs_bytes)
    return 1 - int(ops["duration_ns"][kernels & told].sum()) / total if total else None


def step_of(timed: Steps, times: Ints) -> Ints:
    """The step that each time falls in; ``len(timed)`` outside of all."""
    step = np.searchsorted(timed.end_ns, times, "right")
    inside = step < len(timed)
    inside[inside] = times[inside] >= timed.start_ns[step[inside]]
    return np.where(inside, step, len(timed))


def _by_type(work: OperatorWork, wanted: Mask) -> dict[str, int]:
    found: dict[str, int] = {}
    if not wanted.any():
        return found
    keys = (work.precision, work.on_matrix_units)
    distinct, which = distinct_rows(*(k[wanted].astype(np.int64) for k in keys))
    sums = np.bincount(which, weights=work.flops[wanted].astype(np.float64))
    for (precision, units), flops in zip(distinct.tolist(), sums.tolist(), strict=True):
        dtype = peak_type(precision, units, matrix=True) or "fp32"
        found[dtype] = found.get(dtype, 0) + int(flops)
    return found


def _step_time(trace: Trace, timed: Steps) -> tuple[int, str]:
    if timed_by_run(trace):
        ordered = sorted(timed_ns(trace))
        return ordered[len(ordered) // 2], "measured without the profiler in the same run"
    assert timed.typical_ns is not None
    corrected = corrected_step_ns(trace) if calibrated(trace) else None
    if corrected is not None:
        return corrected, "estimated without the profiler"
    return timed.typical_ns, "in the trace, with the profiler"


_TOKENS = ("aten::embedding", "aten::embedding_bag")
_SAMPLES = ("aten::conv2d", "aten::conv1d", "aten::conv3d")
# Of the products' FLOPs: beside experts, which work on parts of the tokens, some tens of per cent
# are left for what works on all of them; text encoders of image models take some per cent.
LEAST_ON_TOKENS_RATIO = 0.1
_MATRIX_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1}  # where their operands begin
_TABLE_OF_TOKENS = 1000  # rows; a table of positions or segments is smaller than most vocabularies


def throughput(trace: Trace) -> Throughput | None:
    """Tokens of the largest embedding lookup of a typical step, else samples of its convolution.

    Only the first pass of a step counts, so that gradient accumulation counts all of its
    micro-batches and recomputation counts none twice.
    """
    host = trace.host_ops
    timed = steps(trace)
    if host is None or not len(host) or not timed.typical.any():
        return None
    step = _issued_in(timed, host["start_ns"])
    if timed.how == "none":
        step = np.zeros(len(host), np.int64)  # the whole recording is one window
    counted = np.append(timed.typical, False)[step] & host.known("shapes")
    counted &= ~recomputed_rows(trace)
    return _tokens(trace, counted, timed) or _samples(trace, counted, timed)


def _issued_in(timed: Steps, times: Ints) -> Ints:
    step = np.searchsorted(timed.host_end_ns, times, "right")
    inside = step < len(timed)
    inside[inside] = times[inside] >= timed.host_start_ns[step[inside]]
    return np.where(inside, step, len(timed))


def _named(trace: Trace, wanted: Mask, names: tuple[str, ...]) -> list[tuple[int, int]]:
    """Distinct shapes of wanted rows with these names, with their counts."""
    host = trace.host_ops
    assert host is not None
    rows = np.flatnonzero(wanted & rows_named(trace, host, names.__contains__))
    if not len(rows):
        return []
    pairs, counts = np.unique(host["shapes"][rows], return_counts=True)
    return list(zip(pairs.tolist(), counts.tolist(), strict=True))


def _tokens(trace: Trace, counted: Mask, timed: Steps) -> Throughput | None:
    looked_up: dict[int, int] = {}  # by rows of the table
    at_once: dict[int, set[int]] = {}  # how many in one lookup
    for shapes, count in _named(trace, counted, _TOKENS):
        call = OperatorCall("", input_shapes(trace.names[shapes]) or ())
        table, indices = call.shape(0), call.shape(1)
        if table is not None and indices is not None and len(table) == 2:
            looked_up[table[0]] = looked_up.get(table[0], 0) + elements(indices) * count
            at_once.setdefault(table[0], set()).add(elements(indices))
    rows = max(looked_up, default=0)
    if rows < _TABLE_OF_TOKENS or not _worked_on(trace, counted, at_once[rows]):
        return None
    per_step = round(looked_up[rows] / int(timed.typical.sum()))
    return Throughput(per_step, "tokens", f"lookups in the embedding of {rows} rows")


def _worked_on(trace: Trace, counted: Mask, tokens: set[int]) -> bool:
    """Whether products work on the tokens that are looked up, as far as their shapes are known.

    The text encoder of a model of images looks up tokens too, and next to none of the work is on
    them.
    """
    whole = mine = 0.0  # rows are the first dimension; of gradients of weights the second
    for name, first in _MATRIX_PRODUCTS.items():
        for shapes, count in _named(trace, counted, (name,)):
            call = OperatorCall("", input_shapes(trace.names[shapes]) or ())
            left, right = call.shape(first), call.shape(first + 1)
            if left is None or right is None or len(left) != 2 or len(right) != 2:
                continue
            flops = float(left[0]) * left[1] * right[1] * count
            whole += flops
            mine += flops if tokens & {left[0], left[1]} else 0.0
    return mine >= LEAST_ON_TOKENS_RATIO * whole


def _samples(trace: Trace, counted: Mask, timed: Steps) -> Throughput | None:
    """The batch of the convolution with the fewest input channels: the first layer."""
    seen = []
    for shapes, count in _named(trace, counted, _SAMPLES):
        image = next(iter(input_shapes(trace.names[shapes]) or ()), None)
        if image is None or len(image) < 3 or not isinstance(image[0], int):
            continue
        batch, channels = image[0], image[1]
        seen.append((channels, batch * count))
    if not seen:
        return None
    channels, total = min(seen)
    per_step = round(total / int(timed.typical.sum()))
    return Throughput(per_step, "samples", f"batch of the convolution with {channels} channels")
