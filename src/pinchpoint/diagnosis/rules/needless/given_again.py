"""A library computes again what it has computed before, from the same arrays.

## What it looks for
Calls of NumPy, SciPy, pandas and readers of files in the program's own text at which looks of the
whole run found it, ten times or more. At up to four of these, of different calls and ever further
apart, `pinchpoint run` compares what the call is given with the time before: checksums of all of an
array, lists of plain values, how often a tensor was written to, when a file was written. Told is
one that was given the same each time, at least twice: a search tree over points that stay, a
matrix that is inverted again, a file that is read again. Of solvers, the matrix alone is meant.
What draws at random, makes room or a copy, or writes is left alone; so is a call of which one
argument was not told.

## Why it matters
The work is real, so that the host looks busy, and its answer is known.

## How to fix it
Keep what it answers: once before the loop, in the object that has the array, or by what it is
given.

## When to ignore it
Where the array changes more seldom than was seen: keep the answer until it does.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.called_lines import (
    called_lines,
    in_run,
    in_steps,
    main_thread,
    of_steps,
)
from pinchpoint.diagnosis.evidence.calls_again import LEFT, found_again
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops",),
    record=Record("the whole run: pinchpoint run python train.py"),
    parent="host-hotspot",
    removes_host_work=True,
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """The calls that were given the same each time, most time first."""
    base, lines = of_steps(trace)
    for line in lines:
        if (found := found_again(line)) is not None:
            yield in_steps(trace, line, base, LEFT, found)


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """The same of a run of which nothing else was recorded."""
    for line in called_lines(trace, main_thread(trace)):
        if (found := found_again(line)) is not None:
            yield in_run(trace, LEFT, line, found)
