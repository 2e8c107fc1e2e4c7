"""Text is split into tokens while the device waits.

## What it looks for
Tokenisers on the thread of the steps: the libraries that tokenise, and functions whose name says
that they do, inside the steps or inside a loader without workers.

## Why it matters
A tokeniser written in Python works through a few hundred thousand characters a second, on one
core, and the device has nothing to do meanwhile. A faster device changes nothing.

## How to fix it
Tokenise the data once, before training, and store the numbers; or tokenise in the loader's worker
processes; or use a compiled tokeniser on whole batches.

## When to ignore it
Short prompts in inference.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import InputWork, input_work
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.host_spans import host_spans, without
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, parent="dataloader-starved", periodic=True)


def check(trace: Trace) -> Iterator[Found]:
    """Tokenisers on the thread of the steps."""
    spans = host_spans(trace, input_work(trace) == InputWork.TOKENIZE, "tokenising")
    if spans is None:
        return
    yield Found(
        summary=(
            f"The training thread tokenises text{spans.where}, {spans.count:.3g} × and"
            f" {duration(spans.ns_per_step)} a step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Tokenise once before training, or in the loader's workers",
        hint="tokens = dataset.map(tokenize, batched=True)  # once, stored",
        confirm='pinchpoint bench ab -- "python train.py" "python train_tokenised.py"',
    )
