"""What a rule found and the engine dropped says why: small, or explained by another finding."""

import numpy as np
import pytest

from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.diagnosis import engine
from pinchpoint.diagnosis.finding import Found, NotShown
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.registry import Known
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.errors import UsageError
from pinchpoint.report import diagnose
from pinchpoint.report.findings import chosen
from program import Program

STEP_US = 1_000


def program():
    """Ten steps of 1 ms in which the device waits for the host."""
    p = Program()
    for _ in p.steps(10):
        p.busy(STEP_US - 5)
        p.kernel("gemm", 2)
    return p.trace()


def waste(id_, from_us, to_us, **declared):
    """A rule that finds a stretch of the host's time in every step."""

    def check(trace):
        begin = trace.steps["start_ns"].astype(np.int64)
        change = RemoveHostTime(begin + 1_000 * from_us, begin + 1_000 * to_us)
        cost = 1_000 * (to_us - from_us)
        yield Found(summary="", evidence=(), cost_ns_per_step=cost, changes=(change,))

    return Known(id_, Rule(needs=(), record=RUN_FOLDER, **declared), check)


@pytest.fixture
def report(monkeypatch):
    def of(*known):
        monkeypatch.setattr(engine, "rules", lambda: {one.id: one for one in known})
        return diagnose(program())

    return of


def test_a_cause_that_wins_little_is_small_and_not_clear(report):
    said = report(waste("large", 100, 500), waste("small", 600, 610))
    assert [f.id for f in said.findings] == ["large"]
    assert said.not_shown == (NotShown(id="small", why="smaller than 3 % of the step"),)
    assert said.clear == ()


def test_the_same_time_is_explained_once(report):
    said = report(waste("b", 100, 500), waste("a", 100, 600), waste("c", 700, 800))
    assert [f.id for f in said.findings] == ["a", "c"]
    assert said.not_shown == (NotShown(id="b", why="covered by a", covered_by=("a",)),)


def test_two_findings_may_cover_a_third_together(report):
    said = report(waste("a", 100, 500), waste("b", 500, 850), waste("both", 350, 650))
    assert [f.id for f in said.findings] == ["a", "b"]
    assert said.not_shown[0].covered_by == ("a", "b")
    assert said.not_shown[0].why == "covered by a and b"


def test_a_general_cause_is_covered_by_the_specific_one(report):
    said = report(waste("general", 100, 500), waste("special", 100, 480, parent="general"))
    assert [f.id for f in said.findings] == ["special"]
    assert said.not_shown == (
        NotShown(id="general", why="covered by special", covered_by=("special",)),
    )


def test_who_asks_for_it_is_told_why(report):
    said = report(waste("large", 100, 500), waste("small", 600, 610))
    with pytest.raises(UsageError, match="small was found, and is smaller than 3 % of the step"):
        chosen(said, "small")
