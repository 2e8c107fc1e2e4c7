"""Matrix work runs in 32-bit formats where 16 bits would do.

## What it looks for
Matrix products and convolutions in TF32, and fused attention in float32, that make up most of the
matrix work, in a network of a kind that is trained and run in bfloat16 as a matter of course: one
with attention, convolutions or normalisation layers. Of other networks, such as a plain stack of
linear layers, it says nothing: nobody knows from a trace whether 8 bits of mantissa are enough.
Products that wait for memory at their own format's peak do not count: their time is that of their
operands, and the units are idle anyway. What autocast itself takes on the host, its casts, is part
of the prediction. Where most products are in 16 bits already, and elementwise work mixes tensors of
16 bits with others of float32, that is the place: it makes float32 of what follows. Where they are,
and it is attention alone that computes in float32, the place is where tensors of the shape of its
inputs are cast from 16 bits to float32, as a rotary embedding does and does not cast back.

## Why it matters
The tensor cores do twice as many products in bfloat16 as in TF32, and fused attention in float32
runs without the fast kernels at all. The prediction halves what works on the pictures between
convolutions and on heads between products and attention, whose bytes are halved; the rest of a
transformer stays as it is, because autocast keeps normalisation, softmax and sums in float32 and
adds casts.

## How to fix it
`with torch.autocast("cuda", dtype=torch.bfloat16):` around forward and loss; parameters and the
optimizer stay in float32. Where a table, a mask or a scale of float32 takes 16 bits away again:
bring it into the type of what it meets.

## When to ignore it
Where a trial showed that the result suffers.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.kernel_precision import (
    MatrixUnits,
    Precision,
    precision_of_device_ops,
)
from pinchpoint.analysis.replay import AddHostTime, Change, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import DEVICE
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Framework, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=DEVICE,
    knobs=("autocast",),
    advice={
        Framework.OTHER: {
            "fix": "Compute forward and loss in bfloat16",
            "hint": None,
            "confirm": ANY_PROGRAM,
        }
    },
    confirm="pinchpoint try --knob autocast=bfloat16 -- python train.py",
)

MOSTLY_RATIO = 0.5  # of the matrix work in 32-bit formats on matrix units, else it is not the rule
HALF_THE_TIME = 0.5  # twice the peak for a convolution, half the bytes for what follows it
HALF_THE_BYTES = 0.5  # 16 bits in place of 32
USUAL_ATTENTION_RATIO = 0.12  # 28 TFLOP/s in float32, 260 in bf16 on an H100

# Host time of autocast for each product: of a linear layer it casts input, weight and bias forward
# and their gradients backward, six eager operators of 7 µs for three products.
CASTS_NS = 14_000

PICTURE_DIMENSIONS = 4  # batch, channel, height, width; or batch, head, token, width

_FOLLOWING = (
    Category.NORMALISATION,
    Category.ELEMENTWISE,
    Category.POOLING,
    Category.DATA_MOVEMENT,
)
_MATRIX = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)
_ESTABLISHED = (Category.CONVOLUTION, Category.ATTENTION, Category.NORMALISATION)


def check(trace: Trace) -> Iterator[Found]:
    """32-bit matrix work in networks that are used to 16 bits."""
    ops = trace.device_ops
    if ops is None:
        return
    category, inside = category_of_device_ops(trace), device_ops_in_steps(trace)
    wide = _wide(trace)
    matrix = int(ops["duration_ns"][inside & np.isin(category, _MATRIX)].sum())
    if int(ops["duration_ns"][inside & wide].sum()) <= MOSTLY_RATIO * matrix:
        return
    if not (inside & np.isin(category, _ESTABLISHED)).any():
        return
    work = device_work(trace, wide, "matrix work in 32-bit formats")
    if work is None:
        return
    cast = _cast_up(trace.with_names)
    if cast is not None:
        yield _attention_alone(trace, work, cast)
        return
    changes = (*_in_16_bits(trace, work), _in_half(_between(trace)))
    promoted = _promoted(trace)
    yield Found(
        summary=(
            f"Matrix work runs in TF32 and float32, {duration(work.ns_per_step)} of"
            " each step; bfloat16 is usual in such networks"
        ),
        evidence=(*work.evidence, *(promoted.evidence if promoted else ())),
        cost_ns_per_step=work.ns_per_step,
        changes=changes if promoted else (*changes, _casts(trace, work)),
        location=(promoted.place if promoted else None) or work.place,
        fix=_FIX_OF_PROMOTION if promoted else "Run forward and loss under bfloat16 autocast",
        hint=(
            "x * table.to(x.dtype)"
            if promoted
            else 'with torch.autocast("cuda", dtype=torch.bfloat16): loss = model(x)'
        ),
        confirm=ANY_PROGRAM if promoted else "",
    )


_FIX_OF_PROMOTION = (
    "Most products run in 16 bits already, and here a tensor of 16 bits becomes one of float32, as"
    " it meets another: bring that one (a table, a mask, a scale) into its type"
)


def _attention_alone(trace: Trace, work: DeviceWork, cast: DeviceWork) -> Found:
    """What is computed in float32 around it, on purpose or not, stays so."""
    where = f" in {cast.place}" if cast.place else ""
    return Found(
        summary=(
            f"Attention runs in float32, {duration(work.ns_per_step)} of each step, though products"
            f" run in 16 bits: its inputs become float32{where}"
        ),
        evidence=(*work.evidence, *cast.evidence),
        cost_ns_per_step=work.ns_per_step,
        changes=tuple(_in_16_bits(trace, work)),
        location=cast.place or work.place,
        fix=(
            "Cast queries and keys back to the type of the model once they are rotated, scaled or"
            " normalised in float32"
        ),
        hint="return turned.to(x.dtype)  # where x.float() is computed with",
        confirm=ANY_PROGRAM,
    )


def _cast_up(trace: Trace) -> DeviceWork | None:
    """Casts from 16 bits to float32 of tensors that are as large as inputs of attention, where
    attention is all matrix work in float32 and products run in 16 bits."""
    inside = device_ops_in_steps(trace) & _wide(trace)
    others = category_of_device_ops(trace)[inside] != Category.ATTENTION
    if not inside.any() or others.any() or not _in_16_bits_already(trace):
        return None
    calls = launched_calls(trace)
    attention = [calls.calls[i] for i in distinct(calls.which[inside]) if i < len(calls.calls)]
    inputs = {_extents(of, i) for of in attention for i in of.call.tensors()[:3]}
    casts = calls.where(
        lambda of: (
            of.call.name == "aten::copy_"
            and of.call.dtype(0) == "float"
            and of.call.dtype(1) in _OF_16_BITS
            and _extents(of, 0) in inputs
        )
    )
    return device_work(trace, casts, "casts of its inputs to float32")


def _extents(of: LaunchedCall, i: int) -> tuple[int, ...]:
    """A tensor's lengths, whatever their order: heads lie before tokens, or behind."""
    return tuple(sorted(of.call.shape(i) or ()))


def _in_16_bits_already(trace: Trace) -> bool:
    """Whether most products of the steps run in 16 bits: the program has chosen those."""
    narrow = np.isin(precision_of_device_ops(trace).precision, (Precision.FP16, Precision.BF16))
    inside = device_ops_in_steps(trace) & (category_of_device_ops(trace) == Category.GEMM)
    return bool(inside.any() and narrow[inside].mean() > MOSTLY_RATIO)


def _promoted(trace: Trace) -> DeviceWork | None:
    """Elementwise work on tensors of 16 bits and of float32 at once, where most products of the
    step are in 16 bits: then the program has chosen those, and this takes it away again."""
    if not _in_16_bits_already(trace):
        return None
    return device_work(trace, launched_calls(trace).where(_promotes), "promoting elementwise work")


def _promotes(of: LaunchedCall) -> bool:
    """Whether the result is of float32 because one of two tensors is; numbers promote nothing."""
    types = {of.call.dtype(i) for i in of.call.tensors()}
    return of.call.name in _PROMOTING and "float" in types and bool(types & _OF_16_BITS)


_PROMOTING = ("aten::mul", "aten::add", "aten::sub", "aten::div", "aten::where", "aten::addcmul")
_OF_16_BITS = {"c10::BFloat16", "c10::Half"}


def _wide(trace: Trace) -> NDArray[np.bool_]:
    """Matrix work on matrix units in TF32 or float32."""
    found, category = precision_of_device_ops(trace), category_of_device_ops(trace)
    wide = np.isin(found.precision, (Precision.TF32, Precision.FP32))
    wide &= np.isin(category, _MATRIX) & (found.matrix_units == MatrixUnits.YES)
    wide &= ~((category == Category.GEMM) & _waits_for_memory(trace))
    result: NDArray[np.bool_] = wide
    return result


def _waits_for_memory(trace: Trace) -> NDArray[np.bool_]:
    """Calls with fewer operations for each byte than the device does in TF32; none if unknown."""
    well = attainable(trace)
    balance = well.spec.balance("tf32") if well else None

    def few(of: LaunchedCall) -> bool:
        cost = cost_of(of.call)
        if cost is None or cost.flops is None or not cost.bytes or balance is None:
            return False
        return cost.flops < balance * cost.bytes

    return launched_calls(trace).where(few)


def _casts(trace: Trace, work: DeviceWork) -> AddHostTime:
    """What autocast does on the host before each of these operators."""
    ops = trace.device_ops
    assert ops is not None
    operators = launched_calls(trace).operator[work.rows]
    first = work.rows[np.unique(operators, return_index=True)[1]]
    call = ops.filled("api_call", -1)[first]
    return AddHostTime(call[call >= 0].astype(np.intp), CASTS_NS)


def _between(trace: Trace) -> NDArray[np.intp]:
    """Elementwise work, batch normalisation and the like on pictures and heads in float32."""
    follows = np.isin(category_of_device_ops(trace), _FOLLOWING) & device_ops_in_steps(trace)
    return np.flatnonzero(follows & launched_calls(trace).where(_on_pictures_or_heads))


def _on_pictures_or_heads(of: LaunchedCall) -> bool:
    shape, dtypes = (
        of.call.shape(0) or next(iter(of.call.shape_list(0) or ()), None),
        of.call.dtypes,
    )
    single = not dtypes or dtypes[0] in ("float", "TensorList")
    return single and shape is not None and len(shape) >= PICTURE_DIMENSIONS


def _in_16_bits(trace: Trace, work: DeviceWork) -> Iterator[Change]:
    well = attainable(trace)
    if well is not None and not well.spec.peak_flop_per_s("bf16"):
        raise NotChecked(f"{well.spec.name} has no bfloat16 matrix units")
    category = category_of_device_ops(trace)[work.rows]
    products = work.rows[category == Category.GEMM]
    attention = work.rows[category == Category.ATTENTION]
    yield _in_half(work.rows[category == Category.CONVOLUTION])
    if well is None:
        yield _in_half(products)
        yield _in_half(attention, USUAL_ATTENTION_RATIO)
        return
    product_ns, attention_ns = partial(well.product_ns, dtype="bf16"), partial(_attention_ns, well)
    yield scaled(trace, products, product_ns, HALF_THE_TIME, bytes_left=HALF_THE_BYTES)
    yield scaled(trace, attention, attention_ns, USUAL_ATTENTION_RATIO, bytes_left=HALF_THE_BYTES)


def _in_half(rows: np.ndarray, factor: float = HALF_THE_TIME) -> ScaleDeviceOps:
    return ScaleDeviceOps(rows, factor, bytes_left=HALF_THE_BYTES)


def _attention_ns(well: Attainable, of: LaunchedCall) -> float | None:
    cost, query = cost_of(of.call), of.call.shape(0)
    if cost is None or cost.flops is None or query is None or len(query) != 4:
        return None
    # (batch, heads, length, width) or (batch, length, heads, width): heads are fewer than tokens
    return well.attention_ns(cost.flops, max(query[1:3]))
