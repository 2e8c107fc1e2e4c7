"""What operators wait for cores that others have, and what is said of a change then."""

from dataclasses import replace

import numpy as np
import pytest

from builders import TraceBuilder, with_what_goes
from pinchpoint.analysis.limits.on_cpu import cpu_pieces, fair_ratio, held_up
from pinchpoint.analysis.mean.on_cpu import fair_step_ratio, what_if_on_cpu
from pinchpoint.trace import RunFacts
from pinchpoint.trace import intervals as iv

MS = 1_000_000
SMALL = {"shapes": "[[64, 64], [64, 64]]", "dtypes": '["float", "float"]'}


def _trace(took_ms, *, named=True, **facts):
    """Steps of 20 ms: Python for two, then products that take what is said, one after the other."""
    built = TraceBuilder(devices=[])
    for step in range(4):
        at = step * 20 * MS
        built.step(step, at, 20 * MS)
        then = at + 2 * MS
        for ms in took_ms:
            built.op("aten::mm", then, ms * MS, **(SMALL if named else {}))
            then += ms * MS
    return replace(built.trace(), run=RunFacts(**facts))


def test_waits_are_what_a_call_takes_beyond_the_fastest_of_its_kind():
    waits = held_up(_trace((1, 8, 8)))
    whole = waits.within(np.array([20 * MS]), np.array([40 * MS]))
    # Each takes as long as the fastest, and no more than a few times what its work needs.
    assert 14 * MS <= whole < 17 * MS
    half = waits.within(np.array([23 * MS]), np.array([27 * MS]))  # of the first of eight
    assert half == pytest.approx(4 * MS * (1 - (17 * MS - whole) / 3 / (8 * MS)), rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_trace((8, 8)), id="all alike"),
        pytest.param(_trace((1, 8, 8), named=False), id="inputs are not known"),
    ],
)
def test_nothing_waits_where_calls_do_not_tell(trace):
    assert held_up(trace) is None
    assert fair_step_ratio(trace) == 1.0


def test_what_the_run_measured_counts_where_calls_are_all_alike():
    trace = _trace((8, 8), disturbed=("the machine was busy",))
    assert fair_step_ratio(trace) < 0.3  # small products, held up for milliseconds


def test_the_range_has_what_a_change_wins_alone_and_what_it_wins_among_others():
    python = [(1.0, iv.flatten(np.arange(4) * 20 * MS, np.arange(4) * 20 * MS + 2 * MS))]
    alone = what_if_on_cpu(_trace((8, 8)), python)
    among = what_if_on_cpu(_trace((8, 8), disturbed=("busy",)), python)
    middle_ns = with_what_goes(20 * MS, 18 * MS)
    assert (alone.step_ns, alone.range_ns) == (middle_ns, (17.2 * MS, 18.6 * MS))
    # Two of twenty as it is; two of four and less without the waits of its products.
    assert among.step_ns == middle_ns
    assert among.range_ns[0] < 14 * MS
    assert among.range_ns[1] == round(18.6 * MS)
    assert among.bound_ns <= among.range_ns[0]


@pytest.mark.parametrize("rest_ms", [(18, 18, 17, 18, 19, 18, 18), (18,) * 7])
def test_what_usually_goes_with_a_cause_counts_whether_steps_differ_or_not(rest_ms):
    """4 ms of each step go, and 0.14 of that with them: the quickest of few steps is no quicker."""
    built, at, spans = TraceBuilder(devices=[]), 0, []
    for step, ms in enumerate(rest_ms):
        built.step(step, at, (4 + ms) * MS)
        built.op("aten::sort", at, 4 * MS)
        built.op("aten::mm", at + 4 * MS, ms * MS)
        spans.append((at, at + 4 * MS))
        at += (4 + ms) * MS
    start, end = np.array(spans).T
    after = what_if_on_cpu(built.trace(), [(1.0, iv.flatten(start, end))])
    assert after.saving_ns == pytest.approx(1.14 * 4 * MS)
    assert after.range_ns[0] == pytest.approx(after.base_ns - 1.4 * 4 * MS)


def test_inputs_of_another_window_have_names_of_their_own():
    bare = _trace((1, 8, 8), named=False)
    other = _trace((1, 8, 8))
    trace = replace(bare, run=RunFacts(named=other))
    assert fair_ratio(trace, np.ones(len(trace.host_ops), np.bool_), scarce=True) <= 1.0


@pytest.mark.parametrize(
    ("strides", "known"), [("[[64, 1], [64, 1]]", True), ("[[], [64, 1]]", False)]
)
def test_the_shape_of_a_sparse_matrix_is_no_limit(strides, known):
    builder = TraceBuilder(devices=[])
    for step in range(3):
        builder.step(step, step * 20_000_000, 20_000_000)
        shapes, dtypes = "[[64, 64], [64, 64]]", '["float", "float"]'
        given = {"shapes": shapes, "dtypes": dtypes, "strides": strides}
        builder.op("aten::mm", step * 20_000_000 + 1_000, 10_000_000, **given)
    (piece,) = cpu_pieces(builder.trace())
    assert (piece.limit_ns is not None) is known
