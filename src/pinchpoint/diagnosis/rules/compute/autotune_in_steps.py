"""Kernels are tuned anew in the steps, not once.

## What it looks for
Searches for the fastest of several kernels: candidates, by name, grid, threads and registers, that
are launched several times in a row each, every time with an event recorded right before and right
after; and then one of them without events, after which the program goes on. In two recorded steps
at least, after the first one. That the program goes on with one of them is what tells a tuner from
a benchmark. Of grids that the recording has, it says whether a search comes with one that was there
before: then what was found is not kept. A search of cuDNN inside of convolutions is
`cudnn-autotune-churn`; compilation for new shapes, `recompiles`.

## Why it matters
A tuner runs each candidate for milliseconds, with a synchronisation and an overwritten cache: some
tens of milliseconds for a kernel of microseconds. It pays for a key that comes again. A length or
a number of rows in the key of `triton.autotune` is new in nearly each request.

## How to fix it
Take out of the key what the best configuration does not depend on, or round it up to a few values
(the next power of two) and hand that over as an argument of its own. Keep the tuned function; made
anew, it knows nothing. `cache_results=True` keeps results on disk, for the next run. Of
`torch.compile`, leave `max-autotune` out where shapes change, or mark them as dynamic.

## When to ignore it
In the first minutes of a run whose keys come again.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil

import numpy as np

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.replay import DropDeviceOps, DropSyncs, RemoveHostTime
from pinchpoint.analysis.replay.least_step import device_ns
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.searches import Search, searches
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, MORE_STEPS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    periodic=True,
    removes_host_work=True,
    advice=NO_HINT,
)

# What a search wins beyond its time: the host runs ahead of the device again. triton's do_bench
# took 44 ms as recorded, and a step was 60 shorter without it, the only one that was measured.
MOST_RATIO = 1.5
FEWEST_STEPS = 2  # after the first recorded one: what is tuned once comes in one of them


def check(trace: Trace) -> Iterator[Found]:
    """All searches of the judged steps, as one finding."""
    every = searches(trace)
    if not every:
        return
    if len(steps(trace).number) <= FEWEST_STEPS or not len(judged_steps(trace)):
        raise NotChecked("in so few steps, tuning once looks as if it were each time", MORE_STEPS)
    number = judged_steps(trace).step_of(np.array([one.start_ns for one in every]))
    mine = [one for one, step in zip(every, number.tolist(), strict=True) if step >= 0]
    first = judged_steps(trace).step_of(steps(trace).host_start_ns[:1])  # -1: it is not complete
    if len(set(number.tolist()) - {-1, int(first[0])}) >= FEWEST_STEPS:
        yield _finding(trace, mine)


def _finding(trace: Trace, found: list[Search]) -> Found:
    calls, ops = trace.api_calls, trace.device_ops
    assert calls is not None
    assert ops is not None
    took = np.array([one.end_ns - one.start_ns for one in found], np.int64)
    spent, times = round(per_step(trace, int(took.sum()))), per_step(trace, len(found))
    place, _ = busiest_place(trace, np.array([one.used_by for one in found], np.intp), took)
    inside = np.unique(np.concatenate([one.api_calls for one in found]))
    waits = inside[
        np.isin(
            calls["kind"][inside],
            (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT),
        )
    ]
    gone = np.flatnonzero(np.isin(ops.filled("api_call", -1), inside))
    # Tuners repeat for a set time by their events, and estimate how often in turns that recording
    # makes no shorter: a search takes no less than the device's work for as many turns.
    least = min(round(per_step(trace, int(ops["duration_ns"][gone].sum()))), spent)
    kernel = Counter(one.kernel for one in found).most_common(1)[0][0]
    timed, many = sum(one.timed for one in found), max(one.candidates for one in found)
    again = _known_before(found)
    return Found(
        summary=(
            f"The fastest of {many} configurations of"
            f" {short_kernel_name(trace.names[kernel])} is searched for {times:.2g} × a step"
            f"{f' in {place}' if place else ''}, {duration(spent)} of each recorded one"
            f" for {per_step(trace, timed):,.0f} launches that are timed{_said(again, len(found))}"
        ),
        evidence=(
            Evidence("searches", round(times, 2), "per step"),
            Evidence("of one", round(float(np.median(took))), "ns"),
            Evidence("launches that are timed", round(per_step(trace, timed), 1), "per step"),
            *(
                ()
                if again is None
                else (Evidence("with a grid that was searched for before", again, "searches"),)
            ),
        ),
        cost_ns_per_step=spent,
        changes=(
            DropSyncs(waits),
            DropDeviceOps(gone),
            RemoveHostTime(
                np.array([one.start_ns for one in found]), np.array([one.end_ns for one in found])
            ),
        ),
        saving_ns_per_step=(least, round(MOST_RATIO * spent)),
        likely_saving_ns=spent,
        leaves_ns_per_step=ceil(device_ns(trace, (DropDeviceOps(gone),))),
        location=place,
        fix=_NOT_KEPT if again is not None and 2 * again >= len(found) else _NEW_KEYS,
    )


_NEW_KEYS = (
    "Take what changes from call to call (a length, a number of rows) out of the key that it is"
    " tuned for, or round it up to a few values"
)
_NOT_KEPT = "Keep the tuned function, and make it once: what one search found, the next cannot know"


def _known_before(found: list[Search]) -> int | None:
    """Searches for a kernel with a grid that it had been searched with before; None: not known."""
    if any(one.grid < 0 for one in found):
        return None
    return len(found) - len({(one.kernel, one.grid) for one in found})


def _said(again: int | None, of: int) -> str:
    if again is None:
        return ""
    if not again:
        return "; each search is for a grid that none before was for"
    return f"; {again} of {of} searches are for a grid that one before was for"
