"""On a CPU, a compiled program permutes or computes much of which a small part is read.

## What it looks for
The programs that XLA compiled for the CPU, which a recording of JAX holds (`.xplane.pb`), backwards
from slices and gathers, as `mostly-unread` does for devices. Named are permutations (sorts whose
keys are random bits that nobody reads, made in fusions or in a loop) of which a quarter or less is
taken; sorted arrays of which nothing but a quarter or less of one end is taken; and products and
fusions of which half or less is read. Their operations take a twentieth of the step. What leaves
the program or is read in any other way counts as read, and so does a sort that the program wrote as
a selection (`jax.lax.top_k`) and the middle of a sorted array.

## Why it matters
`jax.random.choice(..., replace=False)` and `jax.random.permutation` sort all numbers once for each
32 bits of keys that they need, most often twice, and XLA sorts on one core, a comparison at a time:
a few hundred nanoseconds for each number, however few are taken of them. `jax.lax.top_k` of 2 % of
each row takes 4 % of what sorting it takes.

## How to fix it
Draw with replacement (`jax.random.randint`) where a few draws of many may well meet, or draw a few
more and leave out the equal ones; permute once for many steps and take the next part in each; or
draw on the host (`numpy.random.Generator.choice`). For the largest of each row take
`jax.lax.top_k`, for the smallest the same of `-x`. Of computed results, choose the operands' rows
before computing.

What is said to be won at least is what nothing else ran beside; in the middle with the loops that
make the bits, and with the share of the waits in which nothing was seen to run.

## When to ignore it
Where draws have to be without replacement and of most of what is there.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import AWAITED, breakdown
from pinchpoint.diagnosis.evidence.compiled_work import DOUBT, place_told
from pinchpoint.diagnosis.evidence.one_side import leaves
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import LEAST_RATIO
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)

_WHAT = {
    "results": "Of what is computed {share:.2g} % is read",
    "permutation": "Of a permutation made of random numbers {share:.2g} % is taken",
    "sort": "One end of what is sorted is read, and selecting it takes {share:.2g} % of the time",
}
_FIX = {
    "results": "Choose what is read before it is computed: rows of the operands, not of the result",
    "permutation": "Draw what is taken without permuting all: with replacement, or a few more of"
    " which equal ones are left out; or permute once for many steps",
    "sort": "Select in place of sorting",
}
_HINT = {
    "results": "logits = hidden[:, -1] @ head  # not (hidden @ head)[:, -1]",
    "permutation": "i = jax.random.randint(key, (k,), 0, n)  # not choice(..., replace=False)",
    "sort": "values, indices = jax.lax.top_k(x, k)",
}


def check(trace: Trace) -> Iterator[Found | Small]:
    """The place whose operations take most."""
    ops, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if ops is None or not compiled_for_cpu(trace) or not len(judged_steps(trace)) or not step_ns:
        return
    kinds = [number for number, name in enumerate(trace.names) if name in _WHAT]
    partly = ops.known("read_ratio") & np.isin(ops.filled("read_of", -1), kinds)
    inside = judged_steps(trace).step_of(ops["start_ns"]) >= 0
    if not (partly & inside).any():
        return
    here = inside & leaves(trace, ops)
    source = ops.filled("source", len(trace.names))  # beyond all names: no line is known
    took = np.bincount(source[partly & here], ops["duration_ns"][partly & here])
    if not len(took):
        return
    mine = partly & here & (source == int(took.argmax()))
    ns = round(per_step(trace, int(ops["duration_ns"][mine].sum())))
    if ns < LEAST_RATIO * step_ns:
        yield Small(ns / step_ns, LEAST_RATIO)
        return
    yield _found(trace, ops, mine, here, step_ns)


def _found(trace: Trace, ops: Table, mine: Mask, here: Mask, step_ns: int) -> Found:
    took = ops["duration_ns"].astype(np.float64)
    total = float(took[mine].sum())
    longest = int(np.flatnonzero(mine)[took[mine].argmax()])
    kind = trace.text(ops, "read_of", longest) or ""
    at = place_told(trace.text(ops, "source", longest))
    left = float((took * ops["read_ratio"])[mine].sum()) / max(total, 1)
    bits = _bits(trace, ops, at) & here & ~mine if kind == "permutation" else mine & False
    whole, bits_ns = _busy(ops, here), float(took[bits].sum())
    alone_ns, with_bits_ns = (whole - _busy(ops, here & ~of) for of in (mine, mine | bits))
    # Waits in which nothing was seen to run fall on all alike.
    waits_ns = breakdown(trace).of_part(AWAITED.id) * with_bits_ns / max(whole, 1)
    sure, likely, most = (
        per_step(trace, (1 - left) * of_ns)
        for of_ns in ((1 - DOUBT) * alone_ns, with_bits_ns, total + bits_ns)
    )
    count, ns = per_step(trace, int(mine.sum())), round(per_step(trace, total))
    return Found(
        summary=(
            f"{_WHAT[kind].format(share=100 * float(ops['read_ratio'][longest]))}"
            f"{f' at {at.short}' if at else ''}:"
            f" {duration(ns)} of each recorded step in {count:.0f} operations"
        ),
        evidence=(
            Evidence("operations of which a part is read", ns, "ns per step"),
            Evidence("operations", round(count, 2), "per step"),
            Evidence("of this work that is needed", round(left, 6), "ratio"),
            Evidence("loops that make random bits", round(per_step(trace, bits_ns)), "ns per step"),
            Evidence("waits, by the share of both", round(waits_ns), "ns per step"),
        ),
        cost_ns_per_step=min(round(per_step(trace, total + bits_ns) + waits_ns), step_ns),
        saving_ns_per_step=(round(sure), min(round(most + waits_ns), step_ns)),
        likely_saving_ns=min(round(likely + waits_ns), step_ns),
        location=at,
        fix=_FIX[kind],
        hint=_HINT[kind],
        confidence="high",
    )


def _bits(trace: Trace, ops: Table, at: Location | None) -> Mask:
    """What runs in loops that the same line has: the bits of its keys."""
    loops = [
        number
        for number in np.unique(ops["loop"][ops.known("loop")]).tolist()
        if at is not None and place_told(trace.names[number]) == at
    ]
    found: Mask = np.isin(ops.filled("loop", -1), loops)
    return found


def _busy(ops: Table, mine: Mask) -> float:
    """Time in which at least one of these runs."""
    return float(flatten(ops["start_ns"][mine], ops.end_ns[mine]).total)
