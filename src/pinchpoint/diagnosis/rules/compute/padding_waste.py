"""Most of the work goes into padding.

## What it looks for
Which tokens are padding is not in a recording: it has the shapes of tensors, not their values. The
rule says so where batches of sequences go through attention at one common length, and is content
where sequences are packed, with their own lengths given to the kernel.

## Why it matters
A batch padded to the longest length computes as much for a short sequence as for the longest. The
device is busy all the time, so no utilisation shows it.

## How to fix it
Group sequences by length and pad to the longest of each batch; or pack several into one row, with
an attention that knows their borders (variable-length kernels, nested tensors).

## When to ignore it
Sequences of one length.
"""

from collections.abc import Iterator

from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=Record("how many tokens are real: log (mask.sum() / mask.numel()) for some batches"),
)

SHORTEST = 64  # of queries; decoding steps of one token have no padding to speak of

_PACKED_AT = {  # input that is only there for packed sequences: borders, or sequences' lengths
    "aten::_flash_attention_forward": 3,
    "aten::_efficient_attention_forward": 4,
    "aten::_cudnn_attention_forward": 4,
}


def check(trace: Trace) -> Iterator[Found]:
    """Never a finding: only the program knows which tokens are padding."""
    calls, inside = launched_calls(trace), device_ops_in_steps(trace)
    padded = calls.where(_may_be_padded) & inside
    if padded.any():
        raise NotChecked("a recording does not show which tokens are padding", fits=True)
    yield from ()


def _may_be_padded(of: LaunchedCall) -> bool:
    """Whether a call is attention over several sequences of one length."""
    query = of.call.shape(0)
    if "attention" not in of.call.name or query is None or len(query) != 4:
        return False
    packed = _PACKED_AT.get(of.call.name)
    if packed is not None and of.call.shape(packed) is not None:
        return False
    return query[0] > 1 and max(query[1:3]) >= SHORTEST
