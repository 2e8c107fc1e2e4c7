"""Attention is given a mask as a tensor that a flag, or nothing, would say.

## What it looks for
Fused attention with a mask that has a row for each query, where the values of that mask were looked
at in a step of the same run: it is exactly causal, or causal with padding only after the last
token, or it hides nothing. Biases (ALiBi, relative positions), prefixes that are seen whole,
windows and packed documents are none of these. A trace by itself has no values: there it is not
checked.

## Why it matters
With a mask in a tensor no kernel knows what it may skip: it computes the half that a causal mask
hides, reads the mask for each head, and FlashAttention, which takes no mask, is out of reach.

## How to fix it
`scaled_dot_product_attention(q, k, v, is_causal=True)` without `attn_mask`; no mask at all where
nothing is hidden. In libraries of models, give no mask where no row is padded. Of rows padded on
the right a causal flag is enough: no token sees what comes after it.

## When to ignore it
Where the mask is another one in other steps; short sequences.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.costs.products import dense_mask
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.called_work import CalledWork, called_work
from pinchpoint.diagnosis.evidence.device_work import device_time_per_step
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import AttentionMask

RULE = Rule(
    needs=("host_ops",),
    record=Record("values of masks: pinchpoint run looks at one step's"),
    advice=NO_HINT,
)

FLAGS = {"causal": "is_causal=True", "causal before padding": "is_causal=True"}
FLAGS |= {"nothing hidden": "no mask"}
# A kernel computes tiles, those on the diagonal whole: FlashAttention's and cuDNN's have 64 to 128
# rows, those of torch's kernel for CPUs 512 keys.
TILE, TILE_ON_CPU = 128, 512
# Of the time of what is left on a CPU, where no mask is added. Measured with torch 2.13 on one
# thread, forward and backward: causal attention took 0.60 of that with a mask at 1024 tokens, where
# 0.75 of the tiles are left, 0.51 (of 0.625) at 2048, and 1.1 at 512.
WITHOUT_MASK_ON_CPU = 0.8


class _Way(NamedTuple):
    """How attention with such a mask would be computed."""

    left_ratio: float  # of the pairs of query and key
    best_ratio: float  # of the time, by the best kernel


def check(trace: Trace) -> Iterator[Found]:
    """Masks that a flag would express."""
    values = None if trace.run is None else trace.run.values
    said = [] if values is None else list(_by_flag(values.attention))
    if said and trace.host_ops is not None and not trace.host_ops.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    work = _work(trace, None)
    if work is None:
        return
    if values is None or not values.attention_seen:
        if _material(trace, work):
            raise NotChecked(
                "attention gets a mask in a tensor, and a trace lacks its values", fits=True
            )
        return
    for mask in said:
        yield from _found(trace, mask)


def _by_flag(seen: tuple[AttentionMask, ...]) -> Iterator[AttentionMask]:
    """Of each size of mask the most frequent one, if all of that size can be said by a flag."""
    sizes = dict.fromkeys(mask.mask[-2:] for mask in seen)
    for size in sizes:
        alike = [mask for mask in seen if mask.mask[-2:] == size]
        if min(size) > 1 and all(mask.kind in FLAGS for mask in alike):
            # A flag that hides more would be wrong where nothing is hidden.
            yield max(alike, key=lambda mask: (mask.kind == "nothing hidden", mask.calls))


def _found(trace: Trace, mask: AttentionMask) -> Iterator[Found]:
    work = _work(trace, mask.mask[-2:])
    if work is None:
        return
    way = _way(trace, work, mask)
    flag, kind = FLAGS[mask.kind], mask.kind
    if kind == "causal before padding":
        kind = "causal, with padding after the last token"
    sampled = mask.rows_read < mask.rows_there
    place = None if mask.place is None else Location(*mask.place)
    yield Found(
        summary=(
            f"Attention with a mask of {' × '.join(map(str, mask.mask))} in a tensor takes"
            f" {duration(work.ns_per_step)} a step; by its values it is {_said(kind)}:"
            f" {flag} says the same"
        ),
        evidence=(
            *work.evidence,
            Evidence("the mask by its values", kind, "words"),
            Evidence("pairs that it lets through", round(mask.real_ratio, 4), "ratio"),
            Evidence(
                "rows of it that were read", f"{mask.rows_read} of {mask.rows_there}", "words"
            ),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(work.scaled(way.left_ratio),),
        at_best=(work.scaled(way.best_ratio),),
        location=place or work.place,
        fix=(
            "Give no mask to attention"
            if mask.kind == "nothing hidden"
            else "Give is_causal=True to attention in place of the mask"
        ),
        hint=(
            "y = F.scaled_dot_product_attention(q, k, v)"
            if mask.kind == "nothing hidden"
            else "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
        ),
        confidence="medium" if sampled or not place else "high",
    )


def _said(kind: str) -> str:
    return "without effect" if kind == "nothing hidden" else f"exactly {kind}"


def _work(trace: Trace, size: tuple[int, ...] | None) -> CalledWork | None:
    """Attention with a dense mask, or with one of this size."""

    def masked(call: OperatorCall) -> bool:
        found = dense_mask(call)
        return found is not None and (size is None or found[-2:] == size)

    return called_work(trace, masked, "attention with a mask in a tensor")


def _material(trace: Trace, work: CalledWork) -> bool:
    of_all = device_time_per_step(trace) if work.on_device else steps(trace).typical_ns or 0
    return work.ns_per_step >= MATERIAL_STEP_RATIO * of_all


def _way(trace: Trace, work: CalledWork, mask: AttentionMask) -> _Way:
    """From no skipping but half the tiles, at the rate of now, to the best kernel's rate."""
    queries = mask.mask[-2]
    tiles = -(-queries // (TILE if work.on_device else TILE_ON_CPU))
    left = 1.0 if mask.kind == "nothing hidden" else (tiles + 1) / (2 * tiles)
    if not work.on_device:
        return _Way(left, left * WITHOUT_MASK_ON_CPU if left < 1 else left)
    well = attainable(trace)
    if well is None or trace.device_ops is None:
        return _Way(left, left)
    calls = launched_calls(trace)
    first = np.unique(calls.operator[work.rows], return_index=True)[1]
    flops = calls.numbers(lambda of: getattr(cost_of(of.call), "flops", None))[work.rows[first]]
    dtype = _dtype(calls.calls[calls.which[work.rows[0]]].call)
    best = well.attention_ns(float(np.nansum(flops)) * left, queries, dtype)
    took = int(trace.device_ops["duration_ns"][work.rows].sum())
    return _Way(left, left if best is None else min(left, best / max(took, 1)))


def _dtype(call: OperatorCall) -> str:
    """Of the products, as data sheets name it."""
    return "bf16" if call.element_bytes(0) == 2 else "fp32"
