"""Operators that the CPU computes, and those that only look like it."""

import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import ApiKind


def recorded(*operators, launches=()):
    """Operators one after the other, in µs; those at ``launches`` call the runtime."""
    b, at = TraceBuilder(), 0
    b.api("cudaStreamIsCapturing", 10**9, 10, kind=ApiKind.QUERY)
    for number, (name, us) in enumerate(operators):
        b.op(name, at, us * 1000)
        if number in launches:
            b.launch(at=at + 100, takes=100, kernel="k", runs_at=at + 300, for_ns=100)
        at += us * 1000 + 10
    return b.trace()


def test_a_long_operator_that_calls_nothing_computes_on_the_host():
    trace = recorded(("aten::sort", 900), ("aten::sort", 900), launches=(1,))
    assert computed_on_host(trace).tolist() == [True, False]
    assert activity(trace)[:2].tolist() == [GapKind.HOST_COMPUTE, GapKind.DISPATCH]


def test_short_ones_and_views_are_dispatched():
    assert not computed_on_host(recorded(("aten::add", 50), ("aten::view", 900))).any()


def test_one_of_many_that_is_long_was_held_up():
    assert not computed_on_host(recorded(*[("aten::add", 20)] * 30, ("aten::add", 2000))).any()


def test_without_runtime_calls_nothing_tells():
    b = TraceBuilder()
    b.op("aten::sort", 0, 900_000)
    assert np.array_equal(computed_on_host(b.trace()), [False])
