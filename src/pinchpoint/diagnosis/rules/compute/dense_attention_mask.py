"""Fused attention is handed a mask with a number for each pair of query and key.

## What it looks for
Calls of fused attention with a mask as large as queries × keys, the same for all sequences and
heads, where queries and keys are equally many, and the backward passes of these calls. Whether the
mask is a causal one, or leaves out whole blocks in another way, is in its values, which no
recording has: so between nothing and what a causal mask spares is won. A bias for each head is
none, nor is a mask of padded keys, which differs between sequences or is the same for all queries.
Not checked without shapes of inputs.

## Why it matters
A mask that is a tensor is read for each tile, and the kernel computes all pairs, those that the
mask takes away included. The quickest kernels (flash) take no such mask. With `is_causal` half of
the pairs are never computed, and nothing is read.

## How to fix it
If the mask is causal, leave it out and give `is_causal=True`; for windows, documents or other
blocks, FlexAttention with a block mask, made once.

## When to ignore it
Masks that leave out few pairs, or pairs here and there.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.replay import Change, ScaleDeviceOps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_OF_INPUTS,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_causal.py"',
)

_FORWARD = ("attention", "attention_forward")  # how the operators' names end
_QUERIES, _KEYS, _MASK = 0, 1, 3  # inputs of each; backward passes have the gradient before them
TILE = 128  # rows of queries and keys that a flash kernel takes at once (FlashAttention-2)


def check(trace: Trace) -> Iterator[Found]:
    """Attention with a mask of all pairs."""
    host, calls = trace.host_ops, launched_calls(trace)
    if host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    masks = [(of, mask) for of in calls.calls if (mask := _mask(of)) is not None]
    if not masks:
        return
    masked = {of.call.shape(_QUERIES) for of, _ in masks}
    masked -= {of.call.shape(_QUERIES) for of in calls.calls if _is_forward(of) and not _mask(of)}
    given = calls.where(lambda of: _mask(of) is not None)
    wanted = given | calls.where(lambda of: _is_backward_of(of, masked))
    work = device_work(trace, wanted, "attention with a mask of all pairs")
    forward = device_work(trace, given, "forward")
    if work is None or forward is None:
        return
    mask = max((mask for _, mask in masks), key=elements)
    yield _finding(work, forward.place, mask)


def _finding(work: DeviceWork, place: Location | None, mask: Shape) -> Found:
    return Found(
        summary=(
            f"Attention takes {duration(work.ns_per_step)} of the device's time a step with a mask"
            f" of {mask[-2]} × {mask[-1]} pairs, the same for all sequences: it is read, all pairs"
            " are computed, and the quickest kernels take none. If it is causal, half of that is"
            " not needed"
        ),
        evidence=(*work.evidence, Evidence("pairs in the mask", mask[-2] * mask[-1], "count")),
        cost_ns_per_step=work.ns_per_step,
        at_best=_causal(work, mask[-1]),
        location=place,
        fix="If the mask is causal, give is_causal=True in its place; else FlexAttention's block"
        " mask, made once",
        hint="y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        confidence="medium",
    )


def _causal(work: DeviceWork, keys: int) -> tuple[Change, ...]:
    """The tiles on and below the diagonal."""
    tiles = max(keys // TILE, 1)
    left = (tiles + 1) / (2 * tiles)
    return (ScaleDeviceOps(work.rows, left, flops_left=left, bytes_left=left),)


def _mask(of: LaunchedCall) -> Shape | None:
    """The shape of a mask that tells pairs apart, and neither sequences nor heads; None without."""
    mask, queries, keys = (of.call.shape(at) for at in (_MASK, _QUERIES, _KEYS))
    if not _is_forward(of) or mask is None or queries is None or keys is None or len(mask) < 2:
        return None
    strides = of.stride(_MASK) or (1,) * len(mask)
    told_apart = [size > 1 and step != 0 for size, step in zip(mask, strides, strict=True)]
    of_pairs = mask[-1] == mask[-2] > TILE and mask[-1] in queries and mask[-1] in keys
    return mask if of_pairs and all(told_apart[-2:]) and not any(told_apart[:-2]) else None


def _is_forward(of: LaunchedCall) -> bool:
    return of.call.name.startswith("aten::") and of.call.name.endswith(_FORWARD)


def _is_backward_of(of: LaunchedCall, masked: set[Shape | None]) -> bool:
    return of.call.name.endswith("attention_backward") and of.call.shape(1) in masked
