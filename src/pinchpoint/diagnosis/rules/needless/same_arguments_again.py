"""A function of the program computes again what it has computed before, on the host.

## What it looks for
Functions that hold a twentieth of the step or more, of the program or of a library that it calls.
`pinchpoint run` listens to their calls for up to six steps: checksums of what they are given and of
what they answer. Told is the outermost one most of whose calls were given what an earlier call was,
if all of these answered the same: what draws at random, or reads something that changes, does not.
Numbers, text, containers, arrays and tensors on the CPU are compared by what they hold, other
objects by which one it is. A function that changes its arguments, gives one of them back, or
answers nothing or next to nothing is left alone: it may be called for what it does. So is a loop in
which nothing is seen to be new: it measures something.

## Why it matters
A cache whose key never matches, a table that is rebuilt in each call, a file that is read in each
step: the work is real, so that the host looks busy, and the answer is known.

## How to fix it
Keep what it answers: `functools.lru_cache` on the function, a dict, or a variable before the loop.
Copy it where it is written to. The range is from what was new in these steps to nothing.

## When to ignore it
Where what it depends on changes, more seldom than every few steps, and cannot be part of a key;
where it is called for something else that it does.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.what_if import step_base_ns, what_if_mean
from pinchpoint.analysis.replay import Change, DropDeviceOps, RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, rows_in_steps
from pinchpoint.diagnosis.evidence.heard import (
    caller_of,
    heard_calls,
    outermost_again,
    something_is_new,
    takes_ns,
)
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.run_samples import HeardCalls, HeardFunction

RULE = Rule(needs=("host_ops",), record=STACKS, removes_host_work=True)

LEAST_RATIO = 0.05  # of the step: half of it is what two runs differ by
# A decorated function begins with its decorators, and is recorded at one of these lines.
MOST_DECORATORS = 10


def check(trace: Trace) -> Iterator[Found | Small]:
    """The outermost functions, most time first."""
    heard, base_ns = heard_calls(trace), step_base_ns(trace)
    if heard is None or not base_ns:
        return
    if heard.why and not heard.functions:
        raise NotChecked(f"calls of its functions were not listened to: {heard.why}")
    if not something_is_new(heard):
        return
    for one in sorted(outermost_again(heard), key=lambda one: -one.ns):
        ratio = (1 - one.new_ratio) * takes_ns(trace, one) / base_ns
        if ratio < LEAST_RATIO:
            yield Small(ratio, LEAST_RATIO)
        else:
            yield _found(trace, heard, one)


def _found(trace: Trace, heard: HeardCalls, one: HeardFunction) -> Found:
    frame, caller = frame_of(one.frame), caller_of(one)
    rows = _rows(trace, frame)
    if not len(rows) and trace.run and trace.run.named:
        raise NotChecked("what its functions take is in the recording with stacks")
    changes, at_best = _changes(trace, one, rows)
    takes = takes_ns(trace, one)
    won_ns, alone = round(takes * (1 - one.new_ratio)), computes_on_cpu(trace)
    place = caller or frame
    where = None if place is None else Location(place.file, place.line, place.function)
    often = f"{one.calls} × a step" if one.calls > 1 else "in each step"
    own = frame is not None and frame.owner is Owner.USER
    return Found(
        summary=(
            f"{_said(frame, one)} is called {often} from {where} and takes"
            f" {duration(takes)} of a step, for answers that are known:"
            f" {_alike(heard, one)}"
        ),
        evidence=(
            Evidence("calls compared", one.told, "count"),
            Evidence("of these with an input of their own", one.distinct, "count"),
            Evidence("steps that were listened to", heard.steps, "count"),
            Evidence("time in these calls", takes, "ns per step"),
            Evidence("numbers in its largest answer", one.numbers, "count"),
        ),
        cost_ns_per_step=takes,
        changes=changes,
        at_best=at_best,
        # Beside a device it is not known how much of the host's time a step waits for.
        saving_ns_per_step=None if changes else (won_ns // 2 if alone else 0, won_ns),
        likely_saving_ns=won_ns if alone and not changes else None,
        location=where,
        fix=(
            "Keep what it answers as long as it is given the same: once before the loop, or by"
            " what it is given"
        ),
        hint=_HINT if own else _HINT_OF_A_LIBRARY.format(frame.function if frame else "function"),
        confidence="medium" if one.unread else "high",
    )


_HINT = "@functools.lru_cache(maxsize=None)  # or a dict; copy an answer that is written to"
_HINT_OF_A_LIBRARY = "kept = {}(...)  # once; copy it where it is written to"


def _alike(heard: HeardCalls, one: HeardFunction) -> str:
    """What was compared, over how many steps."""
    each = "the same input" if one.distinct == 1 else f"{one.distinct} different inputs"
    new = "" if one.distinct == 1 else ", the same ones in each step"
    if one.new_ratio:
        new = f", {100 * one.new_ratio:.0f} % of them new after the first step"
    unread = ", as far as they do not lie on the device" if one.unread else ""
    answers = "answer" if one.distinct == 1 else "answer each"
    return (
        f"{one.told} calls in {heard.steps} steps had {each}{new}{unread}, and always the same"
        f" {answers}"
    )


def _said(frame: PythonFrame | None, one: HeardFunction) -> str:
    return one.frame if frame is None else f"{frame.function} ({frame.file}:{frame.line})"


def _rows(trace: Trace, frame: PythonFrame | None) -> Rows:
    """Its calls in the recorded steps."""
    host = trace.host_ops
    assert host is not None
    if frame is None:
        return np.zeros(0, np.intp)

    def is_mine(name: str) -> bool:
        at = frame_of(name)
        alike = at is not None and (at.file, at.function) == (frame.file, frame.function)
        return alike and at is not None and 0 <= at.line - frame.line <= MOST_DECORATORS

    mine = rows_named(trace, host, is_mine) & (host["kind"] == HostKind.PYTHON)
    return np.flatnonzero(outermost(trace, mine) & rows_in_steps(trace, host))


def _changes(
    trace: Trace, one: HeardFunction, rows: Rows
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """What a fix changes, surely and at best; of a program on a CPU as long as it was heard."""
    if not len(rows):
        return (), ()
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    dropped: tuple[Change, ...] = ()
    if ops is not None and len(ops):
        inside = np.append(within_rows(parents(host), rows), False)
        inside = inside[np.append(forward_rows(trace), -1)]
        work = np.flatnonzero(inside[ops.filled("host_op", len(host))] & device_ops_in_steps(trace))
        dropped = (DropDeviceOps(work),) if len(work) else ()
    kept = one.new_ratio
    sure: tuple[Change, ...] = (ScaleHostSpans(rows, kept), *(dropped if not kept else ()))
    best: tuple[Change, ...] = (ScaleHostSpans(rows, 0.0), *dropped) if kept else ()
    after = what_if_mean(trace, sure) if computes_on_cpu(trace) else None
    if after is None:
        return sure, best
    heard_ns = round(takes_ns(trace, one) * (1 - kept))
    if heard_ns > after.saving_ns:
        none = np.zeros(0, np.int64)
        return sure, (*(best or sure), RemoveHostTime(none, none, heard_ns - after.saving_ns))
    factor = 1 - (1 - kept) * heard_ns / max(after.saving_ns, 1)
    return (ScaleHostSpans(rows, factor), *dropped), ()
