"""What the driver keeps does not grow with ranks beyond a row of numbers each."""

import numpy as np
import pytest

from pinchpoint.analysis.ranks.clocks import ANCHORS, FEWEST_ANCHORS, MOST_ANCHORS, anchors_a_rank
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.own_time import (
    FEWEST_STEPS,
    MOST_CELLS,
    MOST_STEPS,
    FactsOf,
    RankTable,
)
from pinchpoint.analysis.ranks.summarise import summarise
from rank_traces import Job


@pytest.fixture(scope="module")
def summaries():
    return [summarise(trace) for trace in Job(ranks=3).traces()]


def test_a_rank_is_given_back_as_it_was(summaries):
    ranks = RankTable()
    for summary in summaries:
        ranks.add(summary)
    assert [r.rank for r in ranks] == [0, 1, 2]
    one, said = ranks[1], summaries[1]
    assert (one.device, one.backend, one.refused) == (said.device, said.backend, None)
    assert (one.world_size, one.events) == (said.world_size, said.events)
    assert (one.calls, one.stride, one.truncated) == (said.calls.in_all, 1, False)
    assert one.corrected_step_ns == said.corrected_step_ns
    assert one.end_ns > one.begin_ns
    assert [r.rank for r in ranks[1:]] == [1, 2]
    with pytest.raises(IndexError):
        ranks[3]


def test_a_rank_costs_a_row_of_numbers(summaries):
    ranks = RankTable()
    for _ in range(100):
        ranks.add(summaries[0])
    kept = ranks.numbers.itemsize * len(ranks.numbers) + ranks.words.itemsize * len(ranks.words)
    assert kept <= 110 * len(ranks)
    assert len(ranks.text) <= 3


@pytest.mark.parametrize("ranks", [1, 1_000, 20_000, 1_000_000])
def test_more_ranks_have_fewer_anchors_and_steps(ranks):
    each = anchors_a_rank(ranks)
    assert FEWEST_ANCHORS <= each <= ANCHORS
    assert each * ranks <= max(MOST_ANCHORS, FEWEST_ANCHORS * ranks)
    facts = FactsOf(seen=ranks, with_steps=ranks)
    facts.completed.update(dict.fromkeys(range(200), ranks))
    steps = facts._common_steps()
    assert steps[-1] == 199
    assert FEWEST_STEPS <= len(steps) <= MOST_STEPS
    assert len(steps) * ranks <= max(MOST_CELLS, FEWEST_STEPS * ranks)


def test_few_replayed_marks_give_the_same_answer(monkeypatch):
    job = Job(ranks=4, steps=8, work_ms=lambda rank, step: 14.0 if (rank, step) == (1, 4) else 10.0)
    found = [summarise(trace) for trace in job.traces()]
    whole = reduce(lambda: iter(found)).replay
    monkeypatch.setattr("pinchpoint.analysis.ranks.rendezvous.ENOUGH_MARKS", 1)
    short = reduce(lambda: iter(found)).replay
    assert whole is not None
    assert short is not None
    assert short.marks.steps == 1
    assert whole.marks.steps > 1
    assert np.isclose(short.base_ns, whole.base_ns, rtol=0.05)
