"""A program that computes partly in 16 bits leaves large products on a CPU in float32.

## What it looks for
In a run folder of a program without a device, on a processor with AMX for bfloat16: products and
convolutions of large float32 tensors that take much of the step, beside others that the program
computes in 16 bits. Where all are in float32, whether the result allows less is undecided: only a
trial shows that, and the time.

## Why it matters
The matrix units do many times more products a cycle than the vector units, and only of 16 and 8
bits. Casts take part of that back, the more the fewer rows share a weight: a step took 0.94 of
its time with 64 rows for each weight, 0.55 with 512.

## How to fix it
`with torch.autocast("cpu", dtype=torch.bfloat16):` around forward and loss.

## When to ignore it
Where a trial showed that eight bits of mantissa are not enough.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import (
    GRAIN_ELEMENTS,
    cpu_operators,
    elements_of,
    first_elements,
)
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import RUN_FOLDER, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, named, sparse, too_small, typed
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, knobs=("autocast",), advice=NO_HINT)

# Of the step: of less, casts take what the products gain.
LEAST_RATIO = 0.3
# Of the products' time, measured on one thread of a processor with AMX, training: 0.08 of a
# perceptron with 64 rows, for which each weight is cast, 0.55 with 512, 0.5 of convolutions.
LEAST_WON, MOST_WON = 0.08, 0.6
_PRODUCTS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
    "aten::mkldnn_convolution", "aten::convolution_backward",
)  # fmt: skip
_SIXTEEN_BITS = ("c10::BFloat16", "c10::Half")
_TRIAL = Record("the result of a trial: pinchpoint try --knob autocast -- python train.py")
_ADDED_TO = ("aten::addmm", "aten::baddbmm")  # their first tensor is what the product is added to


def check(trace: Trace) -> Iterator[Found | Small]:
    """Products of large float32 tensors."""
    mine, facts = judged(trace), run_facts(trace)
    if mine is None:
        return
    if facts.cpu_features is None:
        raise NotChecked("what the processor can do is not recorded")
    if "amx_bf16" not in facts.cpu_features or facts.onednn is False:
        return  # without oneDNN nothing uses them
    single = typed(trace, "float")
    if single is None:
        raise NotChecked("the types of the inputs are not recorded")
    rows_of = np.where(named(trace, *_ADDED_TO), elements_of(trace, 1), first_elements(trace))
    large = rows_of >= GRAIN_ELEMENTS
    products = mine & cpu_operators(trace).operator & named(trace, *_PRODUCTS)
    rows = products & single & large & ~sparse(trace)
    spans = host_spans(trace, rows, "products in float32")
    if spans is None:
        return
    took, step_ns = spans.ns_per_step, steps(trace).typical_ns or 0
    narrow = (typed(trace, kind) for kind in _SIXTEEN_BITS)
    allowed = any((products & kind).any() for kind in narrow if kind is not None)
    if too_small(trace, spans) or took < LEAST_RATIO * step_ns:
        if allowed:
            yield Small(took / max(step_ns, 1), LEAST_RATIO)
        return
    if not allowed:
        raise NotChecked(
            f"products in float32 take {duration(took)} a step, which the processor's matrix units"
            " do in bfloat16: whether the result allows that does not show",
            _TRIAL,
            fits=True,
        )
    yield Found(
        summary=(
            f"{spans.count:.0f} products a step in float32 take {duration(took)} of it"
            f"{spans.where}; the matrix units of this processor do bfloat16"
        ),
        evidence=(*spans.evidence, Evidence("feature of the processor", "amx_bf16", "name")),
        cost_ns_per_step=took,
        saving_ns_per_step=(int(LEAST_WON * took), int(MOST_WON * took)),
        location=spans.place,
        fix="Compute forward and loss in bfloat16",
        hint='with torch.autocast("cpu", dtype=torch.bfloat16):',
        confirm="pinchpoint try --knob autocast -- python train.py",
        confidence="medium",
    )
