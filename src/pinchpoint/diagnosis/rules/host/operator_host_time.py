"""One operator takes long on the host in each call, though it launches its work at once.

## What it looks for
An operator whose calls spend far more host time of their own than dispatching takes (0.2 ms each
beside 20 µs for each launch, without what recording cost), and which makes the step at least 15 %
longer by that. Operators that wait for the device in their calls or buy memory from the driver are
left out, and those of compilers and collectives. It yields to every other finding that explains
the same time.

## Why it matters
Dispatching an operator takes 5 to 50 µs. One that takes longer prepares something in each call:
weights are described and copied, a plan or an algorithm is chosen, a workspace is set up. The
device has nothing to do meanwhile, and no kernel shows it.

## How to fix it
Do the preparation once: keep weights and inputs in the form that the operator wants (one piece of
memory, contiguous, of one type and shape), or use another operator for it. A CUDA graph takes the
host out altogether.

## When to ignore it
Where the operator is called with new shapes on purpose, and prepares for each.
"""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.computing import DISPATCH_NS
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import Piece, operators_of_a_step
from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import ApiKind, HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import Intervals, flatten, subtract

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    residual=True,
    advice=NO_HINT,
)

LEAST_GAIN_RATIO = 0.15  # of the step: as for other operators that nothing else explains
LAUNCH_NS = 20_000  # the most of a launch and what prepares it; many in a call are no preparation
_LIBRARY = re.compile(r"^(?!autograd::|torch::|c10d::|nccl::|inductor)\w+::\w+$")


def check(trace: Trace) -> Iterator[Found]:
    """The operator whose own host time makes the step longest."""
    found = operators_of_a_step(trace)
    if found.why_not is not None:
        raise NotChecked(found.why_not)
    for piece in sorted(found.of(Cut.OPERATOR), key=lambda piece: piece.step_without_host_ns):
        gain = (piece.base_ns - piece.step_without_host_ns) / piece.base_ns
        if gain < LEAST_GAIN_RATIO:
            return
        rows = _calls(trace, piece)
        beyond = piece.host_ns - LAUNCH_NS * piece.calls
        if len(rows) and beyond >= DISPATCH_NS * per_step(trace, len(rows)):
            yield _finding(trace, piece, rows)
            return


def _calls(trace: Trace, piece: Piece) -> Rows:
    """The operator's calls in the judged steps; none where they wait or buy memory."""
    host, calls = trace.host_ops, trace.api_calls
    assert host is not None
    assert calls is not None
    if not _LIBRARY.match(piece.name):
        return np.zeros(0, np.intp)
    mine = named(trace, piece.name.__eq__) & (host["kind"] == HostKind.OPERATOR)
    rows = np.flatnonzero(mine & rows_in_steps(trace, host))
    bought = calls.filled("host_op", len(host))[calls["kind"] == ApiKind.MALLOC]
    held_up = np.isin(rows, host_waits(trace).host_op) | np.isin(rows, bought)
    return rows[:0] if held_up.any() else rows


def _own(trace: Trace, rows: Rows) -> Intervals:
    """Time in these rows outside of what they call."""
    host = trace.host_ops
    assert host is not None
    called = np.isin(parents(host), rows)
    spans = flatten(host["start_ns"][rows], host.end_ns[rows])
    return subtract(spans, flatten(host["start_ns"][called], host.end_ns[called]))


def _finding(trace: Trace, piece: Piece, rows: Rows) -> Found:
    host = trace.host_ops
    assert host is not None
    took = host["duration_ns"][rows].astype(np.int64)
    place, _ = busiest_place(trace, rows, took)
    times, own = per_step(trace, len(rows)), _own(trace, rows)
    longest = int(rows[took.argmax()])
    return Found(
        summary=(
            f"{piece.name} keeps the host busy for {duration(round(piece.host_ns / times))} in each"
            f" of {times:.3g} calls a step{f' in {place}' if place else ''}, itself and not what it"
            " calls: it prepares something anew each time"
        ),
        evidence=(
            Evidence("host time of its own", piece.host_ns, "ns per step"),
            Evidence("calls", round(times, 2), "per step"),
            Evidence("longest", int(took.max()), "ns", int(host["start_ns"][longest]), piece.name),
        ),
        cost_ns_per_step=piece.host_ns,
        changes=(RemoveHostTime(own.start, own.end),),
        location=place,
        fix="Look for what it prepares in each call, and do that once; or record a CUDA graph",
        confidence="low",
    )
