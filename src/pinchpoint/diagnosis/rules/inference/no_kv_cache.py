"""The whole prefix goes through the model again for each new token.

## What it looks for
Inference whose attention has queries as long as its keys, and longer by one from step to step, or
from pass to pass within a step that generates several tokens. Prompts of many lengths do not grow
by one in order; queries of one token read a cache. Not checked without shapes of attention.

## Why it matters
With a cache of keys and values a step computes one token; without, it computes all of them, and
the work for a sequence grows with the square of its length. Each new length also means new shapes,
for which libraries choose and build kernels anew.

## How to fix it
Cache keys and values (`use_cache=True`, a static cache), and feed only the new token.

## When to ignore it
Prefill: a prompt has to be computed once.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.analysis.replay import AddHostTime, RemoveHostTime, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, rows_in_steps
from pinchpoint.analysis.work.passes import GrowingPasses, growing_passes
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.attainable import attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import place_until
from pinchpoint.diagnosis.evidence.host_spans import beyond_usual, outermost
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops", "device_ops"),
    record=SHAPES,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python generate.py" "python generate_cached.py"',
)

FEWEST_STEPS = 2  # to see a length grow
# Below it a prefix costs hardly more than one token, both being bound by weights.
SHORTEST_PREFIX = 16
ATTENTION_HOST_NS = 100_000  # host time of one attention call whose shape is known already
CACHE_WRITE_NS = 20_000  # host time of writing a token's key and value, two eager operators
ONE_TOKEN_RATIO = 0.05  # device time of one token against a prefix, but for reading weights


def check(trace: Trace) -> Iterator[Found]:
    """Growing queries."""
    work = workload(trace)
    if work.trains:
        return
    lengths = work.query_lengths
    if not lengths:
        raise NotChecked("no attention with recorded shapes")
    growing = len(lengths) >= FEWEST_STEPS and set(np.diff(lengths).tolist()) == {1}
    if not growing or lengths != work.key_lengths or lengths[0] < SHORTEST_PREFIX:
        yield from _within_steps(trace)
        return
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    attention = rows_named(trace, host, lambda name: "scaled_dot_product" in name)
    rows = np.flatnonzero(outermost(trace, attention) & rows_in_steps(trace, host))
    usual = float(np.mean(host["duration_ns"][rows])) if len(rows) else 0.0
    first = int(rows[0])
    yield Found(
        summary=(
            f"Each step computes the whole prefix again: {lengths[0]} to {lengths[-1]} tokens,"
            " one more a step"
        ),
        evidence=(
            Evidence("query length, first step", lengths[0], "tokens"),
            Evidence("query length, last step", lengths[-1], "tokens"),
            Evidence(
                "host time of an attention call",
                round(usual),
                "ns",
                int(host["start_ns"][first]),
                trace.text(host, "name", first),
            ),
        ),
        cost_ns_per_step=None,
        changes=(
            *_of_one_token(trace, np.flatnonzero(device_ops_in_steps(trace))),
            _new_shapes(trace, rows),
            AddHostTime(_first_calls(trace, rows), CACHE_WRITE_NS),
        ),
        location=place_until(trace, first, _last_of_step_ns(trace, rows)),
        fix="Cache keys and values, and feed only the new token",
        hint="model.generate(..., use_cache=True)",
    )


def _within_steps(trace: Trace) -> Iterator[Found]:
    """Passes of one step, each over one token more than the pass before."""
    passes = growing_passes(trace)
    if passes is None or passes.lengths[0] < SHORTEST_PREFIX:
        return
    host = trace.host_ops
    assert host is not None
    first, last = passes.lengths[0], passes.lengths[-1]
    yield Found(
        summary=(
            f"Each step computes the whole prefix {len(passes.lengths)} times: {first} to {last}"
            " tokens, one more a pass"
        ),
        evidence=(
            Evidence("query length, first pass", first, "tokens"),
            Evidence(
                "query length, last pass", last, "tokens", int(host["start_ns"][passes.second])
            ),
        ),
        changes=tuple(_of_one_token(trace, passes.later_ops)),
        location=place_until(trace, passes.second, _last_pass_ns(trace, passes)),
        fix="Cache keys and values, and feed only the new token",
        hint="model.generate(..., use_cache=True)",
    )


def _last_of_step_ns(trace: Trace, rows: Rows) -> int:
    """When the last of these rows that is in the first one's step begins."""
    assert trace.host_ops is not None
    start = trace.host_ops["start_ns"][rows]
    step = judged_steps(trace).step_of(start)
    return int(start[step == step[0]].max())


def _last_pass_ns(trace: Trace, passes: GrowingPasses) -> int:
    """When the last work of the first step's passes is launched."""
    host, windows = trace.host_ops, judged_steps(trace)
    assert host is not None
    launched = issued(trace).start_ns[passes.later_ops]
    step = windows.step_of(host["start_ns"][[passes.second]])
    return int(launched[windows.step_of(launched) == step].max(initial=0))


def _of_one_token(trace: Trace, rows: Rows) -> Iterator[ScaleDeviceOps]:
    """Device work of the new token alone: products read their weights, whatever they compute."""
    well, shares = attainable(trace), {"flops_left": ONE_TOKEN_RATIO, "bytes_left": ONE_TOKEN_RATIO}
    weighted = np.zeros(0, np.bool_)
    if well is not None:
        weighted = ~np.isnan(launched_calls(trace).numbers(well.weights_ns)[rows])
        yield scaled(trace, rows[weighted], well.weights_ns, ONE_TOKEN_RATIO, **shares)
    rest = rows[~weighted] if well is not None else rows
    yield ScaleDeviceOps(rest, ONE_TOKEN_RATIO, **shares)


def _new_shapes(trace: Trace, attention: Rows) -> RemoveHostTime:
    """What operators take longer than usual because their shape is new in every step.

    Layers of one step share their shapes, so the first of them pays and the others show what a
    known shape costs.
    """
    host = trace.host_ops
    assert host is not None
    operators = (host["kind"] == HostKind.OPERATOR) & rows_in_steps(trace, host)
    rows = np.flatnonzero(outermost(trace, operators))
    return beyond_usual(trace, rows, most_ns=np.isin(rows, attention) * ATTENTION_HOST_NS)


def _first_calls(trace: Trace, rows: Rows) -> Rows:
    """The first runtime call inside each of these host rows."""
    host, calls = trace.host_ops, trace.api_calls
    if host is None or calls is None or not len(calls):
        return np.zeros(0, np.intp)
    order = np.flatnonzero(calls["thread"] == main_thread(trace))
    order = order[np.argsort(calls["start_ns"][order], kind="stable")]
    if not len(order):
        return order
    at = np.searchsorted(calls["start_ns"][order], host["start_ns"][rows])
    at = np.minimum(at, len(order) - 1)
    inside = calls["start_ns"][order[at]] < host.end_ns[rows]
    return order[at[inside]].astype(np.intp)
