"""Garbage collection stops the thread that launches.

## What it looks for
Calls of `gc.collect()` inside the steps, and the collector's own ranges where a tracer records
them. A collection that Python starts by itself leaves no event in a PyTorch trace; `pinchpoint run`
times every collection of the whole run, and notes where the program called for it. A call that a
library makes in each step, inside of what the program calls, is told with that library's functions.
Where the function that computes most leaves what is collected, that is the cause (`host-hotspot`).
Without any of these nothing tells collecting from other Python.

## Why it matters
A full collection visits every live container object. With millions of them (datasets, caches,
configuration trees) it takes a tenth of a second or more, during which nothing is launched.

## How to fix it
Take the call out of the loop. Freeze what lives long once it is built (`gc.collect();
gc.freeze()`), and collect at moments that you choose, such as every thousand steps.

## When to ignore it
Collections between epochs.
"""

from collections.abc import Iterator

from msgspec import structs

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.attribution import called_by_operators
from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.mean.rare_steps import COLLECT
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import RunAccount, RunPlace, run_account
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, how_often, named
from pinchpoint.diagnosis.evidence.rare import found_of, material, rare_and_small
from pinchpoint.diagnosis.evidence.seen_computing import leaves_garbage
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    periodic=True,
    knobs=("gc",),
    confirm="pinchpoint try --knob gc -- python train.py",
)

_CALLED = ("<built-in function collect>", "gc.collect")  # by code; Python itself calls neither
_COLLECTOR = (*_CALLED, "Python GC")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Collections inside the steps; rare ones by the samples of the whole run."""
    rare = [cause for cause in material(trace) if cause.kind is GapKind.GC]
    if rare:
        for cause in rare:
            called = cause.place.inside == COLLECT
            if not called and leaves_garbage(trace):
                continue
            found = found_of(trace, cause, _FIX_CALL if called else _FIX, None if called else _HINT)
            # The knob turns off the collections of Python, not those that are called for.
            yield structs.replace(found, confirm=ANY_PROGRAM) if called else found
        return
    yield from rare_and_small(trace, (GapKind.GC,))
    collects = named(trace, lambda name: name.startswith(_COLLECTOR))
    spans = host_spans(trace, collects, "garbage collection")
    if spans is None:
        return
    called = (spans.longest or "").startswith(_CALLED)
    within, frees = _library_functions(trace, spans) if called else ((), 0)
    through = f" by {within[0]}" if within else ""
    emptied = "; it gives device memory back to the driver, too" if frees > 1 else ""
    yield Found(
        summary=(
            f"Garbage is collected {how_often(trace, spans)}{spans.where}{through},"
            f" for {duration(spans.ns_per_step)} of the mean recorded step{emptied}"
        ),
        evidence=(
            *spans.evidence,
            *((Evidence("driver frees in the call", frees, "count"),) if emptied else ()),
            *(Evidence("called within", function, "") for function in within),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, 0.0),),
        location=spans.place,
        fix=_fix_within(within) if within else _FIX_CALL if called else _FIX,
        hint=None if called else _HINT,
        # The knob turns off the collections of Python, not those that are called for.
        confirm=ANY_PROGRAM if called else "",
    )


def _library_functions(trace: Trace, spans: HostSpans) -> tuple[tuple[str, ...], int]:
    """Functions of libraries between the longest of these calls and the program's own function that
    is named, innermost first; none where the program calls itself. And how often the outermost of
    them frees device memory outside of operators."""
    host = trace.host_ops
    assert host is not None
    above, found = parents(host), list[str]()
    row = int(above[spans.rows[host["duration_ns"][spans.rows].argmax()]])
    outer = row
    while 0 <= row < len(host):
        frame = frame_of(trace.names[host["name"][row]])
        if frame is not None and frame.owner is Owner.USER:
            return tuple(found), _frees(trace, outer) if found else 0
        if frame is not None:
            found.append(str(Location(frame.file, frame.line, frame.function)))
            outer = row
        row = int(above[row])
    return (), 0


def _frees(trace: Trace, row: int) -> int:
    host, calls = trace.host_ops, trace.api_calls
    assert host is not None
    if calls is None:
        return 0
    inside = (calls["kind"] == ApiKind.FREE) & ~called_by_operators(trace)
    inside &= calls["thread"] == host["thread"][row]
    inside &= calls["start_ns"] >= host["start_ns"][row]
    return int((inside & (calls["start_ns"] < host.end_ns[row])).sum())


def _fix_within(functions: tuple[str, ...]) -> str:
    outer = f" of {functions[-1]}" if len(functions) > 1 else ""
    return (
        f"Take the call{outer} out of the steps: it asks for a collection each time. Do what it is"
        " for once, before the loop, and go on with the result; Python collects by itself"
    )


LEAST_RUN_RATIO = 0.05  # of a run without steps: less is within what two runs differ by


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """Collections of a whole run, timed one by one; who called for most of them."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    garbage = None if samples is None else samples.garbage
    if garbage is None or account is None:
        raise NotChecked("collections of the whole run were not timed")
    if garbage.ns < LEAST_RUN_RATIO * account.total_ns:
        yield Small(garbage.ns / account.total_ns, LEAST_RUN_RATIO, "the run")
        return
    called = 2 * garbage.called_ns >= garbage.ns
    at = own_frame(garbage.called_at) if called else None
    where = None if at is None else Location(at.file, at.line, at.function)
    from pinchpoint.diagnosis.evidence.run_places import location_of, of_run

    made_at = None if called else _made_at(account, garbage.ns)
    long = of_run(garbage.ns, account.total_ns)
    by = f": gc.collect() in {where}" if where else ""
    if made_at is not None:
        where = location_of(made_at)
        by = f": mostly while {where} runs, which makes what is counted"
    yield Found(
        summary=f"Garbage is collected {garbage.collections:,} times, for {long}" + by,
        evidence=(
            Evidence("collections, timed one by one", garbage.ns, "ns"),
            Evidence("of them called for by the program", garbage.called_ns, "ns"),
        ),
        cost_ns_per_step=garbage.ns,
        location=where,
        fix=_FIX_CALL if called else _FIX,
        hint=None if called else _HINT,
        confirm=ANY_PROGRAM,
        consequence=f"at most {long}",
        run_ratio=garbage.ns / account.total_ns * (1 if made_at is None else MADE_RATIO),
    )


# Of the time in collections: most. Python starts one when so many objects were made since the last;
# where most start in one function that is itself far more of the run, that function is the cause.
MADE_AT_RATIO = 0.5
MORE_THAN_COLLECTED = 1.5  # as much of the run: so that it does more than wait for collections
MADE_RATIO = 1 / 3  # a named cause goes before a place of the program from a third of it on


def _made_at(account: RunAccount, garbage_ns: int) -> RunPlace | None:
    """The function in which most collections started, where it is much of the run besides: all
    other time of the run is the most that can have passed in others."""
    place = next(iter(account.places), None)
    if place is None or place.at is None or place.share.ns < MORE_THAN_COLLECTED * garbage_ns:
        return None
    elsewhere_ns = account.total_ns - account.ways.get(Way.UNSEEN, 0) - place.share.ns
    return place if garbage_ns - elsewhere_ns >= MADE_AT_RATIO * garbage_ns else None


_FIX_CALL = (
    "Take the program's own gc.collect() out of the loop: Python collects by itself; if memory"
    " grows without it, look for the reference cycles"
)
_FIX = "Freeze long-lived objects with gc.freeze() and collect at steps that you choose"
_HINT = "gc.collect(); gc.freeze(); gc.disable()  # before the loop"
