"""The next token is chosen on the host.

## What it looks for
Inference steps that look tokens up in an embedding, copy rows as wide as that embedding is long
(the logits) to the host, wait for them, and compute there: with numeric packages, or with operators
on CPU tensors. Wide rows alone are no logits, and a copy that nothing is computed with samples
nothing. Without shapes the two cannot be told apart.

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

from pinchpoint.analysis.host.input_arguments import Shape, tensor_shapes
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.synchronising._host_work_after_copy import host_work_after_copy
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=Record(
        "CPU and device activity with shapes and stacks: record_shapes=True, with_stack=True",
        Need.RECORD_SHAPES,
        Record("CPU and device activity with shapes and stacks", Need.CPU_AND_DEVICE),
    ),
    parent="metric-on-cpu",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python generate.py" "python generate_fixed.py"',
)

# Logits over the tokens of the embedding: heads are padded to a multiple of 64 to 512, which is
# below a tenth of any vocabulary that is worth copying.
PADDED_RATIO = 1.1
_LOOK_UPS = ("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag")


def check(trace: Trace) -> Iterator[Found]:
    """Copies of logits to the host in inference steps."""
    if workload(trace).trains:
        return
    work = host_work_after_copy(trace, WaitReason.COPY_TO_HOST)
    if work is None or not _copies_logits(trace):
        return
    yield Found(
        summary=f"The next token is chosen on the host{work.where}, from copied logits",
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=work.dropped,
        location=work.place,
        fix="Sample on the device and copy only the tokens",
        hint="torch.multinomial(torch.softmax(logits, -1), 1)",
    )


def _copies_logits(trace: Trace) -> bool:
    """Whether rows over the tokens of an embedding are copied. Raises NotChecked: no shapes."""
    waits, host = host_waits(trace), trace.host_ops
    assert host is not None
    rows = waits.host_op[waits.rows(WaitReason.COPY_TO_HOST)]
    copied = _shapes(trace, rows[rows < len(host)])
    look_ups = rows_named(trace, host, _LOOK_UPS.__contains__) & rows_in_steps(trace, host)
    tables = _shapes(trace, np.flatnonzero(look_ups))
    if not copied or (look_ups.any() and not tables):
        raise NotChecked("the shapes of what is copied to the host are not recorded")
    lengths = {shape[0] for shape in tables if len(shape) == 2}
    widths = {shape[-1] for shape in copied if len(shape) in (2, 3)}
    return any(n <= width <= PADDED_RATIO * n for n in lengths for width in widths)


def _shapes(trace: Trace, rows: Rows) -> set[Shape]:
    """Shapes of the tensors that these rows of ``host_ops`` take."""
    host = trace.host_ops
    assert host is not None
    texts = {trace.text(host, "shapes", row) for row in np.unique(rows).tolist()}
    return {shape for text in texts if text for shape in tensor_shapes(text) if shape}
