"""Requests that could go through the model together go one by one.

## What it looks for
Inference steps in which the same sequence of operators with the same shapes, and a batch of one,
repeats several times, as independent requests do. Passes with a query of one token, or through a
recurrent cell, are the tokens or time steps of one sequence as well as of many: each may need the
one before, and whether it does is not recorded. What a batch wins is bounded by the work: requests
that fill the device take as long together.

## Why it matters
A forward pass of one request reads all weights and costs all launches for the work of one. Several
requests in one pass cost hardly more.

## How to fix it
Collect waiting requests for a few milliseconds and run them as a batch (dynamic or continuous
batching).

## When to ignore it
Where requests are rare, and latency of one is what counts.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import MergeDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.work.passes import repeated_passes
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops", "device_ops"),
    record=SHAPES,
    parent="launch-bound",
    knobs=("batch_size",),
    confirm='pinchpoint bench ab -- "python serve_one.py" "python serve_batched.py"',
)

# In one step; two or three are parts of one model, or models that check each other.
FEWEST_PASSES = 4
_CELLS = regex(r"aten::(_thnn_fused_)?(lstm|gru|rnn_tanh|rnn_relu)_cell")


def check(trace: Trace) -> Iterator[Found]:
    """Repeated passes with a batch of one."""
    work, host = workload(trace), trace.host_ops
    if work.trains or host is None:
        return
    if not work.leading_dims:
        raise NotChecked("no products with recorded shapes")
    passes = repeated_passes(trace)
    if passes is None or work.leading_dims[0] != 1 or passes.repeats < FEWEST_PASSES:
        return
    if work.decodes or _walks_a_sequence(trace):
        raise NotChecked(
            "the repeated passes may be of one sequence, each of which needs the one before",
            Record("the same with each request in a range of its own: record_function"),
        )
    first = int(passes.first_row)
    yield Found(
        summary=f"{passes.repeats} requests a step go through the model one by one, each alone",
        evidence=(
            Evidence("passes with the same shapes", passes.repeats, "per step"),
            Evidence(
                "batch of each",
                1,
                "requests",
                int(host["start_ns"][first]),
                trace.text(host, "name", first),
            ),
        ),
        cost_ns_per_step=None,
        changes=(
            ScaleHostSpans(passes.later_rows, 0.0),
            MergeDeviceOps(*passes.same_work(trace)),
        ),
        location=location_of(trace, first),
        fix="Run the waiting requests together as one batch",
    )


def _walks_a_sequence(trace: Trace) -> bool:
    """Whether the steps go through recurrent cells."""
    assert trace.host_ops is not None
    cells = named(trace, lambda name: _CELLS.match(name) is not None)
    return bool((cells & rows_in_steps(trace, trace.host_ops)).any())
