"""A program on the CPU convolves with oneDNN switched off.

## What it looks for
In a run folder of a program without a device: `torch.backends.mkldnn` switched off, and
convolutions of float32, bfloat16 or float16 tensors, or products of the latter two, that count in
the step. In float64 there is no other way.

## Why it matters
Without oneDNN, PyTorch unfolds every image into a matrix and multiplies image by image, and 16-bit
products are computed without the processor's own instructions for them.

## How to fix it
`torch.backends.mkldnn.enabled = True`, and no `torch.backends.mkldnn.flags(enabled=False)`.

## When to ignore it
Where results have to agree bit by bit with those of a build that has no oneDNN.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.run import run_facts
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, named, too_small, typed
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, advice=NO_HINT)

# Of the time, measured on one thread: 0.52 to 0.61 of convolutions of 3 by 3 with 32 to 128
# channels, forward and back, 0.38 of depthwise ones; first layers of three channels gain nothing.
CONVOLUTIONS_LEFT = 0.65
# Of the time of products of 16 bits: 0.01 was measured; what small ones take to be called stays.
PRODUCTS_LEFT = 0.1
_CONVOLUTIONS = (
    "aten::convolution", "aten::conv1d", "aten::conv2d", "aten::conv3d",
    "aten::convolution_backward",
)  # fmt: skip
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_SHORT = ("c10::BFloat16", "c10::Half")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Convolutions, and products of 16 bits, without oneDNN."""
    mine, enabled = judged(trace), run_facts(trace).onednn
    if mine is None:
        return
    if enabled is None:
        raise NotChecked("whether oneDNN is switched on is not recorded")
    if enabled:
        return
    types = [typed(trace, kind) for kind in (*_SHORT, "double")]
    known = [np.zeros_like(mine) if kind is None else kind for kind in types]
    short = known[0] | known[1]
    wanted = mine & cpu_operators(trace).operator & ~known[-1]
    wanted &= named(trace, *_CONVOLUTIONS) | named(trace, *_PRODUCTS) & short
    spans = host_spans(trace, wanted, "without oneDNN")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    slow = short[spans.rows]
    yield Found(
        summary=(
            f"oneDNN is switched off: {spans.count:.0f} convolutions and products a step take"
            f" {duration(spans.ns_per_step)} of it without{spans.where}"
        ),
        evidence=(*spans.evidence, Evidence("torch.backends.mkldnn.enabled", "False", "name")),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            ScaleHostSpans(spans.rows[~slow], CONVOLUTIONS_LEFT),
            ScaleHostSpans(spans.rows[slow], PRODUCTS_LEFT),
        ),
        location=spans.place,
        fix="Switch oneDNN on again",
        hint="torch.backends.mkldnn.enabled = True",
        confirm='pinchpoint bench ab -- "python train.py" "python train_onednn.py"',
        confidence="medium",
    )
