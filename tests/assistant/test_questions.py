"""Answers stay below the root and within their size, whatever is asked."""

import json
import shutil
from pathlib import Path

import pytest

from pinchpoint.assistant.questions import KEPT_TRACES, Questions
from pinchpoint.errors import PinchpointError, UnreadableFile, UsageError

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for name in ("a.json.gz", "b.json.gz"):
        shutil.copy(DEMO, root / name)
    (root / "link.json.gz").symlink_to(DEMO)
    return root


@pytest.fixture(scope="module")
def ask(root):
    return Questions(root)


def test_what_there_is(ask):
    assert set(ask.list_recordings().splitlines()) == {"a.json.gz (kineto)", "b.json.gz (kineto)"}


def test_the_whole_way_down(ask, root):
    report = json.loads(ask.diagnose("a.json.gz"))
    first = report["findings"][0]["id"]
    pieces = json.loads(ask.causal("a.json.gz", "operator", 2000))["pieces"]
    assert pieces[0]["by"] == "operator"
    assert len(ask.causal("a.json.gz", max_chars=2000)) <= 2000
    with pytest.raises(UsageError, match="no way to cut"):
        ask.causal("a.json.gz", "colour")
    assert json.loads(ask.show_finding("./a.json.gz", first))["id"] == first
    assert json.loads(ask.show_finding(str(root / "a.json.gz"), "1"))["id"] == first
    assert ask.explain_rule(first).startswith(first[:0])
    assert "## How to fix it" in ask.explain_rule(first)
    assert f"{first}: " in ask.explain_rule()
    assert "where the step goes" in ask.compare("a.json.gz", "b.json.gz")


@pytest.mark.parametrize("most", [6000, 8000, 20_000])
def test_a_diagnosis_fits(ask, most):
    assert len(ask.diagnose("a.json.gz", most)) <= most


@pytest.mark.parametrize("most", [500, 900])
def test_a_comparison_fits_and_says_what_it_left_out(ask, most):
    text = ask.compare("a.json.gz", "b.json.gz", most)
    assert len(text) <= most
    assert "more lines left out" in text


@pytest.mark.parametrize("most", [0, -1, 499, 10**9])
def test_a_size_that_makes_no_sense_is_said(ask, most):
    with pytest.raises(UsageError, match="max_chars"):
        ask.list_recordings(most)


@pytest.mark.parametrize(
    "file",
    [
        "../a.json.gz",
        "/etc/passwd",
        str(DEMO),
        "link.json.gz",
        "",
        "/",
        "..",
        "a.json.gz/../../x",
        "a\0b",
        "x" * 5000,
        "b.json.gz\n",
    ],
)
def test_nothing_outside_can_be_read(ask, file):
    for question in (ask.diagnose, ask.tables):
        with pytest.raises(UnreadableFile):
            question(file)
    with pytest.raises(PinchpointError):
        ask.sql(file, "SELECT 1")


def test_only_the_last_few_recordings_are_kept(tmp_path):
    for number in range(KEPT_TRACES + 2):
        shutil.copy(DEMO, tmp_path / f"{number}.json.gz")
    ask = Questions(tmp_path)
    for number in range(KEPT_TRACES + 2):
        ask.tables(f"{number}.json.gz")
    assert len(ask._kept) == KEPT_TRACES


pytest.importorskip("duckdb", reason="duckdb is not installed")


def test_sql_answers_in_words(ask):
    statement = "SELECT kind, count(*) n FROM device_ops GROUP BY ALL ORDER BY n DESC LIMIT 1"
    answer = json.loads(ask.sql("a.json.gz", statement))
    assert answer["columns"] == ["kind", "n"]
    assert answer["rows"][0][0] == "kernel"
    assert answer["complete"] is True


def test_tables_name_their_columns(ask):
    assert "duration_ns ns: time on the device" in ask.tables("a.json.gz")


@pytest.mark.parametrize("most", [600, 5000])
def test_many_rows_are_cut_and_the_answer_says_so(ask, most):
    text = ask.sql("a.json.gz", "SELECT * FROM device_ops", most)
    assert len(text) <= most
    answer = json.loads(text)
    assert answer["complete"] is False
    assert len(answer["rows"]) <= 200


@pytest.mark.parametrize(
    "statement", ["COPY names TO 'out.csv'", "SELECT 1; COPY names TO 'x'", ""]
)
def test_sql_reaches_nothing_but_the_tables(ask, statement, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        ask.sql("a.json.gz", statement)
    assert "\n" not in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_what_sql_changes_is_gone_with_the_question(ask):
    ask.sql("a.json.gz", "DROP TABLE device_ops")
    assert json.loads(ask.sql("a.json.gz", "SELECT count(*) FROM device_ops"))["rows"][0][0] > 0


def test_a_query_without_an_end_is_stopped(ask, monkeypatch):
    from pinchpoint.assistant import questions
    from pinchpoint.export.database import Limits

    monkeypatch.setattr(questions, "SQL_LIMITS", Limits(seconds=0.3, memory_mb=256, rows=10))
    with pytest.raises(UsageError, match="too long"):
        ask.sql(
            "a.json.gz", "SELECT sum(a.range * b.range) FROM range(10000000) a, range(9000000) b"
        )


def test_a_query_without_a_bound_on_memory_is_stopped(ask, monkeypatch, tmp_path):
    from pinchpoint.assistant import questions
    from pinchpoint.export.database import Limits

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(questions, "SQL_LIMITS", Limits(seconds=60, memory_mb=64, rows=10))
    with pytest.raises(UsageError, match=r"(?i)memory"):
        ask.sql(
            "a.json.gz",
            "SELECT list(a.range::VARCHAR || repeat('x', 100)) FROM range(10000000) a",
        )
    assert list(tmp_path.iterdir()) == []
