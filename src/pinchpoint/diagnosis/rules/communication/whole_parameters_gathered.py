"""Sharded tensors are put together again in each step, outside of the passes through the model.

## What it looks for
In each second step or more often, and outside of the model's modules and of the backward pass:
`full_tensor()` of distributed tensors, `summon_full_params` of FSDP, and a whole `state_dict` by
`torch.distributed.checkpoint`, as Python stacks show them. Their whole time counts, waits and
copies included, from 3 % of the step on. Without Python stacks it is not checked. What the model
gathers for a pass, and an output that is put together once, is no such thing.

## Why it matters
A model is sharded so that no rank has to hold or send all of it. A moving average of the weights, a
norm, a check or a log of whole parameters sends all of them to all ranks in each step, one tensor
after the other, and mostly one rank uses them.

## How to fix it
Work on what each rank has: `p.to_local()` is its part of a parameter. An average of parts is that
part of the average; a sum or a norm of parts needs one number of each rank. Gather whole tensors
where they are written or evaluated.

## When to ignore it
Where a step is rare and whole parameters are what it is for.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often, without
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="host-waits",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

_GATHERS = regex(
    r"^torch/distributed/(tensor/_api|_tensor/api)\.py\(\d+\): full_tensor$"
    r"|^torch/distributed/fsdp/.*\.py\(\d+\): (summon_full_params|_unshard_params_for_summon)$"
    r"|^torch/distributed/checkpoint/state_dict\.py\(\d+\): get_(model_|optimizer_)?state_dict$"
)
# Of the model's passes: what is put together there is its input or its output.
_PASSES = regex(r"^(autograd::engine::evaluate_function|nn\.Module: )")
EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is a checkpoint, and wanted
LEAST_TENSORS = 3  # a step: one or two are a loss or an output that is read


def check(trace: Trace) -> Iterator[Found]:
    """Tensors that are put together in the steps."""
    host = trace.host_ops
    if host is None or not len(judged_steps(trace)):
        return
    chain = parents(host)
    passes = rows_named(trace, host, lambda name: bool(_PASSES.search(name)))
    passes |= host["kind"] == HostKind.MODULE
    gathers = rows_named(trace, host, lambda name: bool(_GATHERS.search(name)))
    gathers &= (host["thread"] == steps(trace).thread) & ~within(chain, passes)[:-1]
    spans = host_spans(trace, gathers, "whole tensors put together, waits included")
    if spans is None or spans.count < EACH_STEP_RATIO:
        return
    whole_state = "state_dict" in (spans.longest or "") or "summon" in (spans.longest or "")
    if spans.count < LEAST_TENSORS and not whole_state:
        return
    name = (spans.longest or "").rpartition(": ")[2]
    yield Found(
        summary=(
            f"Sharded tensors are put together by {name}{spans.where}, {how_often(trace, spans)},"
            f" for {duration(spans.ns_per_step)} of each recorded step, waits included: all ranks"
            " send all of them each other"
        ),
        evidence=(*spans.evidence, Evidence("put together by", name, "name")),
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Do it on each rank's own part (p.to_local()): the average of parts is that part of the"
        " average, and a norm needs one number a rank; gather whole tensors where they are written",
        hint="average.lerp_(p.to_local(), 1 - decay)  # in place of p.full_tensor()",
        confidence="medium",
    )
