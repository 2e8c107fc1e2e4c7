"""A fleet of made-up run folders whose answer is known."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest

from pinchpoint.cli import main
from pinchpoint.serve.fleet import diagnose_runs, fleet_document, jobs_of
from pinchpoint.serve.index import Index
from pinchpoint.serve.run_places import run_places, whole
from pinchpoint.serve.summary import Summary

RECORDING = Path(__file__).parents[1] / "data" / "labelled" / "c16_sync_in_loop.slow.json.gz"
HOUR_NS = 3600 * 10**9


def write(folder, script, at, step_ms, *, exit_code=0, wait=0.1, commit="a" * 40, host="n1"):
    """A run of two hours on four ranks."""
    folder.mkdir(parents=True)
    begin = 1_790_000_000 * 10**9 + at * HOUR_NS
    run = {
        "schema": "pinchpoint.run/1", "status": "ended",
        "command": ["/opt/bin/python3", script, "-x"],
        "started_unix_ns": begin, "ended_unix_ns": begin + 2 * HOUR_NS, "exit_code": exit_code,
        "devices": ["H100"] * 4, "recordings": [],
    }  # fmt: skip
    metrics = {
        "schema": "pinchpoint.run-metrics/1", "world_size": 4,
        "steps": {"count": 100, "run_ms": {"p50": step_ms, "p99": 2 * step_ms}},
        "data_wait": {"of_run_ratio": wait},
        "gpu": [{"name": "H100", "any_kernel_ratio": {"mean": 0.5, "min": 0, "max": 1}}],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "env.json").write_text(json.dumps({"code": {"commit": commit, "dirty": True}}))
    (folder / "processes").mkdir()
    process = {"schema": "pinchpoint.process/1", "host": host, "steps": {"count": 100}}
    (folder / "processes" / "rank00000of00004.json").write_text(json.dumps(process))


@pytest.fixture
def root(tmp_path):
    """Twelve even runs of one program; of another twelve even ones, then six that take a fifth
    longer, at another commit, and wait for their batches; a damaged run; a failed one."""
    root = tmp_path / "runs"
    for run in range(12):
        write(root / "even" / f"r{run:02}", "even.py", run, 10 + run % 3 / 10)
        write(root / "team" / "slower" / f"r{run:02}", "slower.py", run, 20 + run % 2 / 10)
    for run in range(12, 18):
        place = root / "team" / "slower" / f"r{run}"
        write(place, "slower.py", run, 24 + run % 2 / 10, wait=0.3, commit="b" * 40)
    write(root / "failed", "failed.py", 3, 5, exit_code=1)
    (root / "damaged").mkdir()
    (root / "damaged" / "run.json").write_text("{")
    return root


def answer(root):
    return fleet_document(str(root), jobs_of(run_places(str(root)), Index(None)))


def test_what_became_longer_for_good_and_why(root):
    document = answer(root)
    (change,) = document.changes
    assert (change.program, change.ranks, change.since) == ("slower.py -x", 4, "team/slower/r12")
    assert (change.runs_before, change.runs_after) == (12, 6)
    assert (change.before_ms, change.after_ms) == (20.05, 24.05)
    assert change.commits == ("a" * 40, "b" * 40)
    assert change.same_hosts
    assert change.waits_more  # 0.1 of 20.05 ms against 0.3 of 24.05: 5.2 ms of 4 more
    assert change.rank_hours == pytest.approx(6 * 2 * 4 * (1 - 20.05 / 24.05))


def test_what_all_of_it_costs(root):
    document = answer(root)
    assert (document.runs, document.failed, document.running) == (32, 1, 0)
    assert document.rank_hours == 31 * 2 * 4
    assert document.failed_rank_hours == 8
    assert document.waiting_rank_hours == pytest.approx(8 * (25 * 0.1 + 6 * 0.3))
    assert [text.partition(": ")[0] for text in document.unreadable] == ["damaged"]
    assert [(p.program, p.runs) for p in document.programs][:2] == [
        ("slower.py -x", 18),
        ("even.py -x", 12),
    ]


def test_the_index_is_asked_first_and_forgets_what_is_gone(root, tmp_path, monkeypatch):
    index = Index(tmp_path / "index.sqlite")
    first = jobs_of(run_places(str(root)), index)
    monkeypatch.setattr("pinchpoint.serve.fleet.job_facts", None)  # nothing is read again
    assert jobs_of(run_places(str(root)), index) == first
    assert len(jobs_of(run_places(str(root))[:5], index)) == 5
    assert len(index.jobs()) == 5


def test_a_bucket_gives_the_same(root):
    fsspec = pytest.importorskip("fsspec", reason="the extra [ray] is not installed")
    store = fsspec.filesystem("memory")
    store.put(str(root), "/fleet", recursive=True)
    try:
        there = answer("memory://fleet")
    finally:
        store.rm("/fleet", recursive=True)
    here = answer(root)
    assert there.changes == here.changes
    assert there.programs == here.programs


def test_an_object_whose_key_leads_out_of_the_run_is_left(root, tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="the extra [ray] is not installed")
    store, outside = fsspec.filesystem("memory"), tmp_path / "outside"
    store.put(str(root / "failed"), "/keys/run", recursive=True)
    for key in (f"/keys/run/{outside}", "/keys/run/../../outside"):
        store.store[key] = store.store["/keys/run/run.json"]
    try:
        (run,) = (run for run in run_places("memory://keys") if run.name == "run")
        with whole(run) as folder:
            assert (folder / "processes").is_dir()
        assert f"/keys/run/{outside}" in run.files
        assert not outside.exists()
    finally:
        store.rm("/keys", recursive=True)


def test_a_run_that_the_processes_die_of_is_said_for_it(root, tmp_path, monkeypatch):
    def dying(files, workers, work, lost):
        yield from (lost(file, "the process that read it died") for file in files)

    monkeypatch.setattr("pinchpoint.jobs.engines.in_processes", dying)
    index = Index(tmp_path / "index")
    assert diagnose_runs(run_places(str(root / "even")), index, 2) == 2
    assert {row[2].problem for row in index.all().values()} == {"the process that read it died"}


def test_recordings_are_diagnosed_and_their_causes_cost_hours(tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = tmp_path / "runs" / "one"
    write(run, "one.py", 0, 10)
    (run / "traces").mkdir()
    copyfile(RECORDING, run / "traces" / RECORDING.name)
    for file, recordings in (
        (run / "run.json", [f"traces/{RECORDING.name}"]),
        (run / "processes" / "rank00000of00004.json", [{"file": RECORDING.name}]),
    ):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"recordings": recordings}))
    assert main(["fleet", str(run.parent), "--diagnose", "3", "--json"]) == 0
    document = json.loads(capsysbinary.readouterr().out)
    assert document["not_diagnosed"] == 0
    assert document["causes"][0]["id"] == "sync-in-loop"
    assert 0 < document["causes"][0]["saves_rank_hours"] < 8  # of the two hours of four ranks


def test_findings_are_new_only_where_both_sides_were_diagnosed(root):
    jobs = jobs_of(run_places(str(root)), Index(None))

    def changed(before, after):
        told = [
            replace(job, summary=after if job.facts.commit == "b" * 40 else before) for job in jobs
        ]
        (change,) = fleet_document(str(root), told).changes
        return change.new_findings

    clean, slow = Summary(), Summary(findings=("data-loading-starvation",))
    assert changed(clean, slow) == ("data-loading-starvation",)
    assert changed(None, slow) == ()
    assert changed(Summary(problem="damaged"), slow) == ()


def test_the_command_asks_in_words_in_json_and_in_sql(root, tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["fleet", str(root), "--html", str(tmp_path / "fleet.html")]) == 0
    page = " ".join(capsysbinary.readouterr().out.decode().split())
    assert "Steps of one program became longer for good" in page
    assert "+20.0 %" in page
    assert "slower.py -x" in (tmp_path / "fleet.html").read_text()
    assert main(["fleet", str(root), "--json", "--by", "script"]) == 0
    document = json.loads(capsysbinary.readouterr().out)
    assert document["schema"] == "pinchpoint.fleet/1"
    assert document["changes"][0]["program"] == "slower.py"
    pytest.importorskip("duckdb", reason="the extra [sql] is not installed")
    asked = (
        "SELECT script, count(*) n, median(device_busy_ratio) busy, bool_or(dirty) dirty FROM runs"
        " WHERE step_ms > 22 GROUP BY ALL"
    )
    assert main(["fleet", str(root), "--sql", asked, "--json"]) == 0
    rows = json.loads(capsysbinary.readouterr().out)
    assert rows == [{"script": "slower.py", "n": 6, "busy": 0.5, "dirty": True}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fleet", "nowhere"], "no such folder"),
        (["fleet", "."], "no run folders"),
        (["fleet", ".", "--csv"], "--csv goes with --sql"),
        (["fleet", ".", "--diagnose", "-1"], "must not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, monkeypatch, capsysbinary, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsysbinary.readouterr().err.decode()


def test_what_is_passed_on_names_no_folder(root, tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = tmp_path / "fleet.html"
    assert main(["fleet", str(root), "--redact", "--json", "--html", str(page)]) == 0
    said = capsysbinary.readouterr().out + page.read_bytes()
    assert str(root.parent).encode() not in said
    assert b"slower.py -x" not in said
    assert main(["fleet", str(root), "--redact", "--sql", "SELECT host FROM runs"]) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_run_whose_name_is_not_utf_8_is_known_and_diagnosed(tmp_path):
    root, name = tmp_path / "runs", os.fsdecode(b"r\xff")
    write(root / name, "even.py", 1, 10)
    (root / name / "traces").mkdir()
    copyfile(RECORDING, root / name / "traces" / "t.json.gz")
    index = Index(tmp_path / "index")
    assert [job.facts.name for job in jobs_of(run_places(str(root)), index)] == [name]
    assert diagnose_runs(run_places(str(root)), index, 1) == 1
    assert list(index.jobs()) == list(index.all()) == [name]
    (job,) = jobs_of(run_places(str(root)), index)
    assert job.facts.name == name
    assert job.summary is not None
