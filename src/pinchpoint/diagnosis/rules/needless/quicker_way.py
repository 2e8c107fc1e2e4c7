"""Another operator gives the same of the program's own arguments, and is quicker.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording. Where another way to what
an operator gives is known, it looks at the arguments: whether a matrix is symmetric, triangular,
diagonal or nearly all zeros, whether a window of a convolution is a column times a row, whether
whole numbers fit fewer bits. Where they allow it, the operator and the other way run in turn on
these arguments, once at each place, for a second in all. Told is what gave the same numbers and
took two thirds of the time or less; the gain is that of the trial, for so much of the step as the
operator takes in the recording. What fits one call of a place and not another one is not told, and
neither are multiples of the identity, as which states begin.

## Why it matters
A library does not look at numbers before it computes with them: it takes n³ steps for a diagonal
matrix, and singular values of a symmetric one take some times as long as its eigenvalues.

## How to fix it
As the finding says; the ways are `capture/ways`, the words `diagnosis/evidence/tried_ways.json`.

## When to ignore it
Where the arguments have that form by chance, or only in these steps.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.diagnosis.evidence.tried_ways import TriedWay, tried_ways
from pinchpoint.diagnosis.evidence.vain_work import Vain, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Each way, with all places that it was quicker at."""
    values, by_way = watched(trace), defaultdict[str, list[Vain]](list)
    for work in () if values is None else values.work or ():
        if work.kind == "way" and work.way in tried_ways() and work.left_ratio < 1:
            rows = vain(trace, work, beside_modules=False)
            if rows is not None:
                by_way[work.way].append(rows)
    for key, places in by_way.items():
        yield _finding(tried_ways()[key], sorted(places, key=lambda one: -_took(one)))


def _took(rows: Vain) -> int:
    return max(rows.device_ns, rows.host_ns)


def _finding(way: TriedWay, places: list[Vain]) -> Found:
    first = places[0]
    work = first.work
    device = sum(one.device_ns for one in places)
    host = sum(one.host_ns for one in places)
    times = sum(one.work.times for one in places)
    where = f" in {first.place}" if first.place else ""
    took = f"{duration(device)} of the device's time" if device else duration(host)
    more = f", and {len(places) - 1} more places" if len(places) > 1 else ""
    return Found(
        summary=(
            f"{first.longest}{where}{more} {way.what}: {took} a step. On its own arguments"
            f" another way gave the same in {duration(round(work.tried_ns * work.left_ratio))}"
            f" where it took {duration(work.tried_ns)}, tried in this run"
        ),
        evidence=(
            Evidence("calls", times, "per step"),
            Evidence("one call, in the trial", work.tried_ns, "ns"),
            Evidence("the other way", round(work.tried_ns * work.left_ratio), "ns"),
            Evidence("host time", host, "ns per step"),
            Evidence("device time", device, "ns per step"),
        ),
        cost_ns_per_step=max(device, host),
        changes=tuple(change for one in places for change in _changes(one)),
        location=first.place,
        fix=f"{way.instead}{', ' if way.only_where else ''}{way.only_where}",
        hint=way.hint,
        confidence="medium" if way.only_where else "high",
    )


def _changes(rows: Vain) -> Iterator[Change]:
    left = rows.work.left_ratio
    if len(rows.device_rows):
        yield ScaleDeviceOps(rows.device_rows, left, left, left)
    yield ScaleHostSpans(np.asarray(rows.spans), left)
