"""On a CPU, a compiled function of JAX copies its arguments before it changes them.

## What it looks for
Copies that a program of XLA makes of its own arguments, which nothing else lets it change in place:
the HLO in the recording says which argument a copy was made of, and whether it was donated. They
come in every second step or more often and take a twentieth of it. Copies into another order, and
those of results, are others. Where a program does little else, what it waits for its own completion
afterwards is the copies' too: large ones are made in pieces on threads that are not recorded, into
pages that the kernel has to clear. Programs on a device are judged by `device-copies`.

## Why it matters
An update of a few rows of a large array reads and writes all of it, into memory that is new each
time.

## How to fix it
Donate what the function takes and gives back changed (`jax.jit(put, donate_argnums=0)`): XLA then
changes it in place. The caller must not use the old array again.

## When to ignore it
Where the old values are still read afterwards.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.donating import donate
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import LEAST_RATIO
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    advice=NO_HINT,
    confirm=ANY_PROGRAM,
)

EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is a snapshot, and wanted
MOST_NAMED = 3  # arguments: leaves of one tree
# Of an execution, that is its copies of arguments: what follows it waits for them.
LEAST_OF_EXECUTION = 0.5
SOON_NS = 1_000_000  # from the end of an execution to the wait for it, on its thread
SURE_SHARE = 0.5  # programs of several threads may have made some of them at the same time
_CALL = "PjitFunction"  # of a compiled function: the time in which the program is called
_PLACE = regex(r"(?P<file>[^,\n]+):(?P<line>\d{1,7})(,|$)")
_MODULE = regex(r"^jit_{1,2}(\w+?)(\(\d+\))?$")  # jit_put(123): of the function put


def check(trace: Trace) -> Iterator[Found | Small]:
    """Copies of arguments that were not donated."""
    ops, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if ops is None or not compiled_for_cpu(trace) or not len(judged_steps(trace)) or not step_ns:
        return
    mine = ops.known("argument") & ~ops.filled("donated", False)
    rows = np.flatnonzero(mine & (judged_steps(trace).step_of(ops["start_ns"]) >= 0))
    if not len(rows):
        return
    names = _most(trace, rows)
    calls = int((ops["argument"][rows] == names[0]).sum())
    ns = round(per_step(trace, int(ops["duration_ns"][rows].sum())))
    if per_step(trace, calls) < EACH_STEP_RATIO:
        return
    if ns < LEAST_RATIO * step_ns:
        yield Small(ns / step_ns, LEAST_RATIO)
        return
    awaited_ns = round(per_step(trace, _awaited_ns(trace, rows)))
    longest = int(rows[np.argmax(ops["duration_ns"][rows])])
    where = _PLACE.match(trace.text(ops, "source", longest) or "")
    at = Location(where["file"], int(where["line"])) if where else None
    module = _MODULE.match(trace.text(ops, "module", longest) or "")
    function = module[1] if module else "the function"
    # XLA counts a copy read and written.
    moved = round(per_step(trace, int(ops.filled("bytes", 0)[rows].sum()))) // 2
    new_ns = _for_new_memory(trace, function)
    most_ns = max(step_ns - _other_work_ns(trace, rows), 0)
    ns, whole = min(ns, most_ns), min(ns + awaited_ns + new_ns, most_ns)
    arguments = tuple(trace.names[name] for name in names[:MOST_NAMED])
    yield Found(
        summary=(
            f"{per_step(trace, len(rows)):.3g} copies a step of arguments, {moved / 1e6:,.0f} MB of"
            f" {', '.join(arguments)}, keep them as they were"
            + (f" at {at.short}" if at else "")
            + f", for the compiled function {function}: {duration(ns)} of each recorded step"
            + (f", {duration(whole)} with waits for their completion" if awaited_ns else "")
        ),
        evidence=(
            Evidence("copies of arguments", ns, "ns per step"),
            Evidence("waits for their completion", awaited_ns, "ns per step"),
            Evidence("copied", moved, "bytes per step"),
            Evidence(f"calls of {function}, beyond those of others", new_ns, "ns per step"),
            Evidence("copies", round(per_step(trace, len(rows)), 2), "per step"),
            *(Evidence("copied argument", name, "words") for name in arguments),
        ),
        cost_ns_per_step=whole,
        saving_ns_per_step=(round(SURE_SHARE * ns), whole),
        likely_saving_ns=whole if awaited_ns else None,
        location=at,
        fix=donate(function, arguments),
        confidence="medium",
    )


def _other_work_ns(trace: Trace, rows: Rows) -> int:
    """What compiled programs do in a step beside these copies, which stays."""
    ops = trace.compiled_ops
    assert ops is not None
    stays = judged_steps(trace).step_of(ops["start_ns"]) >= 0
    stays[rows] = False
    return round(per_step(trace, flatten(ops["start_ns"][stays], ops.end_ns[stays]).total))


def _awaited_ns(trace: Trace, rows: Rows) -> int:
    """What programs that mostly copy these arguments wait for their own completion, in all."""
    host, ops = trace.host_ops, trace.compiled_ops
    assert host is not None
    assert ops is not None
    named = {name: rows_named(trace, host, name.__eq__) for name in (_EXECUTION, _COMPLETION)}
    begun, waits = (np.flatnonzero(one) for one in named.values())
    start, took = ops["start_ns"][rows], ops["duration_ns"][rows]
    total = 0
    for one in begun.tolist():
        first, end = int(host["start_ns"][one]), int(host.end_ns[one])
        copies = took[(start >= first) & (start < end)].sum()
        if copies < LEAST_OF_EXECUTION * (end - first):
            continue
        after = host["start_ns"][waits] - end
        here = (host["thread"][waits] == host["thread"][one]) & (after >= 0) & (after <= SOON_NS)
        total += int(host["duration_ns"][waits[here]].sum())
    return total


# As XLA's runtime for CPUs names what it does.
_EXECUTION = "ThunkExecutor::Execute"
_COMPLETION = "ThunkExecutor::Execute (wait for completion)"


def _for_new_memory(trace: Trace, function: str) -> int:
    """What the calls of the function take of a step on its thread, beyond as many of a usual
    compiled function: they get the memory for what is copied, which is new each time."""
    host = trace.host_ops
    if host is None:
        return 0
    inside = judged_steps(trace).step_of(host["start_ns"]) >= 0
    calls = inside & rows_named(trace, host, lambda name: name.startswith(_CALL))
    mine = calls & rows_named(trace, host, f"{_CALL}({function})".__eq__)
    outer = flatten(host["start_ns"][mine], host.end_ns[mine])
    others = host["duration_ns"][calls & ~mine]
    if not len(outer.start) or not len(others):
        return 0
    beyond = outer.total - len(outer.start) * float(np.median(others))
    return max(round(per_step(trace, beyond)), 0)


def _most(trace: Trace, rows: Rows) -> list[int]:
    """Names of the arguments, most time first."""
    ops = trace.compiled_ops
    assert ops is not None
    name = ops["argument"][rows].astype(np.int64)
    sums = np.bincount(name, ops["duration_ns"][rows])
    return [n for n in np.argsort(-sums, kind="stable").tolist() if sums[n]]
