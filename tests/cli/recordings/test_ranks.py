"""The commands around many ranks: what is printed, where, and exit codes."""

import gzip
import json
import shlex
import shutil
from pathlib import Path

import pytest

from pinchpoint.cli import main as cli
from pinchpoint.importers import load
from pinchpoint.jobs import diagnose_ranks
from pinchpoint.report import diagnose
from pinchpoint.report.html_page.interactive import render

DATA = Path(__file__).parents[2] / "data" / "ranks"


@pytest.fixture
def uneven():
    return [str(DATA / f"uneven.rank{r}.json.gz") for r in (0, 1)]


def test_the_terminal_names_the_late_rank(uneven, capsys):
    assert cli(["ranks", *uneven]) == 0
    out, err = capsys.readouterr()
    assert "Rank 1 holds up the others" in out
    assert err == ""


def test_json_is_one_document(uneven, capsys):
    assert cli(["ranks", *uneven, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "pinchpoint.ranks/1"


def test_a_page(uneven, capsys, tmp_path):
    assert cli(["ranks", *uneven, "--html", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!doctype html>")
    assert "wrote" in capsys.readouterr().err


def test_the_report_of_a_folder_of_ranks_is_that_page(uneven, capsys, tmp_path):
    for path in uneven:
        shutil.copy(path, tmp_path)
    assert cli(["ranks", str(tmp_path), "--html", str(tmp_path / "a.html")]) == 0
    assert cli(["report", str(tmp_path), "-o", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_text("utf-8") == (tmp_path / "b.html").read_text("utf-8")


def test_the_report_of_a_recording_can_show_its_job(uneven):
    trace = load(uneven[0])
    page = render(trace, diagnose(trace), job=diagnose_ranks(uneven))
    assert '<a href="#ranks">Ranks</a>' in page
    assert "Rank 1 holds up the others" in page
    assert ".r-late" in page
    assert "Change this first, of all ranks together" in page
    alone = render(trace, diagnose(trace))
    assert "of all ranks together" not in alone
    assert "Rank 1 holds up the others" not in alone
    assert ".r-late" not in alone


def test_shards_and_merge_say_the_same(uneven, capsys, tmp_path):
    parts = [str(tmp_path / f"{i}.part") for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        assert cli(["ranks", *uneven, "--shard", f"{i}/2", "-o", part]) == 0
    capsys.readouterr()
    assert cli(["merge", *parts, "--json"]) == 0
    merged = capsys.readouterr().out
    assert cli(["ranks", *uneven, "--json"]) == 0
    assert capsys.readouterr().out == merged


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ranks"], "which recordings?"),
        (["ranks", "nowhere"], "no such file"),
        (["ranks", "x", "--shard", "1/2"], "--shard and --output go together"),
        (["ranks", "x", "--shard", "a/b", "-o", "p"], "not I/N"),
        (["ranks", "x", "--ray-address", "auto"], "goes with --engine ray"),
        (["ranks", "x", "--engine", "spark"], "spark"),
        (["merge"], "which parts?"),
        (["merge", "nowhere.part"], "nowhere.part"),
    ],
)
def test_mistakes_end_in_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_diagnosing_all_ranks_answers_as_a_job(uneven, capsys):
    assert cli(["diagnose", *uneven]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.index("Rank 1 holds up the others") < text.index("· rank 0 ·")
    assert "one rank cannot tell who is late" not in text
    assert cli(["diagnose", *uneven, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"]["schema"] == "pinchpoint.ranks/1"
    said = {f["id"] for report in document["reports"] for f in report["findings"]}
    assert not said & {"straggler-rank", "rank0-stall", "nccl-slow-transport"}


def test_a_folder_of_ranks_is_diagnosed_as_a_job(uneven, capsys, tmp_path):
    for path in uneven:
        shutil.copy(path, tmp_path)
    assert cli(["diagnose", str(tmp_path), "--html", str(tmp_path / "job.html")]) == 0
    assert "Rank 1 holds up the others" in capsys.readouterr().out
    assert (tmp_path / "job.html").read_text("utf-8").startswith("<!doctype html>")
    assert cli(["diagnose", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reports"] == []
    assert document["job"]["findings"][0]["id"] == "straggler-rank"


def test_one_rank_alone_is_not_called_healthy(uneven, capsys):
    assert cli(["diagnose", uneven[1]]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "This is one of 2 ranks: whether the others wait for it, only all of them" in text
    assert "Nothing inside this rank alone is worth" in text
    assert "worth fixing" not in text
    assert f"Next: pinchpoint ranks '{DATA}/uneven.rank*.json.gz'" in text
    assert cli(["diagnose", uneven[0], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["source"]["one_of"] == 2
    assert "collectives that nothing hides" in document["verdict"]


def test_the_gate_judges_the_job(uneven, capsys):
    assert cli(["diagnose", *uneven, "--fail-over", "10%"]) == 1
    assert "straggler-rank" in capsys.readouterr().err
    even = [str(DATA / f"even.rank{r}.json.gz") for r in (0, 1)]
    assert cli(["diagnose", *even, "--fail-over", "10%"]) == 0


def test_two_recordings_of_one_rank_are_no_job(uneven, capsys):
    even = str(DATA / "even.rank0.json.gz")
    assert cli(["diagnose", uneven[0], even, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] is None


@pytest.mark.parametrize("words", [["ranks"], ["ranks", "--json"], ["diagnose"]])
def test_nothing_usable_is_one_line_on_standard_error(words, tmp_path, capsys):
    for name in ("rank0.json", "rank1.json"):
        (tmp_path / name).write_text("no recording\n" * 9)
    assert cli([*words, str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    error, hint = told.err.strip().splitlines()
    assert error.startswith("error: none of 2 recordings can be used: ")
    assert "rank0.json: text without one figure" in error
    assert error.endswith("; and 1 more")
    assert hint.startswith(" next: pinchpoint diagnose FILE")


def test_commands_to_copy_stay_on_one_line(tmp_path, capsys):
    deep = tmp_path / "a folder with a long name" / ("x" * 70)
    deep.mkdir(parents=True)
    for rank in (0, 1):
        name = f"uneven.rank{rank}.json.gz"
        (deep / name).write_bytes((DATA / name).read_bytes())
    assert cli(["diagnose", str(deep / "uneven.rank1.json.gz")]) == 0
    (last,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("Next: ")]
    assert cli(shlex.split(last.removeprefix("Next: "))[1:]) == 0
    (last,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("Next: ")]
    assert shlex.split(last)[-1] == str(deep / "uneven.rank1.json.gz")


def test_of_a_folder_of_several_jobs_diagnose_answers_each(capsys):
    assert cli(["diagnose", str(DATA), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [job["schema"] for job in found["jobs"]] == ["pinchpoint.ranks/1"] * 3


@pytest.mark.parametrize("words", [["report"], ["ranks"]])
def test_a_folder_of_several_jobs_is_refused(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli([*words, str(DATA)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.strip().splitlines()
    assert error == f"error: {DATA}: recordings of 3 jobs"
    assert hint.endswith(f"pinchpoint ranks '{DATA}/even.rank*.json.gz'")


def test_ranks_in_one_file_are_a_job(uneven, capsys, tmp_path):
    events = []
    for rank, path in enumerate(uneven):
        for event in json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]:
            args = event.get("args") or {}
            if "correlation" in args:
                args["correlation"] += 1_000_000 * rank
            if "device" in args:
                args["device"] = event["pid"] = rank
            elif isinstance(event.get("pid"), int):
                event["pid"] += 100_000 * rank
            events.append(event)
    one = tmp_path / "both.json"
    one.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
    assert cli(["ranks", str(one), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["ranks"] == 2
