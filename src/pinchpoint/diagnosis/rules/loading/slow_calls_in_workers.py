"""Worker processes of a loader call a library in a slow way, or for what they had before.

## What it looks for
In a run folder: calls in the text of the program at which looks found workers, ten times or more,
and that are known as slow for what they are given (`slow-call` has which), or that were given the
same each time (`given-again`). Either steps wait for their batches, or, in a program without a
device, all cores were taken, and workers compute on those of the step.

## Why it matters
Whatever the model does, it cannot run faster than its batches arrive. More workers do the same work
on more cores.

## How to fix it
The finding names the other way, or what to keep in each worker.

## When to ignore it
Where workers share their cores with nobody, and no step waits for them.
"""

from collections.abc import Iterator

import msgspec

from pinchpoint.diagnosis.evidence.called_lines import (
    CalledLine,
    called_in_workers,
    evidence_of,
    found_slow,
)
from pinchpoint.diagnosis.evidence.calls_again import LEFT, found_again
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.shared_cores import without_work_of_workers
from pinchpoint.diagnosis.evidence.slow_ways.table import way_of
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Rule
from pinchpoint.trace import Trace

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER, parent="reads-more-than-used", periodic=True)

LEAST_RATIO = 0.2  # of what workers do: of less, their batches come hardly sooner without it


def check(trace: Trace) -> Iterator[Found | Small]:
    """The call that most of the workers' time is at, of those that are known."""
    load = loads(trace)
    if load is None or not load.in_workers:
        return
    for line in called_in_workers(trace):
        known = _known(line)
        if known is None:
            continue
        if line.ratio < LEAST_RATIO:
            yield Small(line.ratio, LEAST_RATIO, "the workers' time")
            continue
        found, left = known
        won = without_work_of_workers(trace, load, line.ratio * (1 - sum(left) / 2))
        if won is None:
            return
        yield msgspec.structs.replace(
            found,
            summary="In worker processes, "
            + found.summary.format(time=f"{100 * line.ratio:.0f} % of their time"),
            evidence=(*evidence_of(line), *won.evidence, *found.evidence),
            cost_ns_per_step=won.likely_ns,
            saving_ns_per_step=won.range_ns,
            likely_saving_ns=None if won.range_ns is None else won.likely_ns,
            changes=won.changes,
            location=line.location,
            confirm=ANY_PROGRAM,
        )
        return


def _known(line: CalledLine) -> tuple[Found, tuple[float, float]] | None:
    again = found_again(line)
    if again is not None:
        return again, LEFT
    slow = way_of(line.call)
    return None if slow is None else (found_slow(line, *slow), slow[1].left)
