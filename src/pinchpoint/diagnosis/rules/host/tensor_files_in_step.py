"""Each step writes or reads files of tensors, or pickles tensors in memory.

## What it looks for
`torch.load`, and loads of distributed checkpoints, safetensors and orbax, inside the steps; and
saves of which each of two steps or more has several, such as a cache of one file for each
sample. A save now and then is a checkpoint: `checkpoint-stall`. Files that hold more than their
tensors are `whole-storage-saved`. Also `pickle.dumps` and `loads` of tensors in each step: pickle
makes an archive of each tensor's memory, as `torch.save` does. Without Python stacks no file shows.

## Why it matters
The thread that launches unpickles, copies and waits for the disk; the device gets nothing from it
meanwhile. A file of its own for each sample costs tens of microseconds more than its bytes do.

## How to fix it
Read in the workers of a loader, or a thread that is one batch ahead; keep what comes again in
memory; write from a thread. One file that is mapped (`torch.load(path, mmap=True)`, a
memory-mapped array, safetensors) holds many samples, and only what is used of it is read. A copy
in memory needs no pickle: copy into tensors that are kept (`kept.copy_(new)`).

## When to ignore it
Where the device has work queued for longer than the files take.
"""

from collections.abc import Iterator

from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, how_often, without
from pinchpoint.diagnosis.evidence.tensor_files import (
    loading,
    needs_stacks,
    pickling,
    saved_in_each_step,
)
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, periodic=True)


def check(trace: Trace) -> Iterator[Found]:
    """Reads and writes, each at its own line."""
    if trace.host_ops is None:
        return
    needs_stacks(trace)
    pickled = host_spans(trace, pickling(trace), "pickling tensors")
    if pickled is not None and len(pickled.rows) >= len(judged_steps(trace)):
        yield _found(trace, pickled, "pickles tensors, or takes them out again,", _PICKLE)
    read = host_spans(trace, loading(trace), "reading files of tensors")
    if read is not None:
        yield _found(trace, read, "reads files of tensors", _READ)
    written = saved_in_each_step(trace)
    if written is not None:
        yield _found(trace, written, "writes files of tensors", _WRITE)


def _found(trace: Trace, spans: HostSpans, does: str, fix: str) -> Found:
    return Found(
        summary=(
            f"The training thread {does}{spans.where}, {how_often(trace, spans)}, for"
            f" {duration(spans.ns_per_step)} of the mean recorded step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix=fix,
    )


_READ = "Read them a batch ahead in another thread or in loader workers, or keep them in memory"
_PICKLE = (
    "Copy into tensors that are kept (kept.copy_(new)), or hand the tensors on as they are: pickle"
    " makes an archive of the memory of each"
)
_WRITE = "Write them in another thread, or many samples to one file"
