"""Convolution algorithms are searched again and again.

## What it looks for
Convolution operators that synchronise, time events and buy workspace inside, step after step, as
the search of `torch.backends.cudnn.benchmark=True` does for each new shape. The waits inside
convolutions are the evidence: without a search a convolution never waits, however new its shape.
Memory that other operators free as well is driver-allocations. Not checked without operators and
runtime calls.

## Why it matters
A search runs every candidate and waits for it. It pays when shapes stay; with new sizes in each
step it never ends.

## How to fix it
`torch.backends.cudnn.benchmark = False`, or inputs in a few fixed sizes (padding, buckets). Without
the search each layer still prepares each new size, 1.5 to 4 ms: the gain is that of a search turned
off. Where the sizes go on changing, a few fixed ones win those milliseconds as well.

## When to ignore it
In the first steps, if the shapes repeat afterwards.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.replay import DropDeviceOps, DropSyncs, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    advice=NO_HINT,
)

LEAST_WAITS = 0.5  # waits for each convolution; without a search there are none
OF_MEMORY_RATIO = 0.5  # of the frees; where other operators free as well, it is no search
# What a convolution of a new shape takes on the host without a search: choosing by heuristics and
# building a plan. 1.5 to 1.7 ms with cuDNN 9 beside an H100, 3.0 to 3.6 ms beside an H200.
NEW_SHAPE_NS = 2_200_000


def check(trace: Trace) -> Iterator[Found]:
    """Convolutions that wait inside."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    if host is None or calls is None or ops is None:
        return
    convolutions = named(trace, lambda name: name.startswith("aten::") and "conv" in name)
    convolutions &= host["kind"] == HostKind.OPERATOR
    spans = host_spans(trace, convolutions, "host time of convolutions")
    if spans is None:
        return
    inside = within(parents(host), convolutions)
    waits = host_waits(trace)
    own = waits.rows(WaitReason.INSIDE_OPERATOR)
    memory = waits.rows(WaitReason.MEMORY)
    if inside[waits.host_op[memory]].sum() >= OF_MEMORY_RATIO * len(memory):
        own = np.concatenate((own, memory))
    own = own[inside[waits.host_op[own]]]
    if len(own) < LEAST_WAITS * len(spans.rows):
        return
    mean = float(np.mean(host["duration_ns"][spans.rows]))
    searching = _around(trace, spans.rows, waits.host_op[own])
    waited_ns = int(calls["duration_ns"][waits.api_calls[own]].sum())  # is dropped, not scaled
    searched_ns = (int(host["duration_ns"][searching].sum()) - waited_ns) / max(len(searching), 1)
    plans_ns = per_step(trace, round(len(searching) * min(NEW_SHAPE_NS, max(searched_ns, 0.0))))
    launched = np.flatnonzero(inside[ops.filled("host_op", len(host))])
    tried = launched[_repeats(ops.filled("host_op", len(host))[launched])]
    yield Found(
        summary=(
            f"Convolutions search for their algorithm {_when(trace)}: {duration(mean)} of host"
            f" time each, with {len(own) / len(spans.rows):.1f} waits"
        ),
        evidence=(
            Evidence("waits inside a convolution", round(len(own) / len(spans.rows), 2), "each"),
            *spans.evidence,
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            DropSyncs(waits.api_calls[own]),
            DropDeviceOps(tried),
            ScaleHostSpans(searching, min(1.0, NEW_SHAPE_NS / max(searched_ns, 1.0))),
        ),
        location=spans.place,
        fix=(
            "Turn the search off, or keep to a few input sizes, which wins up to"
            f" {duration(plans_ns)} of plans for new sizes more"
        ),
        hint="torch.backends.cudnn.benchmark = False",
    )


def _when(trace: Trace) -> str:
    if len(steps(trace)) > 1:
        return "in every step"
    return "in all that was recorded, as a first pass always does"


def _around(trace: Trace, rows: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Those of the rows that enclose one of the inner rows."""
    host = trace.host_ops
    assert host is not None
    wanted = np.zeros(len(host), np.bool_)
    wanted[rows] = True
    around = nearest(parents(host), wanted)[inner]
    return np.unique(around[around < len(host)])


def _repeats(operators: np.ndarray) -> np.ndarray:
    """All but the last launch of each operator: the candidates that were tried."""
    last = np.append(operators[1:] != operators[:-1], True)
    return np.flatnonzero(~last)
