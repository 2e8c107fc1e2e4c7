"""Most of the work goes into padding.

## What it looks for
Which tokens are padding is not in a recording: it has the shapes of tensors, not their values. What
shows is that attention is handed a mask of keys for each sequence of a batch, so that some are
padded, and whether all steps have one common length, so that batches are not padded to the longest
of their own sequences. With both it is a finding, without a gain: how many tokens are real has to
be looked up. With a mask and several lengths it is left undecided, at one length without a mask not
checked. Sequences that are packed, with their own lengths given to the kernel, have none. Not
checked without shapes.

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

import numpy as np

from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=Record("how many tokens are real: log (mask.sum() / mask.numel()) for some batches"),
)

SHORTEST = 64  # of queries; decoding steps of one token have no padding to speak of
FEWEST_STEPS = 2  # batches that are padded to their own longest sequence differ in length
_MASK = 3  # input of all operators below that take one

_PACKED_AT = {  # input that is only there for packed sequences: borders, or sequences' lengths
    "aten::_flash_attention_forward": 3,
    "aten::_efficient_attention_forward": 4,
    "aten::_cudnn_attention_forward": 4,
}


def check(trace: Trace) -> Iterator[Found]:
    """Batches of one common length with a mask for each sequence."""
    host, calls = trace.host_ops, launched_calls(trace)
    if host is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs", SHAPES_OF_INPUTS)
    padded = calls.where(_may_be_padded) & device_ops_in_steps(trace)
    if not padded.any():
        return
    masked = calls.where(lambda of: _may_be_padded(of) and _masks_keys(of)) & padded
    sizes = {of.call.shape(0) for of in calls.calls if _may_be_padded(of)}
    work = device_work(trace, masked, "attention with a mask for each sequence")
    if work is None or len(sizes) > 1 or len(judged_steps(trace)) < FEWEST_STEPS:
        raise NotChecked(
            "a recording does not show which tokens are padding", fits=work is not None
        )
    yield _finding(trace, work, *sizes)


def _finding(trace: Trace, work: DeviceWork, queries: tuple[int, ...] | None) -> Found:
    assert trace.device_ops is not None
    assert queries is not None
    length, sequences = max(queries[1:3]), queries[0]
    all_work = device_work(trace, np.ones(len(trace.device_ops), np.bool_), "all device work")
    assert all_work is not None
    return Found(
        summary=(
            f"All steps have {sequences} sequences of {length} tokens, each with a mask of its own:"
            f" what is padded is computed and thrown away. The device works"
            f" {duration(all_work.ns_per_step)} a step on all of them; how many are real does not"
            " show"
        ),
        evidence=(
            Evidence("sequences", sequences, "count"),
            Evidence("tokens of each, padding included", length, "count"),
            *work.evidence,
        ),
        cost_ns_per_step=all_work.ns_per_step,
        location=work.place,
        fix="Pad to the longest of each batch, with sequences of like lengths in one batch, or pack"
        " them; first log how many tokens are real: mask.sum() / mask.numel()",
        hint='batch = tokenizer(texts, padding="longest")  # of texts sorted by length',
        consequence="the gain is the share of padded tokens, which only the program knows",
        confidence="low",
    )


def _masks_keys(of: LaunchedCall) -> bool:
    """Whether a call has a mask of its keys that differs between sequences, and not between
    heads."""
    mask, queries = of.call.shape(_MASK), of.call.shape(0)
    if mask is None or queries is None or len(mask) != 4:
        return False
    strides = of.stride(_MASK) or (1,) * 4
    return mask[0] == queries[0] and strides[0] != 0 and (mask[1] == 1 or strides[1] == 0)


def _may_be_padded(of: LaunchedCall) -> bool:
    """Whether a call is attention over several sequences of one length."""
    query = of.call.shape(0)
    if "attention" not in of.call.name or query is None or len(query) != 4:
        return False
    if "backward" in of.call.name:
        return False
    packed = _PACKED_AT.get(of.call.name)
    if packed is not None and of.call.shape(packed) is not None:
        return False
    return query[0] > 1 and max(query[1:3]) >= SHORTEST
