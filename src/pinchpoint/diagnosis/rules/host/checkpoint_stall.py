"""Training waits for a checkpoint to be written.

## What it looks for
`torch.save`, distributed checkpoint, safetensors and orbax calls inside the steps: copies of the
state to the host, then file writes, on the thread that launches. Several files in each step are no
checkpoint, nor is reading: those are `tensor-files-in-step`. Writing of other files is
`heavy-logging`. Without Python stacks no save shows. One that is rarer than the recorded steps
shows in none of them; the samples that `pinchpoint run` takes of the whole run tell how often, how
long and where.

## Why it matters
Nothing is launched until the last byte is written. The step that saves is many times longer than
the others, and the mean suffers by that divided by the interval.

## How to fix it
Save asynchronously (`torch.distributed.checkpoint.async_save`, or copy to pinned memory and write
in a thread), or less often.

## When to ignore it
Where checkpoints are so rare that the mean step does not feel them.
"""

from collections.abc import Iterator

from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often, without
from pinchpoint.diagnosis.evidence.rare import rare_and_small, rare_found
from pinchpoint.diagnosis.evidence.tensor_files import in_each_step, saving
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import STACKS_OVER_A_SAVE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS_OVER_A_SAVE,
    periodic=True,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_async_save.py"',
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Saves inside the steps; rare ones by the samples of the whole run."""
    rare = tuple(rare_found(trace, (GapKind.CHECKPOINT,), fix=_FIX, hint=_HINT))
    if rare:
        yield from rare
        return
    yield from rare_and_small(trace, (GapKind.CHECKPOINT,))
    host = trace.host_ops
    if host is None:
        return
    spans = host_spans(trace, saving(trace), "saving a checkpoint")
    if spans is None or in_each_step(trace, spans):
        return
    yield Found(
        summary=(
            f"The training thread writes a checkpoint{spans.where}, {how_often(trace, spans)},"
            f" for {duration(spans.ns_per_step)} of the mean recorded step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix=_FIX,
        hint=_HINT,
    )


_FIX = "Save asynchronously, or less often"
_HINT = "torch.distributed.checkpoint.async_save(state, checkpoint_id=path)"
