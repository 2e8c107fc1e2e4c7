"""On a CPU, the backward pass runs through frozen layers for gradients that nobody uses.

## What it looks for
A quarter of the backward pass or more in which no gradient is stored, and whose layers make one
product in their nodes, for their input, where one with trained weights makes two; and gradients
that are stored behind it of which no optimizer of the recording steps a tensor: of some of their
shapes none at all, of others no more than were stored before. Where the optimizer steps such
tensors, or which ones it steps was not recorded, they may be what is trained (a prompt, a table):
then that is said as undecided. Adapters in each layer leave no such stretch, and a cell that is
called again and again makes both products.

## Why it matters
Freezing layers spares their own gradients. What is trained below them, or was left out when they
were frozen, still needs the way down: as much work as the forward pass, and all of its activations.

## How to fix it
Freeze what lies below as well: a whole module with `requires_grad_(False)`, not parameters by the
beginning of their names. Then nothing of the frozen part is recorded for a backward pass.

## When to ignore it
Where code of your own reads these gradients.
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.work.frozen_layers import FrozenLayers, frozen_layers
from pinchpoint.analysis.work.unused_gradients import stepped_tensors
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS, Need, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_OF_INPUTS, confirm=ANY_PROGRAM)

MOST_NAMED = 3  # modules in a sentence


def check(trace: Trace) -> Iterator[Found | Small]:
    """The backward pass behind the last gradient that is used."""
    mine, frozen = judged(trace), frozen_layers(trace)
    if mine is None or frozen is None:
        return
    gone = np.zeros(len(mine), np.bool_)
    gone[frozen.rows] = True
    spans = host_spans(trace, gone, "backward pass from the frozen layers on")
    if spans is None:
        return
    known = _nobody_steps(trace, frozen)
    if small := too_small(trace, spans):
        if known:
            yield small
        return
    count = frozen.behind.total()
    names = ", ".join(frozen.modules[:MOST_NAMED])
    more = " and others" if len(frozen.modules) > MOST_NAMED else ""
    largest = max(filter(None, frozen.behind), key=elements, default=())
    size = " × ".join(map(str, largest))
    sake = f"{count} gradient{'s, the largest' if count > 1 else ' of'} {size}"
    sake += f" (of {names}{more})" if names else ""
    said = f"{frozen.layers} layers that get no gradient of their own for the sake of {sake}"
    if not known:
        raise NotChecked(
            f"{duration(spans.ns_per_step)} of the step are a backward pass through {said}: whether"
            " these are meant to be trained does not show",
            Record("which parameters require a gradient and which are meant to", Need.ANOTHER),
            fits=True,
        )
    yield Found(
        summary=(
            f"The backward pass runs through {said}, which no optimizer steps:"
            f" {duration(spans.ns_per_step)} of each recorded step"
        ),
        evidence=(
            *spans.evidence,
            Evidence("layers without a gradient of their own", frozen.layers, "per step"),
            Evidence("gradients behind them", count, "per step"),
            Evidence("gradients before them", frozen.before.total(), "per step"),
            *((Evidence("modules of the gradients behind", names + more, ""),) if names else ()),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(frozen.rows, 0.0),),
        location=replace(spans.place, module=None) if spans.place else None,
        fix="Switch gradients off for what lies below the frozen layers, too",
        hint="model.encoder.requires_grad_(False)  # the whole module, its embeddings included",
        confidence="high",
    )


def _nobody_steps(trace: Trace, frozen: FrozenLayers) -> bool:
    """Whether the gradients behind are none of the optimizer's, by the shapes of what it steps."""
    stepped = stepped_tensors(trace)
    if not stepped or any(shape not in stepped for shape in frozen.before):
        return False  # not all that it steps was recorded
    enough = all(stepped.get(s, 0) <= frozen.before[s] for s in frozen.behind)
    return enough and any(shape not in stepped for shape in frozen.behind)
