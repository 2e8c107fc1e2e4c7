"""A Python loop calls operators one element, sample or shift at a time.

## What it looks for
In a program without a device: one function (or one module) that calls the same function, module or
operator on the same shapes many times within a step, on tensors so small that calling takes longer
than computing; with what the backward pass does for these calls. `pinchpoint run` sees which
operators need what they gave in the turn before: where it is none, or sums only, the turns are one
call; where it is more (a norm or a gate between two turns), only what no other turn waits for is
told, and without such work nothing is. Where it was not seen, between nothing and all may be won.
Layers that are many instances are no loop. A loop inside of a library that goes through all that
steps before have left is a matter of `history-in-each-step`. Loaders and optimizers have rules of
their own. On larger tensors: a loop whose operators are elementwise or copies, in a function that
calls little else; then between nothing and all but one turn may be won.

## Why it matters
A call of an operator takes microseconds whatever it computes, and a product of one row reads the
whole weight. One call for all rows pays both once. A loop over large tensors reads and writes all
of them in each turn.

## How to fix it
Work on whole tensors: a batch instead of samples, reductions with `dim=`, `torch.vmap`, one call
for the sequence. A chain of elementwise operators fuses under `torch.compile`.

## When to ignore it
Where each turn needs the result of the one before it and cannot be written otherwise.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs.pointwise import ELEMENTWISE
from pinchpoint.analysis.device.categories import by_distinct
from pinchpoint.analysis.device.kernel_names import Category, category_of_operator
from pinchpoint.analysis.host.ancestry import nearest, parents, subtree_sums, within_rows
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.host.on_cpu import GRAIN_ELEMENTS, cpu_operators, first_elements
from pinchpoint.analysis.replay import Change, RemoveHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.evidence.growing import inside_calls_for_history
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, outermost
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import STACKS, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import inside, judged, too_small
from pinchpoint.diagnosis.rules.on_cpu._turns import CELLS, Turns, known_again, needed_turns
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten, subtract
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=STACKS, knobs=("compile",))

FEWEST_TURNS = 16  # deeper nets of one function calling one layer type are rare
# What is left at best: a product of all rows costs more than one of one row.
LEAST_LEFT_RATIO = 0.1
# On large tensors: passes must be most of what the function calls, or the loop is one of layers,
# and take much of the step, since how much of it another way saves is not known.
MOSTLY_RATIO, LEAST_SHARE_RATIO = 0.8, 0.25
_PASSES = (Category.ELEMENTWISE, Category.DATA_MOVEMENT, Category.MEMSET)
_PASS = 1  # of by_distinct: any number but 0
_ISSUES = ("c10d::", "record_param_comms")  # collectives: see small-collectives
_MACHINERY = regex(r"(_wrapped_call_impl|_call_impl)$|^<built-in ")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Loops over small tensors."""
    mine = judged(trace)
    if mine is None or trace.host_ops is None:
        return
    if not np.isin(trace.host_ops["kind"], (HostKind.PYTHON, HostKind.MODULE)).any():
        raise NotChecked("Python functions are not recorded")
    mine = mine & ~inside(trace, "Optimizer.", "enumerate(DataLoader)")
    mine = mine & ~inside_calls_for_history(trace)
    turns = _turns(trace, mine)
    small = _small(trace, turns > 0)
    looped = (turns > 0) & small
    yield from _of_small(trace, turns, looped)
    yield from _of_large(trace, turns, (turns > 0) & ~small & _passing(trace, turns))


def _in_files(trace: Trace) -> Mask:
    """What runs in calls that write and read files of tensors."""
    host = trace.host_ops
    assert host is not None
    files = activity(trace)[: len(host)] == GapKind.CHECKPOINT
    found: Mask = within_rows(parents(host), np.flatnonzero(files))[: len(host)]
    return found


def _of_large(trace: Trace, turns: Ints, looped: Mask) -> Iterator[Found | Small]:
    """A loop of passes over large tensors: what one call for all turns would win is not known."""
    spans = host_spans(trace, looped, "calls in the loop")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    windows = judged_steps(trace)
    share = spans.ns_per_step / max(float(np.mean(windows.end_ns - windows.start_ns)), 1.0)
    if share < LEAST_SHARE_RATIO:
        yield Small(share, LEAST_SHARE_RATIO)
        return
    count = float(np.median(turns[spans.rows]))
    yield Found(
        summary=(
            f"A Python loop passes over whole tensors {count:.0f} × a turn of"
            f" {_name(trace, spans.rows)}, {100 * share:.0f} % of the step{spans.where}"
        ),
        evidence=(*spans.evidence, Evidence("turns of the loop", round(count), "count")),
        cost_ns_per_step=spans.ns_per_step,
        at_best=(ScaleHostSpans(spans.rows, max(1 / count, LEAST_LEFT_RATIO)),),
        location=spans.place,
        fix="One operation for all turns: a product, a convolution or transform, a scan, an index",
        confidence="low",
    )


def _passing(trace: Trace, turns: Ints) -> Mask:
    """Operators that pass over tensors, of callers whose operators are mostly such, in a loop."""
    host, calls = trace.host_ops, cpu_operators(trace)
    assert host is not None
    kind = by_distinct(trace.names, host["name"], _is_pass) == _PASS
    caller, own = _callers(trace), np.where(calls.called, host["duration_ns"], 0)
    own = own * rows_in_steps(trace, host)
    of_all = np.bincount(caller, own, len(host) + 1)
    of_loop = np.bincount(caller, own * (kind & (turns > 0)), len(host) + 1)
    found: Mask = calls.called & kind & (of_loop >= MOSTLY_RATIO * of_all)[caller]
    return found


def _is_pass(name: str) -> int | None:
    listed = name.removeprefix("aten::").rstrip("_") in ELEMENTWISE
    return _PASS if listed or category_of_operator(name) in _PASSES else None


def _of_small(trace: Trace, turns: Ints, looped: Mask) -> Iterator[Found | Small]:
    spans = host_spans(trace, looped | _backward_of(trace, looped), "calls in the loop")
    forward = host_spans(trace, looped, "calls in the loop, forward")
    if spans is None or forward is None:
        return
    needs = needed_turns(trace, forward.rows)
    in_a_chain = bool(needs.chained.any()) and not needs.in_cells
    if small := too_small(trace, spans):
        if not in_a_chain:
            yield small
        return
    count = float(np.median(turns[forward.rows]))
    left = max(1 / count, LEAST_LEFT_RATIO)
    if in_a_chain:
        yield from _beside_the_chain(trace, needs, count, spans)
        return
    gone: tuple[Change, ...] = (
        ScaleHostSpans(spans.rows, left),
        *_between(trace, forward.rows),
    )
    sure = needs.known and not needs.chained.any()
    if needs.chained.any() or (not needs.known and _in_cells(trace, forward.rows)):
        gone, fix = (ScaleHostSpans(spans.rows, CELLS_LEFT_RATIO),), _FIX_OF_CELLS
    else:
        fix = _FIX if sure else _FIX_IF_NOT_READ if needs.on_host else _FIX_IF_FREE
    yield Found(
        summary=(
            f"A Python loop of {count:,.0f} turns in {_name(trace, forward.rows)} calls operators"
            f" on small tensors, {duration(spans.ns_per_step)} of the step"
            f"{forward.where}" + ("; no turn needs what another one gave" if sure else "")
        ),
        evidence=(*spans.evidence, *_counted(trace, spans, count)),
        cost_ns_per_step=spans.ns_per_step,
        changes=gone if sure else (),
        at_best=() if sure else gone,
        location=forward.place,
        fix=fix,
        hint=None if fix is _FIX_OF_CELLS else _HINT,
        confirm=ANY_PROGRAM,
        confidence="high" if sure else "medium",
    )


_FIX = "Work on whole tensors: a batch, a reduction with dim=, one call for the sequence"
_FIX_IF_FREE = (
    "If no turn needs what the one before gave (not recorded; pinchpoint run sees it), one call for"
    " all: a batch, a reduction with dim=, a scan"
)
_FIX_IF_NOT_READ = (
    "If no turn needs what the program reads on the host of the one before (it reads in this loop;"
    " an environment that is stepped needs it), one call for all: a batch, a reduction with dim="
)
_FIX_OF_CELLS = "Give the sequence to nn.LSTM, nn.GRU or nn.RNN in one call, in place of its cell"
_HINT = "loss = criterion(model(batch), targets)  # not one sample after another"
# Of nn.LSTMCell in a loop of 20 to 60 turns, forward and backward, nn.LSTM took 0.56 to 0.98 (three
# sizes, one thread): its turns are computed one after the other, too.
CELLS_LEFT_RATIO = 0.5
_TRIAL = Record("the result of a trial: pinchpoint try --knob compile -- python train.py")


def _beside_the_chain(trace: Trace, needs: Turns, count: float, loop: HostSpans) -> Iterator[Found]:
    """What a turn does that no other turn has to wait for, where the rest is one after another."""
    free = needs.free[:-1] & ~known_again(trace)
    once = np.zeros(len(free), np.bool_)
    once[np.flatnonzero(outermost(trace, free))] = True
    spans = host_spans(trace, once | _backward_of(trace, once), "what waits for no other turn")
    forward = host_spans(trace, once, "the same, forward")
    if spans is None or forward is None or too_small(trace, spans):
        raise NotChecked(
            f"{count:,.0f} turns of a loop in {_name(trace, loop.rows)} take"
            f" {duration(loop.ns_per_step)} of the step, yet each needs what the one before gave,"
            " through more than sums: they cannot be one call, and what a compiled turn would give"
            " does not show",
            _TRIAL,
            fits=True,
        )
    yield Found(
        summary=(
            f"A Python loop of {count:,.0f} turns calls operators on small tensors; each turn needs"
            f" the one before, but not for {_name(trace, forward.rows)}{forward.where}:"
            f" {duration(spans.ns_per_step)} of the {duration(loop.ns_per_step)}"
        ),
        evidence=(*spans.evidence, *_counted(trace, spans, count)),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, max(1 / count, LEAST_LEFT_RATIO)),),
        location=forward.place,
        fix="Do this for all turns at once, before the loop or after it; the rest stays a loop",
        hint="features = self.features(x)  # of all turns; in the loop: features[:, t]",
        confirm=ANY_PROGRAM,
    )


def _counted(trace: Trace, spans: HostSpans, count: float) -> tuple[Evidence, ...]:
    return (
        Evidence("turns of the loop", round(count), "count"),
        Evidence("calls", round(len(spans.rows) / len(judged_steps(trace))), "per step"),
    )


def _in_cells(trace: Trace, rows: Rows) -> bool:
    """Whether all that these rows of a loop call is the cell of a recurrence."""
    host, calls = trace.host_ops, cpu_operators(trace)
    assert host is not None
    inside = within_rows(calls.parent, rows)[:-1] & calls.called
    names = {trace.names[code] for code in np.unique(host["name"][inside]).tolist()}
    return bool(names.intersection(CELLS)) and names <= {*CELLS, "aten::zeros", "aten::select"}


def _turns(trace: Trace, mine: Mask) -> Ints:
    """How often each row's like was called by the same caller in the same call of it, in one step;
    0 below FEWEST_TURNS. What calls through many steps is the loop of the steps, or a thread that
    takes one request after the other."""
    host = trace.host_ops
    assert host is not None
    machinery, caller = _machinery(trace), _callers(trace)
    python = np.isin(host["kind"], (HostKind.PYTHON, HostKind.MODULE))
    candidates = (python & ~machinery) | cpu_operators(trace).called
    rows = np.flatnonzero(mine & candidates & (caller < len(host)))
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    shapes = host.filled("shapes", -1)[rows]
    key = np.stack((caller[rows], host["name"][rows], shapes, step), axis=1)
    _, which, count = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    turns = np.zeros(len(host), np.int64)
    turns[rows] = np.where(count >= FEWEST_TURNS, count, 0)[which.ravel()]
    return turns


def _small(trace: Trace, looped: Mask) -> Mask:
    """Rows that call operators, all of them on small tensors: a thread that waits in a loop calls
    none, nor does one that saves or loads: a file each is no tensor that could be one. What issues
    collectives waits for other ranks."""
    size, calls = first_elements(trace), cpu_operators(trace)
    assert trace.host_ops is not None
    issues = rows_named(trace, trace.host_ops, lambda name: name.startswith(_ISSUES))
    called = calls.called & ~_in_files(trace) & ~issues
    around = np.append(nearest(calls.parent, looped), len(size))
    computes, spoilt = np.zeros((2, len(size) + 1), np.bool_)
    computes[around[np.flatnonzero(called)]] = True
    spoilt[around[np.flatnonzero(calls.called & (size > GRAIN_ELEMENTS))]] = True
    small: Mask = (computes & ~spoilt)[:-1]
    return small


def _backward_of(trace: Trace, looped: Mask) -> Mask:
    """Nodes of the backward pass whose forward operator was called in the loop."""
    host = trace.host_ops
    assert host is not None
    parent = cpu_operators(trace).parent
    within = np.append(nearest(parent, looped) < len(host), False)
    forward = np.minimum(forward_rows(trace)[: len(host)], len(host))
    own = forward != np.arange(len(host))
    found: Mask = within[forward] & own & cpu_operators(trace).operator
    return found


def _between(trace: Trace, looped: Ints) -> Iterator[RemoveHostTime]:
    """Python between the turns of a loop: from call to call of one caller, without operators, and
    without functions that call none: one call for all turns leaves what these do."""
    host, calls = trace.host_ops, cpu_operators(trace)
    assert host is not None
    caller = _callers(trace)[looped]
    order = np.lexsort((host["start_ns"][looped], caller))
    rows, caller = looped[order], caller[order]
    follows = np.flatnonzero(caller[1:] == caller[:-1])
    gaps = flatten(host.end_ns[rows[follows]], host["start_ns"][rows[follows + 1]])
    kept = calls.called | _without_operators(trace)
    computing = np.flatnonzero(kept)
    gaps = subtract(gaps, flatten(host["start_ns"][computing], host.end_ns[computing]))
    if len(gaps.start):
        yield RemoveHostTime(gaps.start, gaps.end)


def _without_operators(trace: Trace) -> Mask:
    """Functions of the program that call no operator."""
    host, calls = trace.host_ops, cpu_operators(trace)
    assert host is not None
    mine = by_distinct(trace.names, host["name"], _is_the_program) == _MINE
    some = subtree_sums(calls.parent, calls.called.astype(np.int64)) > 0
    found: Mask = mine & (host["kind"] == HostKind.PYTHON) & ~some
    return found


_MINE = 1  # of by_distinct


def _is_the_program(name: str) -> int | None:
    frame = frame_of(name)
    return _MINE if frame is not None and frame.owner is Owner.USER else None


def _callers(trace: Trace) -> Ints:
    """The row that called each row, without what PyTorch and Python put between the two."""
    host = trace.host_ops
    assert host is not None
    found: Ints = np.append(nearest(cpu_operators(trace).parent, ~_machinery(trace)), len(host))[
        cpu_operators(trace).parent
    ]
    return found


def _machinery(trace: Trace) -> Mask:
    host = trace.host_ops
    assert host is not None
    spelt = np.array([bool(_MACHINERY.search(name)) for name in trace.names], np.bool_)
    found: Mask = spelt[host["name"]]
    return found


def _name(trace: Trace, rows: Ints) -> str:
    host = trace.host_ops
    assert host is not None
    names = host["name"][rows]
    took = np.bincount(names, host["duration_ns"][rows])
    return trace.names[int(took.argmax())].removeprefix("nn.Module: ")
