"""Logs, histograms or pictures are written too often.

## What it looks for
File and image writers, loggers and experiment trackers inside the steps; and the program's own
functions that spend most of their time in them, in copying to the host and in numeric packages on
the CPU, as a function does that makes histograms of all weights.

## Why it matters
The thread that launches is busy with encoding and writing. The device has nothing to do.

## How to fix it
Write every few hundred steps, keep sums on the device in between, and hand the writing to a thread
or process.

## When to ignore it
Where logging happens at rare steps.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ancestry import nearest, parents
from pinchpoint.analysis.called_rows import called_by_program
from pinchpoint.analysis.frames import Owner, frame_of, owners
from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.host_activity import activity
from pinchpoint.diagnosis.host_spans import host_spans, without
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Table, Trace

NEEDS = ("host_ops",)
RECORD = "Python stacks: with_stack=True"
PERIODIC = True

MOSTLY_RATIO = 0.6  # a function that spends this much of its time on logging is a logging function
LOGGING_RATIO = 0.2  # and this much in writers themselves
_NUMERIC = ("numpy/", "pandas/", "PIL/", "matplotlib/", "scipy/")

Mask = NDArray[np.bool_]


def check(trace: Trace) -> Iterator[Finding]:
    """Writers and the functions around them."""
    host = trace.host_ops
    if host is None:
        return
    writing = activity(trace)[: len(host)] == GapKind.LOGGING
    if not writing.any():
        return
    spans = host_spans(trace, writing | _functions(trace, host, writing), "logging and writing")
    if spans is None:
        return
    yield Finding(
        summary=(
            f"The training thread writes logs or pictures{spans.where},"
            f" {spans.ns_per_step / 1e6:.1f} ms of each step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Write every few hundred steps, or in another thread",
        hint="if step % 500 == 0: log(...)",
        confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
    )


def _functions(trace: Trace, host: Table, writing: Mask) -> Mask:
    """The program's functions that do little but write, copy to the host and compute on it."""
    none = len(host)
    chain = parents(host)
    user = owners(trace) == Owner.USER
    around = nearest(chain, user)
    act = called_by_program(trace)[:none]
    outer = np.flatnonzero(act == np.arange(none))  # whole acts, called by a function
    owner = around[outer]
    closed = (owner < none) & ~_contains(chain, outer, user)  # runs none of the program's code
    inside, owner = outer[closed], owner[closed]
    helping = _numeric(trace)[host["name"]] | writing
    kept = helping | _copies_to_host(trace, host)
    total, logged = np.zeros((2, none + 1))
    spent = host["duration_ns"][inside].astype(float)
    counts = _contains(chain, inside, kept)
    np.add.at(total, owner, np.where(counts, spent, 0.0))
    np.add.at(logged, owner, np.where(_contains(chain, inside, writing), spent, 0.0))
    share = total[:none] / np.maximum(host["duration_ns"], 1)
    written = logged[:none] / np.maximum(host["duration_ns"], 1)
    result: Mask = user & (share >= MOSTLY_RATIO) & (written >= LOGGING_RATIO)
    return result


def _contains(chain: NDArray[np.int64], rows: NDArray[np.intp], wanted: Mask) -> Mask:
    """Whether each of the rows is or encloses a wanted row."""
    none = len(chain)
    holds = np.append(wanted, False)
    marked = np.flatnonzero(wanted)
    while len(marked):
        above = chain[marked]
        above = np.unique(above[above < none])
        marked = above[~holds[above]]
        holds[marked] = True
    result: Mask = holds[rows]
    return result


def _numeric(trace: Trace) -> Mask:
    frames = (frame_of(n) for n in trace.names)
    numeric = [f is not None and f.file.startswith(_NUMERIC) for f in frames]
    spelt = [" of numpy." in n or "of ImagingEncoder" in n for n in trace.names]
    return np.array(numeric, np.bool_) | np.array(spelt, np.bool_)


def _copies_to_host(trace: Trace, host: Table) -> Mask:
    names = ("cpu of Tensor", "numpy of Tensor", "aten::_to_copy", "aten::copy_")
    return np.array([any(w in n for w in names) for n in trace.names], np.bool_)[host["name"]]
