"""An operator prepares its work anew for each new shape of its inputs, and shapes go on changing.

## What it looks for
An operator whose first call with inputs of a shape takes the host ten times as long and more as its
other calls with the same shape do, itself and not what it calls, for the same number of launches;
and such first calls in half of the recorded steps at least, as where a sequence becomes longer with
each token or batches are padded to their own longest row. Calls of the same operator with a shape
that was there before are the measure: without any it is a matter of `operator-host-time`. Waiting
for the device and buying memory do not count, nor the capture of a graph; first calls that come in
the first recorded step alone are warming up; a search for an algorithm, which launches more, is
`cudnn-autotune-churn`, and what compilers do for a new shape `recompiles`. Of cuDNN's attention the
step after is said between its own kernels and what another backend may take at most: 1.75 times as
long, at the mean length to come where the strides of its keys show a cache that fills.

## Why it matters
Libraries choose a plan for a shape and keep it: cuDNN's attention takes 35 to 60 ms for one, and
50 µs to use it again. All layers of a model share a plan, so that in each step one call takes long
and the next ones do not; the device has nothing to do meanwhile.

## How to fix it
Of attention, take a backend that needs no plan for a length:
`torch.backends.cuda.enable_cudnn_sdp(False)` once at the start, or
`torch.nn.attention.sdpa_kernel` with `FLASH_ATTENTION` and `EFFICIENT_ATTENTION` around the calls.
Whatever the operator, keep to a few shapes: pad lengths to multiples of 64, say, or hand
over the whole buffer (a static cache) with a mask of what is filled.

## When to ignore it
Where there are few shapes, and all of them come in the first minutes of a long run.
"""

from collections.abc import Iterator
from math import sqrt

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.attribution import launched_count
from pinchpoint.analysis.host.graph_captures import graph_captures
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.other_attention import CUDNN_ATTENTION, at_most
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import MORE_STEPS, SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import contains

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=SHAPES_OF_INPUTS,
    parent="operator-host-time",
    removes_host_work=True,
    advice=NO_HINT,
)

FEWEST_STEPS = 3  # two after the first: what is prepared once looks as if it were each time
TWIN_RATIO = 10  # plans take hundreds of times as long as their use; caches of the host twice
LEAST_NS = 500_000  # the shortest plan that is known, of a convolution, takes 1.5 ms
FEWEST_TWINS = 2  # of one call nobody knows whether it was quick by chance
STEPS_RATIO = 0.5  # of the steps after the first, with a new shape: fewer will have had them all
# Between the two windows: one more in two steps is chance, twice as many are other calls.
MOST_OFTEN_RATIO = 1.6
_LIBRARY = regex(r"^(?!autograd::|torch::|c10d::|nccl::|inductor)\w+::\w+$")


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Calls of one operator with shapes that it had not met before; rows of ``host_ops``."""

    name: str
    rows: Rows
    new_ns: float  # of its own, the median
    twin_ns: float  # the same of calls with shapes that it had met
    named: tuple[Trace, Rows]  # where shapes and places are known, and such calls there


def check(trace: Trace) -> Iterator[Found]:
    """All operators that prepare for each shape, told as the one that takes longest."""
    found = _found(trace)
    if found:
        yield _finding(trace, found)


def _found(trace: Trace) -> list[_Prepared]:
    """The one that takes longest first."""
    host = trace.host_ops
    if host is None or not host.known("shapes").any():
        return _by_length(trace)
    if len(steps(trace).number) < FEWEST_STEPS or not len(judged_steps(trace)):
        raise NotChecked(
            "in so few steps, what is prepared once looks as if it were each time", MORE_STEPS
        )
    found = [one for name in _names(trace) if (one := _prepared(trace, name)) is not None]
    return sorted(found, key=lambda one: -one.new_ns * len(one.rows))


def _by_length(trace: Trace) -> list[_Prepared]:
    """The calls that the window with shapes tells of, in this one, which has none."""
    named = trace.with_names
    if named is trace or named.host_ops is None or not named.host_ops.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    found = [(one, _likewise(trace, named, one)) for one in _found(named)]
    if any(here is None for _, here in found):
        raise NotChecked("calls of another number take long here than where shapes were recorded")
    return [here for _, here in found if here is not None]


def _likewise(trace: Trace, named: Trace, there: _Prepared) -> _Prepared | None:
    """Long calls of the same operator, where they come as often and no call is between."""
    host = trace.host_ops
    assert host is not None
    mine = np.array([name == there.name for name in trace.names], np.bool_)[host["name"]]
    mine &= (host["kind"] == HostKind.OPERATOR) & rows_in_steps(trace, host)
    rows = np.flatnonzero(mine & ~contains(graph_captures(trace), host["start_ns"]))
    own = _own_ns(trace, rows)
    long = own >= max(LEAST_NS, sqrt(there.new_ns * max(there.twin_ns, 1.0)))
    if not long.any() or long.all():
        return None
    new_ns, twin_ns = float(np.median(own[long])), float(np.median(own[~long]))
    times = per_step(trace, int(long.sum())) / per_step(named, len(there.rows))
    if not 1 / MOST_OFTEN_RATIO <= times <= MOST_OFTEN_RATIO or new_ns < TWIN_RATIO * twin_ns:
        return None
    return _Prepared(there.name, rows[long], new_ns, twin_ns, there.named)


def _names(trace: Trace) -> list[int]:
    """Positions of names of operators with a call that is long enough."""
    host = trace.host_ops
    assert host is not None
    long = (host["kind"] == HostKind.OPERATOR) & (host["duration_ns"] >= LEAST_NS)
    long &= rows_in_steps(trace, host)
    return [n for n in distinct(host["name"][long]).tolist() if _LIBRARY.match(trace.names[n])]


def _prepared(trace: Trace, name: int) -> _Prepared | None:
    host = trace.host_ops
    assert host is not None
    rows = np.flatnonzero((host["name"] == name) & (host["kind"] == HostKind.OPERATOR))
    rows = rows[host.known("shapes")[rows]]
    rows = rows[~contains(graph_captures(trace), host["start_ns"][rows])]
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    if not len(rows):
        return None
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(host["shapes"][rows], return_index=True)[1]] = True
    own, launched = _own_ns(trace, rows), launched_count(trace)[rows]
    counts = rows_in_steps(trace, host)[rows]
    new, twins = first & counts, ~first & counts
    if not new.any() or twins.sum() < FEWEST_TWINS or launched[new].max() > launched[twins].max():
        return None
    new_ns, twin_ns = float(np.median(own[new])), float(np.median(own[twins]))
    if new_ns < max(LEAST_NS, TWIN_RATIO * twin_ns) or not _go_on(trace, rows[new]):
        return None
    return _Prepared(trace.names[name], rows[new], new_ns, twin_ns, (trace, rows[new]))


def _go_on(trace: Trace, rows: Rows) -> bool:
    """Whether so many of the steps after the first recorded one have such a call."""
    host, found = trace.host_ops, steps(trace)
    assert host is not None
    step = np.searchsorted(found.host_start_ns, host["start_ns"][rows], "right") - 1
    return len(distinct(step[step > 0])) >= STEPS_RATIO * (len(found.number) - 1)


def _own_ns(trace: Trace, rows: Rows) -> Ints:
    """Time of these rows outside of what they call, of waits for the device, and of buying
    memory."""
    host, calls, waits = trace.host_ops, trace.api_calls, host_waits(trace)
    assert host is not None
    assert calls is not None
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, parents(host), host["duration_ns"])
    np.add.at(inside, waits.host_op, waits.took_ns)
    bought: Mask = calls["kind"] == ApiKind.MALLOC
    np.add.at(inside, calls.filled("host_op", len(host))[bought], calls["duration_ns"][bought])
    own: Ints = np.maximum(host["duration_ns"][rows] - inside[rows], 0)
    return own


def _finding(trace: Trace, found: list[_Prepared]) -> Found:
    most = found[0]
    named, rows = most.named
    assert named.host_ops is not None
    times = per_step(trace, len(most.rows))
    took = named.host_ops["duration_ns"][rows].astype(np.int64)
    place, _ = busiest_place(named, rows, took)
    spent = sum(per_step(trace, int(_own_ns(trace, one.rows).sum())) for one in found)
    attention = [one for one in found if CUDNN_ATTENTION.fullmatch(one.name)]
    slower = at_most(trace, *attention[0].named) if attention else None
    used = tuple(
        ScaleHostSpans(one.rows, min(one.twin_ns / max(one.new_ns, 1.0), 1.0)) for one in found
    )
    others = len(found) - 1
    return Found(
        summary=(
            f"{most.name} takes the host {duration(round(most.new_ns))} for each new shape of its"
            f" inputs, and {duration(round(most.twin_ns))} for one that it had before: {times:.3g}"
            f" new one{'s' if times != 1 else ''} a step{f' in {place}' if place else ''}"
            + (f"; {others} more operator{'s' * (others > 1)} likewise" if others else "")
        ),
        evidence=(
            Evidence("host time of calls with a new shape", round(spent), "ns per step"),
            Evidence("calls with a new shape", round(times, 2), "per step"),
            Evidence("of such a call, itself", round(most.new_ns), "ns"),
            Evidence("of one with a shape that it had before", round(most.twin_ns), "ns"),
            *(Evidence("shapes", text, "words") for text in _shapes(named, rows)),
        ),
        cost_ns_per_step=round(spent),
        changes=used if slower is None else (*used, slower),
        at_best=() if slower is None else used,
        location=place,
        fix=_FIX_ATTENTION if attention else _FIX,
        hint=_HINT_ATTENTION if attention else None,
    )


_FIX = (
    "Keep to a few shapes: pad to multiples of 64, say, or hand over the whole buffer with a mask"
)
_FIX_ATTENTION = (
    "Let another backend compute this attention, which prepares nothing for a length; or keep to a"
    " few lengths: pad them, or hand over the whole buffer with a mask"
)
_HINT_ATTENTION = "torch.backends.cuda.enable_cudnn_sdp(False)  # once, at the start"


def _shapes(trace: Trace, rows: Rows) -> list[str]:
    """The first and the last one, as recorded."""
    host = trace.host_ops
    assert host is not None
    texts = (trace.text(host, "shapes", int(row)) for row in (rows[0], rows[-1]))
    return [text.replace(",[]", "") for text in texts if text is not None]
