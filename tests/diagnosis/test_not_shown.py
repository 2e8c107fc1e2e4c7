"""What a rule found and the engine dropped says why: small, or explained by another finding."""

import numpy as np
import pytest

from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.diagnosis import engine, ladder
from pinchpoint.diagnosis.finding import Found, NotShown
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.registry import Known
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.errors import UsageError
from pinchpoint.report import diagnose
from pinchpoint.report.assemble.findings import chosen
from program import Program

KERNELS_US = {"A": 200, "B": 150, "C": 200, "D": 150, "E": 10, "F": 290}  # 1 ms a step


def program():
    """Ten steps that the device bounds, with six kernels each."""
    p = Program()
    for _ in p.steps(10):
        for name, takes_us in KERNELS_US.items():
            p.kernel(name, takes_us)
        p.sync()
    return p.trace()


def waste(id_, kernels, **declared):
    """A rule that finds some of the kernels, such as ``AB``, superfluous."""

    def check(trace):
        names = [trace.text(trace.device_ops, "name", i) for i in range(len(trace.device_ops))]
        rows = np.array([row for row, name in enumerate(names) if name in list(kernels)])
        cost = 1_000 * sum(KERNELS_US[kernel] for kernel in kernels)
        change = ScaleDeviceOps(rows, 0.0)
        yield Found(summary="", evidence=(), cost_ns_per_step=cost, changes=(change,))

    return Known(id_, Rule(needs=(), record=RUN_FOLDER, **declared), check)


@pytest.fixture
def report(monkeypatch):
    def of(*known):
        for module in (engine, ladder):
            monkeypatch.setattr(module, "rules", lambda: {one.id: one for one in known})
        return diagnose(program())

    return of


def test_a_cause_that_wins_little_is_small_and_not_clear(report):
    said = report(waste("large", "AB"), waste("small", "E"))
    assert [f.id for f in said.findings] == ["large"]
    (small,) = said.not_shown
    assert (small.id, small.why) == ("small", "smaller than 3 % of the step: 0.9 %")
    assert small.step_ratio == pytest.approx(10 / 1008, rel=0.01)
    assert said.clear == ()


def test_of_what_may_be_won_too_little_is_sure(report, monkeypatch):
    """35 µs of 1025, which replay may be wrong by a quarter of."""
    monkeypatch.setitem(KERNELS_US, "E", 35)
    (small,) = report(waste("large", "AB"), waste("small", "E")).not_shown
    assert (small.id, small.why) == ("small", "not surely 3 % of the step: 3.4 %")


def test_the_same_time_is_explained_once(report):
    said = report(waste("a", "AB"), waste("b", "A"), waste("c", "D"))
    assert [f.id for f in said.findings] == ["a", "c"]
    assert said.not_shown == (NotShown(id="b", why="covered by a", covered_by=("a",)),)


def test_two_findings_may_cover_a_third_together(report):
    said = report(waste("a", "AB"), waste("b", "CD"), waste("both", "BD"))
    assert {f.id for f in said.findings} == {"a", "b"}
    assert set(said.not_shown[0].covered_by) == {"a", "b"}


def test_a_general_cause_is_covered_by_the_specific_one(report):
    said = report(waste("general", "AB"), waste("special", "A", parent="general"))
    assert [f.id for f in said.findings] == ["special"]
    assert said.not_shown == (
        NotShown(id="general", why="covered by special", covered_by=("special",)),
    )


def test_who_asks_for_it_is_told_why(report):
    said = report(waste("large", "AB"), waste("small", "E"))
    with pytest.raises(UsageError, match="small was found, and is smaller than 3 % of the step"):
        chosen(said, "small")
