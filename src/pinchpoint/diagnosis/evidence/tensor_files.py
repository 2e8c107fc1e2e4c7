"""Files of tensors that steps write and read: which are which, and whether each step has them."""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, subtree_sums, within_rows
from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, named, outermost
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.regex import regex
from pinchpoint.trace import RunSamples, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.run_samples import TensorFiles

_LOADS = regex(r"load\w*$|/state_dict_loader\.py|_reader\b")
# A checkpoint comes now and then, not in two steps one after the other.
FEWEST_STEPS = 2
LEAST_A_STEP = 2  # a single file at the end of every step may be one


# What pickle calls of a tensor's memory: an archive of its own in memory, and no file.
_PICKLED = regex(r"^torch/storage\.py\(\d+\): (__reduce__|_load_from_bytes)$")
_PICKLES = regex(r"^<built-in (function|method) (dumps?|loads?)\b")


def pickling(trace: Trace) -> Mask:
    """Outermost rows of ``host_ops`` that pickle tensors or take them out again, in memory."""
    host = trace.host_ops
    assert host is not None
    mine = named(trace, lambda name: _PICKLED.search(name) is not None)
    if not mine.any():
        return mine
    chain = parents(host)
    pickles = named(trace, lambda name: _PICKLES.search(name) is not None)
    holds = np.append(subtree_sums(chain, mine.astype(np.int64)), 0)[: len(host)] > 0
    return outermost(trace, mine | (pickles & holds))


def loading(trace: Trace) -> Mask:
    """Outermost rows of ``host_ops`` that read files of tensors."""
    return _outermost(trace) & named(trace, lambda name: _LOADS.search(name) is not None)


def saving(trace: Trace) -> Mask:
    """Outermost rows that write them, be it a checkpoint or something else."""
    return _outermost(trace) & ~named(trace, lambda name: _LOADS.search(name) is not None)


def _outermost(trace: Trace) -> Mask:
    host = trace.host_ops
    assert host is not None
    files = outermost(trace, activity(trace)[: len(host)] == GapKind.CHECKPOINT)
    pickled = pickling(trace)
    if not pickled.any():
        return files
    inside = within_rows(parents(host), np.flatnonzero(pickled))[: len(host)]
    found: Mask = files & ~inside
    return found


def in_each_step(trace: Trace, spans: HostSpans) -> bool:
    """Whether each of the judged steps has several: work of the step, and no checkpoint."""
    host, windows = trace.host_ops, judged_steps(trace)
    assert host is not None
    if len(windows) < FEWEST_STEPS:
        return False
    step = windows.step_of(host["start_ns"][spans.rows])
    counts = np.bincount(step[step >= 0], minlength=len(windows))
    return bool(counts.min() >= LEAST_A_STEP)


def saved_in_each_step(trace: Trace) -> HostSpans | None:
    """Files that each step writes; None where steps write none, or only some of them do."""
    spans = host_spans(trace, saving(trace), "writing files of tensors")
    return spans if spans is not None and in_each_step(trace, spans) else None


def files_of(trace: Trace, kind: str) -> tuple[TensorFiles, ...]:
    """What the run saw of its calls of ``torch.save`` or ``torch.load``, most time first."""
    samples: RunSamples | None = trace.run.samples if trace.run else None
    return () if samples is None else tuple(f for f in samples.tensor_files if f.kind == kind)


def needs_stacks(trace: Trace) -> None:
    """Raise NotChecked where the run handled such files, and this window cannot show whose."""
    if not shows_python(trace) and (files_of(trace, "save") or files_of(trace, "load")):
        raise NotChecked("the recording has no Python stacks", STACKS)
