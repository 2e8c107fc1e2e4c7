"""One operator takes long on the host in each call, though it launches its work at once.

## What it looks for
An operator whose calls spend far more host time of their own than dispatching takes (0.2 ms each
beside 20 µs for each launch, without what recording cost), and which makes the step at least 15 %
longer by that. Waiting for the device and buying memory do not count; operators of compilers and
of collectives are left out. And an operator that is called 64 times a step and more for a copy or a
collective each, where one call for all of them would make the step at least 15 % shorter. It yields
to every other finding that explains the same time.

## Why it matters
Dispatching an operator takes 5 to 50 µs. One that takes longer prepares something in each call:
weights are described and copied, a plan or an algorithm is chosen, a workspace is set up. The
device has nothing to do meanwhile, and no kernel shows it.

## How to fix it
Do the preparation once: keep weights and inputs in the form that the operator wants (one piece of
memory, contiguous, of one type and shape), or use another operator for it. A CUDA graph takes the
host out altogether. An operator that works on tensors in host memory prepares nothing: keep them on
the device.

## When to ignore it
Where the operator is called with new shapes on purpose, and prepares for each.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.computing import DISPATCH_NS
from pinchpoint.analysis.causal.pieces import Cut, pieces
from pinchpoint.analysis.causal.profile import Piece, off_path
from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.replay import DropDeviceOps, DropSyncs, RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import acts_behind, busiest_place, device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, MORE_STEPS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import Intervals, flatten, subtract

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    residual=True,
    removes_host_work=True,
    advice=NO_HINT,
)

LEAST_GAIN_RATIO = 0.15  # of the step: as for other operators that nothing else explains
LAUNCH_NS = 20_000  # the most of a launch and what prepares it; many in a call are no preparation
AGAIN = 2  # steps
MOSTLY_NEW_RATIO = 0.5  # of calls: one length in a few that comes again is no growing sequence
MANY_CALLS = 64  # a step: a batch and a state have a handful of tensors, buckets are a few dozen
_LIBRARY = regex(r"^(?!autograd::|torch::|c10d::|nccl::|inductor)\w+::\w+$")


def check(trace: Trace) -> Iterator[Found | Small]:
    """The operator whose own host time makes the step longest."""
    found = off_path(trace, Cut.OPERATOR)
    if found.why_not is not None:
        raise NotChecked(found.why_not)
    if len(judged_steps(trace)) < AGAIN:
        why = "in a single step, what is prepared once looks as if it were each time"
        raise NotChecked(why, MORE_STEPS)
    many = [piece for piece in found.of(Cut.OPERATOR) if _is_many_small(piece)]
    for piece in sorted(many, key=lambda piece: piece.step_if_free_ns)[:1]:
        gain = (piece.base_ns - piece.step_if_free_ns) / piece.base_ns
        yield (
            _one_by_one(trace, piece) if gain >= LEAST_GAIN_RATIO else Small(gain, LEAST_GAIN_RATIO)
        )
    for piece in sorted(found.of(Cut.OPERATOR), key=lambda piece: piece.step_without_host_ns):
        gain = (piece.base_ns - piece.step_without_host_ns) / piece.base_ns
        rows = _calls(trace, piece)
        beyond = piece.host_ns - _held_up_ns(trace, rows) - LAUNCH_NS * piece.calls
        slow = len(rows) and beyond >= DISPATCH_NS * per_step(trace, len(rows))
        small = gain < LEAST_GAIN_RATIO
        if slow:
            yield Small(gain, LEAST_GAIN_RATIO) if small else _finding(trace, piece, rows)
        if slow or small:
            return


def _is_many_small(piece: Piece) -> bool:
    """Whether a piece is many copies or collectives that take the device next to nothing."""
    many = piece.calls >= MANY_CALLS and not piece.in_kernels
    return many and piece.device_ns <= LAUNCH_NS * piece.calls


def _calls(trace: Trace, piece: Piece) -> Rows:
    """The operator's calls in the judged steps."""
    host = trace.host_ops
    assert host is not None
    if not _LIBRARY.match(piece.name):
        return np.zeros(0, np.intp)
    mine = named(trace, piece.name.__eq__) & (host["kind"] == HostKind.OPERATOR)
    return np.flatnonzero(mine & rows_in_steps(trace, host))


def _held_up_ns(trace: Trace, rows: Rows) -> float:
    """Waiting for the device and buying memory directly in these rows, a step."""
    host, calls, waits = trace.host_ops, trace.api_calls, host_waits(trace)
    assert host is not None
    assert calls is not None
    bought = calls["kind"] == ApiKind.MALLOC
    bought &= np.isin(calls.filled("host_op", len(host)), rows, kind="table")
    waited = waits.took_ns[np.isin(waits.host_op, rows, kind="table")].sum()
    return per_step(trace, int(waited + calls["duration_ns"][bought].sum()))


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
    anew = _new_shapes_ratio(trace, rows)
    grows = anew is not None and anew >= MOSTLY_NEW_RATIO
    computes = bool(computed_on_host(trace)[rows].mean() >= MOSTLY_NEW_RATIO)
    why = (
        "it works on tensors in host memory" if computes else "it prepares something anew each time"
    )
    return Found(
        summary=(
            f"{piece.name} keeps the host busy for {duration(round(piece.host_ns / times))} in each"
            f" of {times:.3g} calls a step{f' in {place}' if place else ''}, itself and not what it"
            f" calls: {why}"
            + (", for shapes that no step before had" if grows and not computes else "")
        ),
        evidence=(
            Evidence("host time of its own", piece.host_ns, "ns per step"),
            Evidence("calls", round(times, 2), "per step"),
            Evidence("longest", int(took.max()), "ns", int(host["start_ns"][longest]), piece.name),
            *(
                ()
                if anew is None
                else (Evidence("calls with new shapes", round(anew, 4), "ratio"),)
            ),
        ),
        cost_ns_per_step=piece.host_ns,
        changes=(RemoveHostTime(own.start, own.end),),
        location=place,
        fix=_FIX_ON_CPU if computes else _FIX_FOR_NEW_SHAPES if grows else _FIX,
        confidence="medium" if grows else "low",
    )


_FIX = "Look for what it prepares in each call, and do that once; or record a CUDA graph"
_FIX_ON_CPU = "Keep its tensors on the device and compute there"
_FIX_FOR_NEW_SHAPES = (
    "Keep the shapes alike: pad lengths to a few, or hand over the whole buffer with a mask; of"
    " attention, another backend (torch.nn.attention.sdpa_kernel) may prepare nothing"
)


def _new_shapes_ratio(trace: Trace, rows: Rows) -> float | None:
    """Of the calls after the first step, those with shapes that no step before had."""
    host = trace.host_ops
    assert host is not None
    shapes, step = (
        host.filled("shapes", -1)[rows],
        judged_steps(trace).step_of(host["start_ns"][rows]),
    )
    later = step > step.min()
    if (shapes < 0).any() or not later.any():
        return None
    _, which = np.unique(shapes, return_inverse=True)
    first = np.full(which.max() + 1, step.max() + 1)
    np.minimum.at(first, which, step)
    return float((first[which] == step)[later].mean())


def _one_by_one(trace: Trace, piece: Piece) -> Found:
    """Copies or collectives that one call could do together."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    names = np.array([name == piece.name for name in trace.names], np.bool_)
    mine = np.append(names, False)[pieces(trace, Cut.OPERATOR).device]
    work = device_work(trace, mine & (ops["kind"] != DeviceKind.KERNEL), "their device time")
    assert work is not None
    around, calls = acts_behind(trace, work.rows)
    spent = round(per_step(trace, int(host["duration_ns"][around].sum())))
    first = judged_steps(trace).step_of(ops["start_ns"][work.rows])
    later = np.setdiff1d(work.rows, work.rows[np.unique(first, return_index=True)[1]])
    where = f" in {work.place}" if work.place else ""
    return Found(
        summary=(
            f"{piece.name} is called {work.count:.0f} × a step{where}, one after the other, for"
            f" {duration(int(np.median(ops['duration_ns'][work.rows])))} of the device each"
        ),
        evidence=(Evidence("host time of these calls", spent, "ns per step"), *work.evidence),
        cost_ns_per_step=spent,
        changes=(
            ScaleHostSpans(around, 1 / work.count),
            DropSyncs(calls),
            DropDeviceOps(later),
        ),
        location=work.place,
        fix="Put the tensors into one and do it once",
        confidence="medium",
    )
