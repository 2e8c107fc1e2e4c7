"""Gradients are computed, stored, and dropped before anything reads them.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them. Autograd stores a gradient for each parameter that asks for one, anew or added to what is
there. Named is what four steps in turn compute for stored gradients that no operation reads, and no
optimizer has as it begins its step, before they are dropped or set to zero; of a convolution's
backward pass that is half, where the other gradient is needed. The place is the outermost line of
the forward pass all of whose gradients end so. Gradients that are clipped, logged, kept or
collected for a later step are read, and so is what is there when the watch ends. Nothing is said
where no gradient is seen to be read, where kernels wrote memory that no operation was seen to
write, or where threads beside those of the steps launch what may read them.

## Why it matters
A backward pass takes twice what its forward pass does. In a step with two models and two optimizers
each pass goes through both: the fakes of a discriminator's step lead back through the generator,
whose gradients the next `zero_grad` drops.

## How to fix it
Cut the way back: `detach()` what another model gave, or compute it under `torch.no_grad()`. Where
gradients pass through a model on their way to another one, `requires_grad_(False)` spares its own
parameters meanwhile; `loss.backward(inputs=...)` names those that are wanted.

## When to ignore it
Where they are read in other steps than those that were watched, such as every hundredth.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.vain_work import vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """All work for such gradients together: one cut of the way back spares it."""
    values = watched(trace)
    notes = () if values is None else values.work or ()
    told = [
        rows
        for work in notes
        if work.kind == "gradients"
        and (rows := vain(trace, work, beside_modules=False)) is not None
    ]
    if not told:
        return
    work, place = told[0].work, told[0].place
    left = [1 - rows.work.left_ratio for rows in told]
    device_ns = round(sum(r.device_ns * share for r, share in zip(told, left, strict=True)))
    host_ns = sum(rows.host_ns for rows in told if not rows.work.left_ratio)
    where = f" of what {place} computes" if place else ""
    device = f"{duration(device_ns)} of the device's time, " if device_ns else ""
    longest = max(told, key=lambda rows: rows.device_ns or rows.host_ns)
    yield Found(
        summary=(
            f"{work.gradients} gradients a step{where} are dropped before anything reads them,"
            f" mostly by {longest.longest}: {device}{duration(host_ns)} of the host's as recorded"
        ),
        evidence=(
            Evidence("gradients that nobody reads", work.gradients, "per step"),
            Evidence("operations for them", sum(rows.work.times for rows in told), "per step"),
            Evidence("host time", host_ns, "ns per step"),
            Evidence("device time", device_ns, "ns per step"),
            Evidence("mostly in", longest.longest, "words"),
        ),
        cost_ns_per_step=max(device_ns, host_ns),
        changes=tuple(change for rows in told for change in rows.changes(trace)),
        location=place,
        fix="Cut the way back there, or ask for no gradients of these parameters in this pass",
        hint="fake = generator(z).detach()  # or under torch.no_grad(); or requires_grad_(False)",
        confidence="high",
    )
