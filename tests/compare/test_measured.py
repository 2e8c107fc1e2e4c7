"""A gate once said of a step of 174 ms that it would be 191 ms shorter without a function."""

import json
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.ab.costly_lines import CostlyLine, LineCosts
from pinchpoint.bench.ab.result import MeasureResult
from pinchpoint.compare.measured import agrees, grown, new_at_changed_code, within
from pinchpoint.compare.profiles import CauseOfChange, FindingChange, ProfileComparison, Side
from pinchpoint.compare.worth import ChangedWorth
from pinchpoint.export.sarif import result_sarif
from pinchpoint.report import ci, terminal
from pinchpoint.report.pages.change import with_change
from pinchpoint.report.pages.result import Case, ResultPage, blocks

MS = 1_000_000
STEP = MeasureResult(
    name="step_time_ms",
    label="step time, median",
    unit="ms",
    better="lower",
    gated=True,
    a_median=148.0,
    b_median=174.0,
    pairs=5,
    estimate_ratio=0.176,
    ci95_ratio=(0.12, 0.24),
    sd_pair_log=0.02,
    verdict="regressed",
)
FORWARD = ChangedCode("train.py", "Net.forward", 17, 1, "x = x + self.attend(x)")
MAIN = ChangedCode("train.py", "main", 30, 2, "x = 1")


def _side(ms):
    return Side(
        path="profile",
        format="kineto",
        producer=None,
        devices=(),
        steps=6,
        step_how="markers",
        step_ns=ms * MS,
        launches_per_step=None,
        unprofiled_step_ns=ms * MS,
    )


def _profiles(a_ms, b_ms, *grew):
    """``grew``: what functions are worth before and now, in ms."""
    worth = tuple(
        ChangedWorth(by="line", name=name, a_ns=a * MS, b_ns=b * MS, change_ns=(b - a) * MS)
        for name, a, b in grew
    )
    causes = tuple(
        CauseOfChange(
            id="piece",
            summary=f"Without {one.name} the step would be shorter",
            rests_on="piece",
            change_ns=one.change_ns,
            where=one.name,
        )
        for one in worth
    )
    once = FindingChange(
        id="cpu-unfused-optimizer", summary="s", change="appeared", a_cost_ns=None, b_cost_ns=9 * MS
    )
    return ProfileComparison(
        a=_side(a_ms),
        b=_side(b_ms),
        a_step_ns=a_ms * MS,
        b_step_ns=b_ms * MS,
        change_ns=(b_ms - a_ms) * MS,
        change_ratio=b_ms / a_ms - 1,
        noise_ns=None,
        sure=None,
        parts=(),
        rows=(),
        matched=None,
        causes=causes,
        findings=(once,),
        worth=worth,
    )


def _said(found, code=(), base=None):
    page = with_change(ResultPage("check", "worse", "regressed"), found, STEP, code, base)
    return " ".join(terminal.render(blocks(page)).split())


def test_profiles_that_contradict_the_pairs_tell_nothing():
    found = _profiles(86.8, 206, ("forward (train.py)", 60, 191))
    assert not agrees(found, STEP)
    said = _said(found, (MAIN, FORWARD), "0123456789abcdef")
    assert "Times of the two profiles are not relied on" in said
    assert "whose steps went 86.8 ms → 206 ms (2.37 ×)" in said
    assert "148 ms → 174 ms, 17.6 % worse (95 %: 12.0 to 24.0 % worse)" in said
    assert "191" not in said
    assert "Without" not in said
    assert "cpu-unfused-optimizer" not in said
    assert "Net.forward (train.py:17)" in said
    assert "the commit changed this line: x = x + self.attend(x)" in said
    assert "git diff 0123456789 -- train.py" in said


def test_what_explains_more_than_the_step_changed_by_is_not_said():
    """Of 24 % of 100 ms at most, 40 are none and 17 may be."""
    found = _profiles(100, 118, ("attend (train.py)", 20, 60), ("forward (train.py)", 50, 67))
    assert agrees(found, STEP)
    kept = within(found, STEP)
    assert [one.name for one in kept.worth] == ["forward (train.py)"]
    assert [one.where for one in kept.causes] == ["forward (train.py)"]
    assert kept.findings == ()
    said = _said(found, (MAIN, FORWARD), "0123456789abcdef")
    assert "attend (train.py)" not in said
    assert said.index("Net.forward (train.py:17)") < said.index("main (train.py:30)")
    assert "by the profiles this function costs 67.0 ms of a step, 50.0 ms before" in said


COSTLY = CostlyLine(FORWARD, 19, "x = slow(x)", 0.0, 0.12, 2345)


def test_the_line_that_costs_is_where_everything_points():
    """Of the changed places that one comes first, and profiles that contradict are a note."""
    found = _profiles(86.8, 206)
    page = ResultPage(
        "check of t", "worse", "regressed", cases=(Case("step_time_ms", "fail", "17.6 % worse"),)
    )
    page = with_change(page, found, STEP, (MAIN, FORWARD), "0123456789", LineCosts(COSTLY))
    said = " ".join(terminal.render(blocks(page)).split())
    costs = "Net.forward (train.py:19): this line takes 12.0 % of a step, nothing before: x ="
    assert said.index(costs) < said.index("main (train.py:30)") < said.index("Times of the two")
    assert [text.label for text in page.reasons] == [
        "Net.forward (train.py:19)",
        "main (train.py:30)",
    ]
    (line,) = ci.result_annotations(page).splitlines()
    assert line.startswith("::error file=train.py,line=19,title=check of t%3A step_time_ms::")
    assert "Net.forward (train.py:19): this line takes 12.0 %25 of a step" in line
    case = Xml.fromstring(ci.junit(page).encode())[0][0]
    assert (case.get("file"), case.get("line")) == ("train.py", "19")
    assert "Net.forward" in case[0].get("message")
    (result,) = json.loads(result_sarif(page, "1"))["runs"][0]["results"]
    (where,) = result["locations"]
    assert where["physicalLocation"]["region"] == {"startLine": 19}
    assert where["logicalLocations"] == [{"fullyQualifiedName": "Net.forward"}]


README = ChangedCode("README.md", "", 2, 1, "More.")


@pytest.mark.parametrize(
    ("parts", "labels"),
    [
        pytest.param({}, ["main (train.py:30)", "Net.forward (train.py:17)"], id="nothing timed"),
        pytest.param(
            {MAIN: 0.0, FORWARD: 0.12},
            ["Net.forward (train.py:17)", "main (train.py:30)"],
            id="what has more of a step",
        ),
    ],
)
def test_a_file_that_python_does_not_run_comes_after_what_ran(parts, labels):
    page = ResultPage("check", "worse", "regressed", cases=(Case("step_time_ms", "fail", ""),))
    code = (README, MAIN, FORWARD)
    page = with_change(page, None, STEP, code, "0123456789", LineCosts(None, parts))
    assert [text.label for text in page.reasons] == [*labels, "README.md:2"]
    assert page.place.line == (17 if parts else 30)
    assert page.next_command == "git diff 0123456789 -- train.py README.md"
    said = page.reasons[0].text
    assert ("it has 12.0 % of a step more than what stood here before" in said) == bool(parts)


def test_times_of_pieces_are_left_out_where_others_took_the_cpus():
    """Causes stay that a recording shows by more than times."""
    found = _profiles(100, 118, ("forward (train.py)", 50, 67))
    cause = CauseOfChange(
        id="repeated-work", summary="the same again", rests_on="finding", change_ns=9 * MS
    )
    found = msgspec.structs.replace(found, causes=(cause, *found.causes))
    page = with_change(ResultPage("check", "worse", "regressed"), found, STEP, busy=True)
    assert (len(page.tables), [text.label for text in page.reasons]) == (0, ["repeated-work"])


def test_a_cause_of_the_slower_side_alone_at_changed_code_is_said_whatever_the_times():
    new = CauseOfChange(
        id="repeated-work",
        summary="the same again",
        rests_on="finding",
        change_ns=9 * MS,
        where="forward (train.py:17), Net",
    )
    found = _profiles(86.8, 206)
    for cause, said in (
        (new, 1),
        (msgspec.structs.replace(new, a_saving_ns=5 * MS), 0),
        (msgspec.structs.replace(new, where="forward (other.py:17)"), 0),
        (msgspec.structs.replace(new, change_ns=-9 * MS), 0),
    ):
        both = msgspec.structs.replace(found, causes=(cause,))
        assert len(new_at_changed_code(both, (MAIN, FORWARD))) == said
    assert "repeated-work: the same again; the profile of the base does not show it" in _said(
        msgspec.structs.replace(found, causes=(new,)), (FORWARD,), "0123456789"
    )


@pytest.mark.parametrize(
    ("b_ms", "agree"), [(99, False), (101, True), (118, True), (135, True), (137, False)]
)
def test_both_may_be_wrong_by_their_errors(b_ms, agree):
    assert agrees(_profiles(100, b_ms), STEP) is agree


def test_a_function_of_another_file_is_not_the_changed_one():
    found = _profiles(100, 118, ("forward (model.py)", 50, 67), ("step (train.py)", 1, 9))
    assert [one.worth for one in grown((FORWARD,), found)] == [None]
