"""A step computes what was computed before, from the same values.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them, and numbers values: what the same operation gives of the same values has the same number,
and what is written in place gets a new one. Named is work whose number was there already: in the
step before (*each step anew*, in half of the steps at least), or earlier in the same step. In four
of the steps the bits of such answers are compared, where other work reads them; what was not the
same is left out. What a step makes for the next one is told by its bits, and not by what computed
it: like rows in another order are the same values. Named, too, is what a step makes several times
of a parameter that is trained and uses with an input each time, though it is another one by a state
that it moves on itself, such as the estimate of a spectral norm. Left alone is what may answer
otherwise (random operations, collectives, what is changed afterwards), what a backward pass
computes, checkpoints included, constants, and all that comes from the batch in a loop to which
nothing new came: it measures something, or has one batch, unless its steps go on from one another,
as tokens do. The place is the outermost line all of whose work is repeated. Modules that are called
again as a whole are a matter of
`same-input-again`.

## Why it matters
The result is known already. A factorisation of a matrix that stays, masks, filters and tables of
positions built in each step, weights that are merged or converted at each use, an encoder run again
for the same text: the work is real, so that neither the device nor the host looks idle.

## How to fix it
Compute it where its input is made, keep the result, and compute it anew when that input changes.
Within a step gradients flow back through one result as through many.

## When to ignore it
Where the input does change, more seldom than every few steps; or where the result is too large to
keep, and is computed again by intent.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.vain_work import Vain, counted, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Work of each place that gives what was there."""
    values = watched(trace)
    at: dict[Location | int, list[Vain]] = {}
    for number, work in enumerate(() if values is None else values.work or ()):
        if work.kind in _HOW:
            rows = vain(trace, work, beside_modules=True)
            if rows is not None:  # one line computes it all: that is one cause, and one fix
                at.setdefault(rows.place or number, []).append(rows)
    for parts in at.values():
        parts.sort(key=lambda one: _FIRST.index(one.work.kind))
        yield _found(trace, parts)


_HOW = {
    "step": "with the same result as in the step before",
    "within": "with a result that was computed in the same step already",
    "moved": "made again of the same parameters, with a state that they move on each time",
}
_FIRST = ("within", "moved", "step")  # what is kept for a step may be kept for the next one, too
_FIX = {
    "step": "Compute it once before the loop, and anew only when what it is made from changes",
    "within": "Compute it once a step, and use the result where it is computed again",
    "moved": "Compute it once a step, if its state need not move on each time, and keep the result",
}
_HINT = {
    "step": "kept = build()  # before the loop; in it: use kept",
    "within": "once = build()  # at the start of a step; later in it: use once",
    "moved": "weight = normed(parameter)  # at the start of a step; later in it: use weight",
}


def _found(trace: Trace, parts: list[Vain]) -> Found:
    """Of one place, in the order of what to do first."""
    first = parts[0]
    work, kept = first.work, sum(one.work.kept_bytes or 0 for one in parts)
    device_ns, host_ns = (
        sum(ns) for ns in zip(*((p.device_ns, p.host_ns) for p in parts), strict=True)
    )
    at_best = [one.at_best(trace) for one in parts]
    return Found(
        summary=_summary(parts, device_ns, host_ns),
        evidence=(
            *(
                evidence
                for one in parts
                for evidence in (
                    Evidence("operations in vain", one.work.times, "per step"),
                    Evidence(
                        "of these and the ones they repeat",
                        one.work.of or one.work.times,
                        "per step",
                    ),
                    Evidence(
                        "of the watched steps after another one", one.work.steps_ratio, "ratio"
                    ),
                    *one.evidence,
                )
            ),
            *((Evidence("to keep what is used of it", kept, "bytes"),) if kept else ()),
        ),
        cost_ns_per_step=max(device_ns, host_ns),
        changes=tuple(change for one in parts for change in one.changes(trace)),
        at_best=tuple(
            change
            for one, best in zip(parts, at_best, strict=True)
            for change in best or one.changes(trace)
        )
        if any(at_best)
        else (),
        location=first.place,
        fix=f"{_FIX[work.kind]} ({_bytes(kept)})" if kept else _FIX[work.kind],
        hint=_HINT[work.kind],
        confidence="medium" if any(one.work.kind == "moved" for one in parts) else "high",
    )


def _summary(parts: list[Vain], device_ns: int, host_ns: int) -> str:
    first = parts[0]
    where = f" in {first.place}" if first.place else ""
    device = f"{duration(device_ns)} of the device's time, " if device_ns else ""
    more = "".join(f", and {counted(one.work)} {_HOW[one.work.kind]}" for one in parts[1:])
    moved = any(one.work.kind == "moved" for one in parts)
    return (
        f"{counted(first.work)} a step{where}, mostly {first.longest}, {_HOW[first.work.kind]}"
        f"{more}: {device}{duration(host_ns)} of the host's as recorded, for"
        f" {'weights that stay' if moved else 'results that are known'}"
    )


def _bytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size >= 1 << 20 else f"{size / 2**10:,.1f} KiB"
