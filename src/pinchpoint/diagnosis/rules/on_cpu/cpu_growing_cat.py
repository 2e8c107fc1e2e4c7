"""A loop makes a tensor longer by `torch.cat`, which copies all of it in every turn.

## What it looks for
In a program without a device: calls of `aten::cat` from one call of a function, each of which gets
what the one before it gave, by its shape, and puts a little more behind it, at least 16 in a row.

## Why it matters
The first turns copy little and the last ones nearly everything: twice as many turns copy four times
as much.

## How to fix it
Append to a list and join it once after the loop (`torch.stack`, `torch.cat`), or write into a
tensor that is made before it.

## When to ignore it
Where each turn needs the whole tensor so far in one piece; then it can be made before the loop.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, named, too_small
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_STACKS)

FEWEST_TURNS = 16  # in which 17/2 times as much is copied as in one; layers that join are fewer


def check(trace: Trace) -> Iterator[Found | Small]:
    """The tensors that grow."""
    mine = judged(trace)
    if mine is None or trace.host_ops is None:
        return
    rows = np.flatnonzero(mine & named(trace, "aten::cat"))
    if len(rows) < FEWEST_TURNS:
        return
    if not (trace.host_ops.filled("shapes", -1)[rows] >= 0).any():
        raise NotChecked("shapes are not recorded")
    if not (trace.host_ops["kind"] == HostKind.PYTHON).any():
        raise NotChecked("Python functions are not recorded")
    chains = [chain for chain in _chains(trace, rows) if len(chain) >= FEWEST_TURNS]
    growing = np.zeros(len(trace.host_ops), np.bool_)
    growing[[row for chain in chains for row in chain]] = True
    spans = host_spans(trace, growing, "joining there")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    took = trace.host_ops["duration_ns"]
    once = sum(int(took[chain[-1]]) for chain in chains)  # the last one copies all of it
    left = min(once / max(int(took[growing].sum()), 1), 1.0)
    turns = round(float(np.median([len(chain) for chain in chains])))
    yield Found(
        summary=(
            f"A tensor is made longer by torch.cat {turns:,} × in a loop{spans.where}, which copies"
            f" all of it each time: {duration(spans.ns_per_step)} of the step"
        ),
        evidence=(*spans.evidence, Evidence("turns in a row", turns, "count")),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, left),),
        location=spans.place,
        fix="Append to a list, and join it once after the loop",
        hint="states = torch.stack(states, dim=1)  # after the loop",
        confirm=ANY_PROGRAM,
    )


def _chains(trace: Trace, rows: Rows) -> list[list[int]]:
    """Calls from one call of a function, each with what the one before it gave."""
    host = trace.host_ops
    assert host is not None
    builtin = np.array([name.startswith("<built-in") for name in trace.names], np.bool_)
    calls = (host["kind"] == HostKind.PYTHON) & ~builtin[host["name"]]
    caller = nearest(parents(host), calls)
    chains: list[list[int]] = []
    last: dict[tuple[int, Shape], list[int]] = {}
    for row in rows[np.argsort(host["start_ns"][rows], kind="stable")].tolist():
        grown = _grown(trace.text(host, "shapes", row))
        if grown is None or caller[row] >= len(host):
            continue
        before, after = grown
        chain = last.pop((int(caller[row]), before), None)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(row)
        last[int(caller[row]), after] = chain
    return chains


def _grown(shapes: str | None) -> tuple[Shape, Shape] | None:
    """Shape of the first of some joined tensors, and of the result, which has more of one
    dimension; None where the first is not most of it."""
    given = next(iter(input_shapes(shapes) or ()), None) if shapes else None
    joined = [one for one in given or () if isinstance(one, tuple)]
    if len(joined) < 2:  # a shape itself, of one tensor, has numbers
        return None
    first, *others = joined
    if any(len(one) != len(first) for one in others):
        return None
    apart = [d for d in range(len(first)) if any(one[d] != first[d] for one in others)]
    if len(apart) > 1:
        return None
    # Of equal parts the joined dimension is not told: they are the beginning, and no growth yet.
    if not apart or sum(one[apart[0]] for one in others) > first[apart[0]]:
        return None
    at = apart[0]
    return first, (*first[:at], sum(one[at] for one in joined), *first[at + 1 :])
