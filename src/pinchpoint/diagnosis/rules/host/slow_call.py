"""A library's function is called in a way that is slow for what it is given.

## What it looks for
Calls in the program's own text at which looks of the whole run found it, ten times or more. At a
few of these looks `pinchpoint run` reads what is called, of which class, and what it is given:
kinds, shapes, numbers, whether a matrix is symmetric, whether an argument stays. A table knows the
ways that are slow under such conditions: a draw without replacement by the old generator, which
permutes all there is; whole numbers or 16 bit floats in a product; an inverse that is multiplied by
few columns; a sort of which few are taken; lists that become arrays; a transform of an unlucky
length; a search in a list. A name alone says nothing: `choice` of few things, a sort that is used
whole, a matrix that is not symmetric are none.

## Why it matters
Both ways give the same, or as good as the same, and one takes a tenth of the time or less.

## How to fix it
The finding names the other way. What is left of the time is a range of what was measured with that
pair of calls, of several sizes.

## When to ignore it
Where the very numbers matter that the old way draws or rounds to.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.called_lines import (
    CalledLine,
    called_lines,
    found_slow,
    in_run,
    in_steps,
    main_thread,
    of_steps,
)
from pinchpoint.diagnosis.evidence.calls_again import found_again
from pinchpoint.diagnosis.evidence.slow_ways.table import way_of
from pinchpoint.diagnosis.evidence.slow_ways.way import Said, Way
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
    """The calls that a slow way is known of, most time first."""
    base, lines = of_steps(trace)
    for line in lines:
        if (known := _known(line)) is not None:
            yield in_steps(trace, line, base, known[1].left, found_slow(line, *known))


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """The same of a run of which nothing else was recorded."""
    for line in called_lines(trace, main_thread(trace)):
        if (known := _known(line)) is not None:
            yield in_run(trace, known[1].left, line, found_slow(line, *known))


def _known(line: CalledLine) -> tuple[Way, Said] | None:
    """Of what was computed before, another way to do so is not the point."""
    return way_of(line.call) if found_again(line) is None else None
