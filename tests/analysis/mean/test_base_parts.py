"""The parts of the step that gains count from: one step, whatever makes the mean another one."""

from dataclasses import replace

import pytest

from exceptional_programs import now_and_then, two_kinds
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.documents.clock import as_recorded
from pinchpoint.report.words.breakdown import all_parts, breakdown_title
from pinchpoint.report.words.steps import base_ns
from pinchpoint.trace import RunFacts

MS = 1_000_000


def parts(report):
    return {part.part: ns for part, ns in all_parts(report)}


@pytest.mark.parametrize(
    "trace",
    [
        now_and_then("checkpoint", (3, 8, 13), steps=16),
        now_and_then("python", (0, 1)),  # a slow beginning, which is not the mean's
        two_kinds(),
        replace(now_and_then("python", ()), run=RunFacts(unprofiled_step_ns=(14 * MS,) * 20)),
    ],
)
def test_parts_and_gains_count_from_one_step(trace):
    said = diagnose(trace)
    for shown in (said, as_recorded(said)):
        assert sum(parts(shown).values()) == base_ns(shown)
        assert all(ns > 0 for ns in parts(shown).values())


def test_what_exceptions_take_is_in_the_part_that_they_are():
    said = diagnose(now_and_then("checkpoint", (3, 8, 13), steps=16))
    assert parts(said)["idle-checkpoint"] == pytest.approx(20 * MS, rel=0.01)
    assert breakdown_title(said) == "Where a step goes, on average, without the profiler"


def test_what_the_recorded_steps_do_not_show_is_a_part_of_its_own():
    """Steps of 10 ms were recorded; those that the run timed take 14, and a few of them 100."""
    run = RunFacts(unprofiled_step_ns=(14 * MS,) * 19 + (100 * MS,))
    said = diagnose(replace(now_and_then("python", ()), run=run))
    assert base_ns(said) == pytest.approx(18.3 * MS)
    outside = [part for part in said.breakdown if part.group == "outside"]
    assert [part.ns_per_step for part in outside] == [0]
    assert parts(said)["not-recorded"] == pytest.approx(8.3 * MS, rel=0.02)
    assert "not-recorded" not in parts(as_recorded(said))
