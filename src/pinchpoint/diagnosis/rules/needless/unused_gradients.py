"""The backward pass computes gradients that nobody uses.

## What it looks for
Gradients that each step adds to, while an optimizer steps and the gradients of its own parameters
are stored anew: `zero_grad` drops those of the optimizer's parameters, so what is added to in every
step belongs to no optimizer. Its work is what runs after the last gradient that is used, the
additions, and products whose result has the shape of unused gradients alone, with the part of a
convolution that is for its weights and the sums for biases. Where the first convolution of a
module's call makes no gradient of its input, and no weight in that call is used, the call's whole
backward pass is such work; half of what its caller does with the result may be, too. The shapes of
what the optimizer steps hold all that is stored anew and nothing else; where lists of tensors were
recorded without shapes, one optimizer has to step and to drop its gradients in each step. Three
steps are needed, of one process. Where all gradients are added to (several passes a step, gradients
set to zero in place) this is not checked. Gradients that the model's own `zero_grad` drops do not
show.

And weight gradients that an `autograd.Function` of the program computes though autograd drops them:
products in its node that add up over all rows of the gradient it was given, of a size that nothing
in the backward pass takes, neither a node nor a sum, or fewer times than it is made. PyTorch's own
nodes of the same passes drop nothing (else the program reads the gradients itself), autograd stores
some in each step, and no optimizer steps tensors of that size without being given them.

## Why it matters
The backward pass takes twice the time of the forward pass, and keeps its activations. Of a model
that is frozen, none of it is needed; of one of which a part is trained, only the way to that part.

## How to fix it
Switch gradients off for what is not trained: `module.requires_grad_(False)`. A frozen part that
nothing trained comes before can run under `torch.no_grad()`. In a function of your own ask
`ctx.needs_input_grad` before each gradient.

## When to ignore it
Where gradients are collected over more steps than were recorded, or read by code of your own.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.replay import ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.dropped_gradients import dropped_gradients
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.unused_gradients import NotTold, stepped_tensors, unused_gradients
from pinchpoint.diagnosis.evidence.device_work import device_work, without_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Gradients that grow from step to step, and those that autograd drops."""
    dropped = list(_dropped(trace))
    yield from dropped
    found, ops = unused_gradients(trace), trace.device_ops
    if isinstance(found, NotTold):
        if dropped:
            return
        raise NotChecked(found.why)
    if found is None or ops is None:
        return
    mine = np.zeros(len(ops), np.bool_)
    mine[found.device_rows] = True
    work = device_work(trace, mine, "device work for them alone")
    if work is None:
        return
    adds = launched_calls(trace).where(lambda of: of.call.name == "aten::add_")
    beside = device_work(trace, mine & ~adds, "other than additions")  # these have no line
    changes = (*without_work(trace, work.rows), ScaleHostSpans(found.host_rows, 0.0))
    all_of_them = found.per_step + found.used_per_step
    yield Found(
        summary=(
            f"{found.per_step} of {all_of_them} gradients are added up step after step, and no"
            f" optimizer uses or zeroes them: {duration(work.ns_per_step)} of each recorded step"
            + (f"{_WHOLE} of {_calls(found.calls)}" if found.calls else "")
        ),
        evidence=(
            Evidence("gradients that nobody uses", found.per_step, "per step"),
            Evidence("gradients that are used", found.used_per_step, "per step"),
            Evidence(
                "largest of the unused", max(map(elements, found.shapes), default=0), "elements"
            ),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=changes,
        at_best=(*changes, ScaleDeviceOps(found.beside_rows, HALF_RATIO)) if found.calls else (),
        location=beside.place if beside else work.place,
        fix="Switch gradients off for the parameters that no optimizer has",
        hint="model.encoder.requires_grad_(False)  # before the optimizer is made",
        confidence="high" if found.surely else "medium",
    )


# Of what a caller does with the results of two branches, one of which then needs no gradient.
HALF_RATIO = 0.5
_WHOLE = ", with the whole backward pass"


def _calls(count: int) -> str:
    what = "a module's call" if count == 1 else f"{count} modules' calls"
    return f"{what} whose input needs no gradient either"


def _dropped(trace: Trace) -> Iterator[Found]:
    """What functions of the program's own compute and no input needs."""
    found, ops = dropped_gradients(trace), trace.device_ops
    if found is None or ops is None:
        return
    stepped = stepped_tensors(trace)
    if not stepped.keys().isdisjoint(found.shapes):
        return  # an optimizer has them without autograd's help
    mine = np.zeros(len(ops), np.bool_)
    mine[found.device_rows] = True
    work = device_work(trace, mine, "device work for them alone")
    if work is None:
        return
    count = per_step(trace, found.products)
    yield Found(
        summary=(
            f"{found.node} computes {count:.3g} weight gradients a step that nothing in the"
            f" backward pass takes, and autograd drops them: {duration(work.ns_per_step)} of each"
            " recorded step"
        ),
        evidence=(
            Evidence("weight gradients that nothing takes", round(count, 2), "per step"),
            Evidence("largest of them", max(map(elements, found.shapes)), "elements"),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(*without_work(trace, work.rows), ScaleHostSpans(found.operators, 0.0)),
        location=work.place,
        fix="Compute in backward what ctx.needs_input_grad asks for, and no other gradient",
        hint="if ctx.needs_input_grad[1]: grad_weight = grad.flatten(0, -2).t() @ x.flatten(0, -2)",
        confidence="high" if stepped else "medium",
    )
