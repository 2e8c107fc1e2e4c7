"""Operators on CPUs beside another way whose time is known; 10 ms of steps of 20 ms."""

import json
from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.evidence.other_ways import other_ways
from pinchpoint.trace import RunFacts

MS = 1_000_000
MILLION = [1000, 1000]


def steps_of(*operators, steps=6, features=()):
    """``operators``: name, milliseconds, shapes of the inputs, types."""
    b = TraceBuilder(devices=[])
    for step in range(steps):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        b.python("train.py(5): train", at + 1, 20 * MS - 10)
        now = at + 1000
        for name, ms, shapes, types in operators:
            b.op(name, now, round(ms * MS), shapes=json.dumps(shapes), dtypes=json.dumps(types))
            now += round(ms * MS) + 1000
    return replace(b.trace(), run=RunFacts(cpu_features=features))


def said(trace):
    return [r for r in diagnose(trace).found if r.id == "cpu-slow-operator"]


def test_a_draw_that_takes_three_times_what_another_one_does():
    """1,000,000 numbers in 14 ms: 14 ns each, where 3.5 would do, a quarter more on a slower core:
    20 ms become 10.375."""
    (one,) = said(steps_of(("aten::exponential_", 14, [MILLION, []], ["float", ""])))
    assert "14 ns for each element in the fastest calls" in one.finding.summary
    assert "-torch.rand_like(x).log()" in one.finding.fix
    assert one.predicted.step_ns == pytest.approx(10.375 * MS, rel=0.06)
    assert one.finding.confidence == "medium"


def test_indexing_is_told_with_its_backward_pass():
    """How much indexing reads only its backward pass shows: 1,600,000 numbers in 1.6 ms each."""
    table, rows = [4000, 64], [25000, 64]
    forward = ("aten::index", 1.6, [table, []], ["float", ""])
    backward = ("aten::_index_put_impl_", 1.6, [table, [], rows], ["float", "", "float"])
    (one,) = said(steps_of(forward, backward))
    assert one.finding.cost_ns_per_step == 3_200_000
    assert "index_select" in one.finding.fix
    assert said(steps_of(forward)) == []


def test_what_holds_under_a_condition_may_win_nothing():
    (one,) = said(steps_of(("aten::sort", 14, [MILLION, [], []], ["float", "", ""])))
    assert "where only the values in their order are wanted" in one.finding.summary
    assert one.finding.confidence == "low"
    assert one.predicted.range_ns[1] == 20 * MS


def test_what_a_feature_of_the_processor_allows_is_surer():
    """Rows of 1000 are sorted in vectors where there are some: 14 ns each, not 4.5 for values."""
    rows = ("aten::sort", 60 / 4, [[300, 1000], [], []], ["float", "", ""])
    (one,) = said(steps_of(rows, features=("avx512f",)))
    assert "another way takes 14 on one core" in one.finding.summary
    assert one.finding.confidence == "medium"
    long = ("aten::sort", 15, [[300000], [], []], ["float", "", ""])
    assert "4.5" in said(steps_of(long, features=("avx512f",)))[0].finding.summary


def inside(around):
    """A sort of 14 ms inside of another operator."""
    b = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        b.op(around, at + 1000, 15 * MS)
        b.op("aten::sort", at + 2000, 14 * MS, shapes="[[1000, 1000], []]", dtypes='["float", ""]')
    return b.trace()


def test_what_an_operator_does_inside_of_itself_is_not_chosen():
    for around, told in (("aten::argsort", 1), ("aten::_embedding_bag_dense_backward", 0)):
        assert sum("another way" in r.finding.summary for r in said(inside(around))) == told


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(("aten::exponential_", 6, [MILLION, []], ["float", ""]), id="fast here"),
        pytest.param(("aten::exponential_", 0.7, [[50000]], ["float"]), id="little of the step"),
        pytest.param(("aten::exp", 2, [MILLION], ["float"]), id="another type"),
        pytest.param(("aten::gather", 14, [[9], [], [3000000, 1]], ["float"] * 3), id="no rows"),
        pytest.param(("aten::var", 14, [], []), id="no shapes"),
    ],
)
def test_it_stays_quiet(operator):
    assert said(steps_of(operator)) == []


def test_entries_are_whole_and_each_is_the_first_for_its_example():
    for entry in other_ways():
        first = next(one for one in other_ways() if one.fits(entry.example))
        assert first.operators == entry.operators or first.feature
        assert entry.why[0].islower()
        assert entry.instead[0].isupper()
        assert not entry.instead.endswith(".")
        assert 2 * entry.ns_per_element < entry.operator_ns_per_element < 100
