"""The next token is chosen on the host.

## What it looks for
Inference steps that copy something as wide as a vocabulary to the host, wait for it, sort or sample
there with numeric packages, and go on.

## Why it matters
Moving and sorting a hundred thousand logits a sequence on the CPU takes many times longer than the
model's step; the device waits for the token.

## How to fix it
Sample on the device (`torch.topk`, `torch.multinomial`, a fused sampler), and copy only tokens.

## When to ignore it
Where a host library is needed for constrained decoding, and its time is hidden.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.synchronising._host_work_after_copy import host_work_after_copy
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=Record(
        "CPU and device activity with shapes and stacks: record_shapes=True, with_stack=True",
        Need.RECORD_SHAPES,
        Record("CPU and device activity with shapes and stacks", Need.CPU_AND_DEVICE),
    ),
    parent="metric-on-cpu",
    advice=NO_HINT,
)

LARGEST_VOCABULARY = 1_000_000  # the largest of language models are a quarter of that
LEAST_VOCABULARY = 4_096  # the smallest vocabularies of language models; wider than most features


def check(trace: Trace) -> Iterator[Found]:
    """Copies of logits to the host in inference steps."""
    if workload(trace).trains or not _copies_logits(trace):
        return
    work = host_work_after_copy(trace, WaitReason.COPY_TO_HOST)
    if work is None:
        return
    yield Found(
        summary=f"The next token is chosen on the host{work.where}, from copied logits",
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=work.dropped,
        location=work.place,
        fix="Sample on the device and copy only the tokens",
        hint="torch.multinomial(torch.softmax(logits, -1), 1)",
        confirm='pinchpoint bench ab -- "python generate.py" "python generate_fixed.py"',
    )


def _is_logits(shape: tuple[int, ...]) -> bool:
    """Rows of a vocabulary: (batch, vocabulary), perhaps with a position between."""
    return len(shape) in (2, 3) and LEAST_VOCABULARY <= shape[-1] <= LARGEST_VOCABULARY


def _copies_logits(trace: Trace) -> bool:
    waits, host = host_waits(trace), trace.host_ops
    assert host is not None
    rows = waits.host_op[waits.rows(WaitReason.COPY_TO_HOST)]
    rows = np.unique(rows[rows < len(host)])
    for row in rows.tolist():
        text = trace.text(host, "shapes", row)
        if text and any(_is_logits(shape) for shape in tensor_shapes(text)):
            return True
    return False
