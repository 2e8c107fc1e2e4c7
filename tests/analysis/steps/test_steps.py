from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import completions, steps
from pinchpoint.trace import ApiKind, Source


def marked(*spans, work=()):
    """Steps at the given (start, length); kernels as (launched at, runs at, for)."""
    b = TraceBuilder()
    for number, (at, takes) in enumerate(spans, start=5):
        b.step(number, at, takes)
    for at, runs_at, for_ns in work:
        b.launch(at, 1, "gemm", runs_at, for_ns)
    return b.trace()


def test_a_step_runs_from_completion_to_completion_though_the_host_runs_ahead():
    trace = marked((0, 10), (10, 10), (20, 10), work=[(1, 5, 100), (11, 105, 100), (21, 205, 100)])
    found = steps(trace)
    assert found.how == "marker"
    assert found.number.tolist() == [5, 6, 7]
    assert found.start_ns.tolist() == [0, 105, 205]
    assert found.end_ns.tolist() == [105, 205, 305]
    assert found.complete.tolist() == [False, True, True]
    assert found.durations_ns.tolist() == [100, 100]
    assert found.typical_ns == 100


def test_a_step_ends_with_its_host_span_if_that_is_later():
    trace = marked((0, 50), (50, 50), work=[(1, 2, 10), (51, 52, 10)])
    assert steps(trace).end_ns.tolist() == [50, 100]


def test_work_launched_between_markers_belongs_to_the_next_window():
    trace = marked((0, 10), (40, 10), (80, 10), work=[(20, 22, 5), (60, 62, 5)])
    found = steps(trace)
    assert found.start_ns.tolist() == [0, 10, 50]
    assert found.end_ns.tolist() == [10, 50, 90]


def test_without_a_device_a_step_is_its_host_span():
    found = steps(marked((0, 10), (10, 20), (30, 10)))
    assert found.durations_ns.tolist() == [20, 10]


def test_of_two_markers_for_one_step_the_outer_counts():
    found = steps(marked((0, 10), (2, 5), (10, 10)))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("lasting", "chosen", "typical_ns"),
    [
        pytest.param([10, 11, 12, 13], [11, 12], 12, id="middle half, mean rounded half up"),
        pytest.param([10, 11, 12], [11], 11, id="median of three"),
        pytest.param([10, 14], [10, 14], 12, id="both of two"),
        pytest.param([10, 100], [10, 100], 55, id="two unlike: all"),
        pytest.param([5, 60, 5, 60, 5, 60], [5, 60, 5, 60, 5, 60], 33, id="bursts: all"),
        pytest.param([90, 80, 70, 40, 31, 30], [31], 31, id="settling: the later half"),
        pytest.param(
            [*range(240, 0, -20)], [*range(240, 0, -20)], 130, id="work that shrinks: all"
        ),
    ],
)
def test_typical_steps(lasting, chosen, typical_ns):
    edges = np.concatenate(([0, 1], 1 + np.cumsum(lasting))).tolist()
    spans = [(a, b - a) for a, b in pairwise(edges)]
    found = steps(marked(*spans))
    assert found.durations_ns.tolist() == lasting
    assert (found.end_ns - found.start_ns)[found.typical].tolist() == chosen
    assert found.typical_ns == typical_ns


def test_the_only_step_is_partial_and_still_gives_a_time():
    found = steps(marked((0, 10), work=[(1, 5, 20)]))
    assert not found.complete.any()
    assert found.typical_ns == 25
    assert found.spread_ns is None


def test_outliers_are_far_from_the_median_on_both_scales():
    lasting = [100, 101, 99, 100, 100, 250, 104]
    edges = np.concatenate(([0, 1], 1 + np.cumsum(lasting))).tolist()
    found = steps(marked(*[(a, b - a) for a, b in pairwise(edges)]))
    assert found.outliers == (6,)
    assert found.spread_ns == (100, 162)


def test_a_step_with_lost_device_work_is_not_complete():
    b = TraceBuilder()
    for number in range(4):
        b.step(number, number * 100, 100)
        for i in range(10):
            at = number * 100 + i * 5
            if number == 3 and i > 4:
                b.api("cudaLaunchKernel", at, 1, kind=ApiKind.LAUNCH)
            else:
                b.launch(at, 1, "gemm", at + 2, 1)
    assert steps(b.trace()).complete.tolist() == [False, True, True, False]


def test_the_last_step_of_a_cut_off_file_is_not_complete():
    b = TraceBuilder()
    for number in range(3):
        b.step(number, number * 10, 10)
        b.launch(number * 10, 1, "gemm", number * 10 + 2, 1)
    found = steps(b.trace(source=Source("cut", "test", truncated=True)))
    assert found.complete.tolist() == [False, True, False]


def test_completions_never_run_backwards():
    trace = marked((0, 10), (10, 10), work=[(1, 50, 100), (11, 20, 5)])
    done, complete = completions(trace, np.array([0, 10]), np.array([10, 20]))
    assert done.tolist() == [150, 150]
    assert complete.all()


def test_without_repetition_all_that_the_device_did_is_one_window():
    b = TraceBuilder()
    b.op("aten::mm", 10, 20)
    b.launch(12, 2, "gemm", 20, 100)
    found = steps(b.trace())
    assert found.how == "none"
    assert "only 1 launch" in found.basis
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([20], [120])
    assert found.typical_ns == 100
    assert not found.complete.any()


def test_a_trace_without_events_has_no_window():
    found = steps(TraceBuilder().trace())
    assert len(found) == 0
    assert found.typical_ns is None


def test_of_a_file_cut_off_only_steps_with_all_their_device_work_are_complete():
    spans = [(10 * i, 10) for i in range(5)]
    work = [
        (10 * i + k, 10 * i + k + 1, 1) for i, n in enumerate([4, 4, 2, 4, 4]) for k in range(n)
    ]
    whole = marked(*spans, work=work)
    assert steps(whole).complete.tolist() == [False, True, True, True, True]
    cut = replace(whole, source=Source("broken", "test", truncated=True))
    assert steps(cut).complete.tolist() == [False, True, False, True, False]
