from xml.etree import ElementTree as Xml

import msgspec
import pytest

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.report import ci, markdown, terminal
from pinchpoint.report.pages import ab
from pinchpoint.report.pages.result import Case, ResultPage, blocks, table

PAGE = ResultPage(
    title="A/B of train",
    verdict="regressed",
    headline="step time worse by 5.0 %",
    tables=(table("gated", ("", "A", "B"), (("step time, median", "100 ms", "105 ms"),)),),
    warnings=("the machine was busy",),
    notes=("A: python a.py",),
    cases=(
        Case("step_time_ms", "fail", "100 ms to 105 ms"),
        Case("p95", "inconclusive", "too noisy"),
        Case("memory", "pass", "same"),
    ),
    next_command="pinchpoint run b.py",
)


def test_terminal():
    assert terminal.render(blocks(PAGE)) == (
        "A/B of train\n"
        "regressed: step time worse by 5.0 %\n"
        "\n"
        "gated                   A       B\n"
        "step time, median  100 ms  105 ms\n"
        "\n"
        "How far to trust this\n"
        "warning: the machine was busy\n"
        "note: A: python a.py\n"
        "\n"
        "Next: pinchpoint run b.py\n"
    )


def test_markdown():
    text = markdown.render(blocks(PAGE))
    assert "| gated | A | B |\n|---|---:|---:|\n| step time, median | 100 ms | 105 ms |" in text
    assert "**regressed:** step time worse by 5.0 %" in text


def test_markdown_stays_below_the_limit_of_a_job_summary():
    rows = tuple((f"measure {i}" + "x" * 100, "1", "2") for i in range(20_000))
    page = ResultPage("t", "h", tables=(table("m", ("", "A", "B"), rows),))
    text = markdown.render(blocks(page))
    assert len(text.encode()) < 1 << 20
    assert "cut" in text


def test_github_annotations_are_the_worst_ten_of_a_kind():
    cases = tuple(Case(f"m{i}", "fail", "worse") for i in range(14))
    lines = ci.result_annotations(ResultPage("t", "h", "regressed", cases=cases)).splitlines()
    assert len(lines) == 10
    assert lines[-1] == "::error title=t%3A more::5 more in the summary"
    assert ci.result_annotations(ResultPage("t", "h", cases=(Case("a", "pass", "fine"),))) == ""


def test_github_log_takes_no_commands_from_the_text():
    hostile = ResultPage("t", "::error::planted\n::set-output name=x::y")
    first, *_, last = ci.result_log(hostile, "token").splitlines()
    assert first == "::stop-commands::token"
    assert last == "::token::"


def test_github_outputs():
    assert ci.result_outputs(PAGE) == "verdict=regressed\nregressions=1\nimprovements=0\n"


def test_junit():
    suite = Xml.fromstring(ci.junit(PAGE).split("\n", 1)[1])[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [child.tag for case in suite for child in case] == ["failure", "skipped", "system-out"]


def test_branches_are_told_apart_where_the_words_are_the_same():
    from pinchpoint.report.pages.ab import _arm

    arm = {"command": ["python", "t.py"], "params": {"branch": "mine", "commit": "f" * 40}}
    assert _arm("B", arm) == f"B: python t.py on mine (commit {'f' * 10})"


def test_whether_b_is_better_is_said_first_and_drawn():
    wall = MeasureResult(
        name="duration_s",
        label="wall time",
        unit="s",
        better="lower",
        gated=True,
        a_median=2.0,
        b_median=1.0,
        pairs=5,
        estimate_ratio=-0.5,
        ci95_ratio=(-0.6, 0.1),
        sd_pair_log=0.1,
        verdict="pass",
        smallest_visible_ratio=0.2,
    )
    arm = {"command": ["python", "t.py"], "params": {}}
    result = AbResult(
        session_id="s",
        bench_id="python",
        verdict="pass",
        why="no change as large as the threshold",
        measures=(wall,),
        arms={"A": arm, "B": arm},
        pairs_measured=5,
        pairs_excluded=0,
        looks=(5,),
    )
    title, first, *_ = terminal.render(blocks(ab.page(result))).splitlines()
    assert title == "A/B of python: 5 interleaved pairs"
    assert first.startswith("B is not worse: wall time 2.00 s → 1.00 s, 2.00 × better (95 %")
    shown = ab.page(result)
    own = msgspec.structs.replace(wall, name="own_work_s", label="own", gated=False, verdict=None)
    own = msgspec.structs.replace(own, estimate_ratio=0.091, ci95_ratio=(0.065, 0.118))
    by_own = msgspec.structs.replace(
        result,
        verdict="regressed",
        decided_by=("own_work_s",),
        measures=(msgspec.structs.replace(wall, verdict="inconclusive"), own),
    )
    assert "B is worse: own 2.00 s → 1.00 s, 9.1 % worse" in ab.page(by_own).answer
    today, after = shown.ladder.rungs
    assert (today.ratio, after.ratio, after.high) == pytest.approx((2.0 / 2.2, 1.0 / 2.2, 1.0))
    (facts,) = shown.tables[0].below
    assert facts[0].text == "95 %: 2.50 × better to 10.0 % worse; visible from 20.0 % worse on"
