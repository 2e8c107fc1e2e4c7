"""The command around a report: formats, gate, exit codes. Reports are tested elsewhere."""

import json

import pytest

from pinchpoint.cli import main as cli
from pinchpoint.errors import UnreadableFile
from report_sample import full_report, healthy_report, inconclusive_report

REPORTS = {
    "full": full_report(),
    "healthy": healthy_report(),
    "inconclusive": inconclusive_report(),
}


@pytest.fixture(autouse=True)
def recordings(monkeypatch):
    """Files named after the reports that diagnosing them gives; any other cannot be read."""

    def load(path, progress, part):
        if path.name not in REPORTS:
            raise UnreadableFile(f"{path}: no such file", hint="check the path")
        return path

    monkeypatch.setattr("pinchpoint.cli.recordings._answers.load", load)
    monkeypatch.setattr(
        "pinchpoint.cli.recordings._answers._holds_captures_alone", lambda trace: False
    )
    monkeypatch.setattr("pinchpoint.cli.recordings._window.Window.cut", lambda part, path: path)
    monkeypatch.setattr(
        "pinchpoint.cli.recordings._answers.Asked.report",
        lambda asked, path: REPORTS[path.name],
    )
    monkeypatch.setattr(
        "pinchpoint.jobs.full_page.full_page",
        lambda *said, **_: f"<p>{said[2].verdict}</p>",
    )
    for name in ("GITHUB_STEP_SUMMARY", "NO_COLOR", "FORCE_COLOR", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")


def test_the_terminal_gets_text_without_colour(capsys):
    assert cli(["diagnose", "full"]) == 0
    out, err = capsys.readouterr()
    assert "1  sync-in-loop       14.9 → 10.6 ms a step (10.1 to 11.3)" in out
    assert "\x1b" not in out
    assert err == ""


def test_a_terminal_of_the_c_locale_gets_ascii(capsys, monkeypatch):
    monkeypatch.setenv("LANG", "C")
    assert cli(["diagnose", "full"]) == 0
    assert capsys.readouterr().out.isascii()


def test_colour_on_demand(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    cli(["diagnose", "full"])
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    cli(["diagnose", "full"])
    assert "\x1b[" not in capsys.readouterr().out


def test_json_is_one_document_and_nothing_else(capsys):
    assert cli(["diagnose", "full", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pinchpoint.report/1"
    assert document["findings"][0]["predicted_range_ns"] == [10_100_000, 11_300_000]


def test_json_of_several_files(capsys):
    assert cli(["diagnose", "full", "healthy", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pinchpoint.reports/1"
    assert [len(r["findings"]) for r in document["reports"]] == [3, 0]


def test_a_bad_file_does_not_stop_the_others(capsys):
    assert cli(["diagnose", "full", "missing", "healthy", "--json"]) == 2
    out, err = capsys.readouterr()
    assert len(json.loads(out)["reports"]) == 2
    assert err == "error: missing: no such file\n next: check the path\n"


def test_one_bad_file_is_one_clear_error(capsys):
    assert cli(["diagnose", "missing"]) == 2
    assert capsys.readouterr() == ("", "error: missing: no such file\n next: check the path\n")


def test_markdown(capsys):
    assert cli(["diagnose", "full", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("## Pinchpoint: train.json.gz\n")


def test_html_is_written_beside_the_answer(capsys, tmp_path):
    page = tmp_path / "report.html"
    assert cli(["diagnose", "full", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    assert "sync-in-loop" in out
    assert str(page) in err
    assert page.read_text("utf-8") == f"<p>{REPORTS['full'].verdict}</p>"


def test_one_clock_in_the_terminal(capsys):
    assert cli(["diagnose", "full", "--clock", "recorded"]) == 0
    out = capsys.readouterr().out
    assert "The step after each change, as recorded (ms)" in out
    assert "Where a step goes, as recorded" in out
    assert out.count("without the profiler") == 1  # the verdict says what it was judged by


def test_github_gets_annotations_and_a_summary(capsys, monkeypatch, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert cli(["diagnose", "full", "--format", "github"]) == 0
    assert "\n::warning file=train.py,line=41,title=" in capsys.readouterr().out
    assert summary.read_text("utf-8").startswith("before\n## Pinchpoint: train.json.gz\n")


@pytest.mark.parametrize(
    ("file", "gate", "code", "why"),
    [
        pytest.param("full", "5%", 1, "sync-in-loop (28.9 %)", id="over"),
        pytest.param("full", "28.8", 1, "sync-in-loop (28.9 %)", id="just over, without the sign"),
        pytest.param("full", "29%", 0, "passed", id="under"),
        pytest.param("healthy", "0%", 0, "passed", id="nothing found"),
        pytest.param("inconclusive", "5%", 4, "inconclusive", id="cannot conclude"),
    ],
)
def test_gate(file, gate, code, why, capsys):
    assert cli(["diagnose", file, "--fail-over", gate]) == code
    assert why in capsys.readouterr().err


def test_a_failure_beats_doubt_and_a_bad_file_beats_both():
    assert cli(["diagnose", "inconclusive", "full", "--fail-over", "5%"]) == 1
    assert cli(["diagnose", "inconclusive", "healthy", "--fail-over", "5%"]) == 4
    assert cli(["diagnose", "missing", "full", "--fail-over", "5%"]) == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param([], "which recording?", id="no file"),
        pytest.param(["full", "--fail-over", "abc"], "--fail-over abc", id="gate is no number"),
        pytest.param(["full", "--fail-over", "nan"], "--fail-over nan", id="gate is NaN"),
        pytest.param(["full", "--fail-over=-1%"], "--fail-over -1%", id="negative gate"),
        pytest.param(["full", "--fail-over", "100%"], "--fail-over 100%", id="more than a step"),
        pytest.param(["full", "--fail-over"], "--fail-over", id="gate without a value"),
        pytest.param(["full", "--json", "--markdown"], "choose one", id="two formats"),
        pytest.param(["full", "--format", "pdf"], "pdf", id="unknown format"),
        pytest.param(["full", "healthy", "--html", "x"], "one recording", id="two in a page"),
        pytest.param(["full", "--html", "no/such/folder/x"], "cannot be written", id="no folder"),
        pytest.param(["full", "--jsn"], "--jsn", id="misspelt option"),
    ],
)
def test_nonsense_is_refused_in_one_line(words, problem, capsys):
    assert cli(["diagnose", *words]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert problem in error
    assert hint.startswith(" next: ")
