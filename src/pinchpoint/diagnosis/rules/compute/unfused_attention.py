"""Attention is written out, with a stored matrix of scores.

## What it looks for
A softmax over a tensor with one number for each pair of query and key, between the batched products
that make and consume it, and everything else that touches tensors of that size: scaling, masks,
dropout, copies, and their backward passes. The stored scores are the evidence: a bias or a mask of
that shape that goes into a fused kernel is none, nor is the backward pass of such a bias
(index-backward-duplicates), nor a softmax over classes. Not checked without shapes.

## Why it matters
The scores grow with the square of the sequence length, and each of these passes reads and writes
all of them. A fused kernel keeps them on the chip: the time is that of the products alone, and the
memory grows with the length only.

## How to fix it
`torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)`; in libraries of models,
`attn_implementation="sdpa"` or `"flash_attention_2"`. Give `is_causal` rather than a mask;
what is added to the scores by head or request goes in as `attn_mask`.

## When to ignore it
Short sequences, and attention that needs the scores themselves.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps
from pinchpoint.analysis.work.stored_scores import StoredScores, stored_scores
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_OF_INPUTS,
    knobs=("compile",),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_sdpa.py"',
)

PRODUCTS_ALONE = 1.0  # where the device's peaks are not known: fused, but no faster at multiplying


def check(trace: Trace) -> Iterator[Found]:
    """Attention with stored scores."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    scores = stored_scores(trace)
    if scores is None:
        return
    wanted = np.zeros(len(ops), np.bool_)
    wanted[np.concatenate((scores.products, scores.others))] = True
    work = device_work(trace, wanted, "attention with stored scores")
    if work is None:
        return
    batch, queries, keys = scores.shape
    yield Found(
        summary=(
            f"Attention stores {queries} × {keys} scores for each of {batch} heads, and"
            f" {work.count:.0f} kernels a step pass over them, {duration(work.ns_per_step)} of"
            " each recorded step"
        ),
        evidence=(*work.evidence, Evidence("one tensor of scores", scores.bytes, "bytes")),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(scores.others), _fused(trace, scores)),
        location=work.place,
        fix="Use fused attention, which adds the bias itself"
        if scores.biased
        else "Use fused attention, with is_causal in place of a mask",
        hint="y = F.scaled_dot_product_attention(q, k, v, "
        + ("attn_mask=bias.to(q.dtype))" if scores.biased else "is_causal=True)"),
    )


def _fused(trace: Trace, scores: StoredScores) -> Change:
    """The products as the fused kernel does them."""
    well = attainable(trace)
    dtype = "fp32" if scores.wide else "bf16"
    after = well.attention_ns(scores.flops, scores.shape[-1], dtype) if well else None
    assert trace.device_ops is not None
    before = int(trace.device_ops["duration_ns"][scores.products].sum())
    factor = after / before if after else PRODUCTS_ALONE
    # The scores are neither written nor read, and a causal mask spares half of the products.
    return ScaleDeviceOps(scores.products, factor, flops_left=0.5, bytes_left=0.0)
