"""Requests that could go through the model together go one by one.

## What it looks for
Inference steps in which the same sequence of operators with the same shapes, and a batch of one,
repeats several times, as independent requests do. Passes with a query of one token, or through a
recurrent cell, are the tokens or time steps of one sequence as well as of many: each may need the
one before, and whether it does is not recorded. What a batch wins is bounded by the work: requests
that fill the device take as long together. Of a program on CPUs it is undecided where passes have a
batch of one and spend most of their time in operators on tensors so small that calling one takes as
long as what it does: whether more requests wait does not show.

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

from pinchpoint.analysis.host.on_cpu import (
    GRAIN_ELEMENTS,
    computes_on_cpu,
    cpu_operators,
    first_elements,
)
from pinchpoint.analysis.replay import MergeDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.work.passes import repeated_passes
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, SHAPES, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops",),
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
    alone = computes_on_cpu(trace)
    if not alone and trace.device_ops is None:
        raise NotChecked("no device activity was recorded", CPU_AND_DEVICE)
    if not work.leading_dims:
        raise NotChecked("no products with recorded shapes")
    if alone:
        _on_cpus(trace)
        return
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


def _on_cpus(trace: Trace) -> None:
    """Says that it is undecided where passes are of one row and their operators small."""
    work, host = workload(trace), trace.host_ops
    assert host is not None
    if work.leading_dims[0] != 1 or work.decodes or _walks_a_sequence(trace):
        return
    own, size = cpu_operators(trace), first_elements(trace)
    mine = own.operator & (size >= 0) & rows_in_steps(trace, host)
    small = mine & (size < GRAIN_ELEMENTS)
    ratio = own.own_ns[small].sum() / max(own.own_ns[mine].sum(), 1)
    if ratio >= MOSTLY_SMALL_RATIO:
        raise NotChecked(
            "each pass has a batch of one, and"
            f" {100 * ratio:.0f} % of its time are in operators on tensors of less than"
            f" {GRAIN_ELEMENTS:,} elements, where calling one takes as long as what it does:"
            " whether more requests wait, which could go together, does not show",
            Record("the same with 32 requests in one pass: pinchpoint run"),
            fits=True,
        )


MOSTLY_SMALL_RATIO = 0.5  # of the time in operators with known inputs: the most of it


def _walks_a_sequence(trace: Trace) -> bool:
    """Whether the steps go through recurrent cells."""
    assert trace.host_ops is not None
    cells = named(trace, lambda name: _CELLS.match(name) is not None)
    return bool((cells & rows_in_steps(trace, trace.host_ops)).any())
