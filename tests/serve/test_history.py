"""Runs in order of time: what changed, what was predicted, and what is kept of them."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from msgspec.structs import replace

from pinchpoint.cli import main as cli
from pinchpoint.jobs import diagnose_ranks
from pinchpoint.report.words.ranks import gain
from pinchpoint.run_folder.notes import note_of
from pinchpoint.serve.history import by_job, programs
from pinchpoint.serve.index import Index, current, index_file
from pinchpoint.serve.listing import ListedRecording, listed_as, recordings
from pinchpoint.serve.pages import list_page, ranks_of
from pinchpoint.serve.places import Place
from pinchpoint.serve.reader import summary_of, summary_of_job
from pinchpoint.serve.summary import KnownRung, Summary

MS = 1_000_000
TWO_RANKS = Path(__file__).parents[1] / "data/ranks"


def recording(name, at):
    return ListedRecording(name, "kineto", at, 100)


def summary(step_ms, findings=(), rungs=(), **facts):
    known = {
        "device": "H100",
        "clock": "without the profiler",
        "work": ("2 × mm", "3 × add"),
    } | facts
    return Summary(
        step_ns=round(step_ms * MS),
        step_range_ns=(round(step_ms * 0.99 * MS), round(step_ms * 1.01 * MS)),
        steps_ns=tuple(round(step_ms * share * MS) for share in (0.98, 0.99, 1.0, 1.01, 1.02)),
        findings=findings,
        rungs=rungs,
        **known,
    )


SLOW = summary(
    12.5, ("sync-in-loop",), (KnownRung("sync-in-loop", 8_640_000, 8_150_000, 9_440_000),)
)


def test_the_newest_run_says_what_changed_and_whether_that_was_predicted():
    (program,) = programs([(recording("a/x", 2), summary(8.57)), (recording("a/w", 1), SLOW)])
    newest, oldest = program.runs
    assert program.steps_ns == (12_500_000, 8_570_000)
    assert newest.change_ratio == pytest.approx(8.57 / 12.5 - 1)
    assert newest.gone == ("sync-in-loop",)
    assert newest.fix is not None
    assert (newest.fix.said, newest.fix.doubt) == ("worked", "no command in them says so")
    assert oldest.change_ratio is None


@pytest.mark.parametrize(("step_ms", "sure"), [(12.5 * 0.95, True), (12.5 * 0.974, False)])
def test_a_change_is_said_where_compare_would_be_sure_of_it(step_ms, sure):
    """2.6 % less, where steps differ by 2 % each way, may be chance."""
    wide = (round(0.9 * step_ms * MS), round(0.97 * 12.5 * MS)) if sure else (0, 13 * MS)
    now = replace(summary(step_ms), step_range_ns=wide)
    (program,) = programs([(recording("a/x", 2), now), (recording("a/w", 1), SLOW)])
    assert program.runs[0].sure is sure
    assert program.runs[0].fix.said == ("worked in part" if sure else "cannot tell")


def test_of_one_command_there_is_no_doubt():
    runs = [replace(one, program="python train.py") for one in (summary(8.57), SLOW)]
    (program,) = programs([(recording("a/x", 2), runs[0]), (recording("b/w", 1), runs[1])])
    assert (program.runs[0].fix.said, program.runs[0].fix.doubt) == ("worked", None)


@pytest.mark.parametrize(
    "other",
    [
        {"device": "A100"},
        {"clock": "as recorded"},
        {"work": ("2 × conv", "3 × relu")},  # another program in the same folder
        {"work": ("2 × mm", "conv", "relu", "softmax")},  # though both have products
        {"work": ("9 × mm", "8 × add")},  # the same operators, in another network
        {"rank": 1, "world_size": 2},
    ],
)
def test_only_what_is_comparable_is_compared(other):
    pair = [(recording("a/x", 2), summary(8.57, **other)), (recording("a/w", 1), SLOW)]
    (program,) = programs(pair)
    assert program.runs[0].change_ratio is None
    assert program.steps_ns == (8_570_000,)  # the trend is of runs like the newest


def test_a_command_is_a_program_wherever_it_ran():
    named = summary(5.0, program="python fit.py")
    pair = [(recording("a/x", 2), named), (recording("b/y", 1), named)]
    assert [p.name for p in programs(pair)] == ["python fit.py"]


def test_ranks_of_a_job_are_one_line_as_slow_as_the_slowest():
    ranks = [
        (recording(f"job/{rank}", rank), summary(5.0 + rank, rank=rank, world_size=3))
        for rank in range(3)
    ]
    lines, members = by_job([*ranks, (recording("x", 9), summary(1.0))])
    assert [(r.name, s.step_ns) for r, s in lines] == [("x", 1 * MS), ("job", 7 * MS)]
    assert [r.name for r in members["job"]] == ["job/0", "job/1", "job/2"]


class Waiting:
    """A reader that only says what it was asked for."""

    def want(self, unread):
        self.unread = unread


def test_the_line_of_a_job_says_what_its_ranks_say_together(tmp_path):
    root, index, reader = tmp_path / "runs", Index(tmp_path / "i.sqlite"), Waiting()
    (root / "job").mkdir(parents=True)
    for rank in (0, 1):
        shutil.copy(TWO_RANKS / f"uneven.rank{rank}.json.gz", root / "job")
    for one in recordings(root).recordings:
        index.put(one, summary_of(root, one.name))
    assert "The slowest rank" in list_page(root, "/", index, reader)
    (job,) = reader.unread
    index.put(job.recording, summary_of_job(root, job.ranks, job.one))
    said, report = unescape(list_page(root, "/", index, reader)), diagnose_ranks([root])
    assert "The slowest rank" not in said
    assert report.verdict in said
    assert report.findings[0].id in said
    assert gain(report, report.findings[0]) in said
    assert reader.unread == []


def test_jobs_of_one_folder_are_lines_of_their_own():
    pairs = [
        (
            recording(f"all/{job}.rank{rank}.json", rank),
            summary(5.0 + rank, rank=rank, world_size=2),
        )
        for job in ("even", "uneven")
        for rank in range(2)
    ]
    lines, members = by_job(pairs)
    assert [r.name for r, _ in lines] == ["all/even", "all/uneven"]
    assert [r.name for r in members["all/even"]] == ["all/even.rank0.json", "all/even.rank1.json"]


def test_a_rank_leads_to_the_others_that_are_served(tmp_path):
    root, outside = tmp_path / "rank0-of-many", tmp_path / "rank1-of-many"
    for folder in (root, outside):
        folder.mkdir()
        (folder / "trace.rank0.json").touch()
    for name in ("trace.rank1.json", "other.rank1.json"):
        (root / name).touch()
    (root / "trace.rank2.json").symlink_to(outside / "trace.rank0.json")
    found = ranks_of(root, Place("", root / "trace.rank0.json"))
    assert [Path(path).name for path in found] == ["trace.rank0.json", "trace.rank1.json"]


def test_two_files_of_one_rank_are_no_job():
    same = [(recording(f"job/{n}", n), summary(5.0, rank=0, world_size=2)) for n in range(2)]
    lines, members = by_job(same)
    assert len(lines) == 2
    assert not members


def test_what_was_read_is_known_until_the_file_changes(tmp_path):
    index, one = Index(tmp_path / "deep" / "i.sqlite"), recording("a", 1)
    index.put(one, SLOW)
    known = Index(tmp_path / "deep" / "i.sqlite").all()
    assert current(one, known) == SLOW
    assert current(recording("a", 2), known) is None
    assert current(recording("b", 1), known) is None


def test_an_index_that_is_no_database_is_none(tmp_path):
    (tmp_path / "i.sqlite").write_bytes(b"not a database, and long enough to be told from one" * 9)
    index = Index(tmp_path / "i.sqlite")
    index.put(recording("a", 1), SLOW)
    assert index.all() == {}
    assert Index(None).all() == {}


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE summaries DROP COLUMN bytes",
        "DROP TABLE summaries; CREATE TABLE summaries (name, b)",
        "DROP TABLE jobs; CREATE TABLE jobs (state, b)",
        "ALTER TABLE jobs RENAME COLUMN facts TO x",
    ],
)
def test_an_index_of_other_tables_is_made_anew(damage, tmp_path):
    index, one = Index(tmp_path / "i.sqlite"), recording("a", 1)
    index.put(one, SLOW)
    with closing(sqlite3.connect(index.file)) as database:
        database.executescript(damage)
    assert (index.all(), index.jobs()) == ({}, {})
    index.put(one, SLOW)
    assert current(one, index.all()) == SLOW


@pytest.mark.parametrize("text", [None, 7, "{}", b'{"problem": "\xed\xa0\x80"}', b"[" * 10_000])
def test_what_in_it_is_damaged_is_read_again(text, tmp_path):
    index, one = Index(tmp_path / "i.sqlite"), recording("a", 1)
    index.put(one, SLOW)
    with closing(sqlite3.connect(index.file)) as database:
        database.execute("UPDATE summaries SET summary = ?", (text,))
        database.execute("INSERT INTO jobs VALUES ('a', 1, ?)", (text,))
        database.commit()
    assert current(one, index.all()) in (None, Summary())
    assert set(index.jobs()) <= {"a"}


def test_the_index_is_in_the_cache_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = index_file(Path("/runs/a")), index_file(Path("/runs/b"))
    assert one.parent == tmp_path / "pinchpoint"
    assert one != other


def test_a_note_is_kept_beside_a_recording(tmp_path, capsys):
    trace = tmp_path / "a.json"
    trace.write_text("{}")
    assert cli(["note", str(trace), "rate", "doubled"]) == 0
    assert cli(["note", str(trace), "again"]) == 0
    assert note_of(trace).splitlines()[0].endswith("rate doubled")
    capsys.readouterr()
    assert cli(["note", str(trace)]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert cli(["note", str(tmp_path / "missing"), "x"]) == 2


def test_a_note_that_leads_elsewhere_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a.json.note.md").symlink_to(tmp_path / "secret")
    assert note_of(tmp_path / "a.json") == ""


def test_a_run_is_dated_by_when_it_began_not_by_its_files(tmp_path):
    for name, began_s, changed_s in (("old", 1_000, 9_000), ("new", 2_000, 8_000)):
        (tmp_path / name).mkdir()
        facts = {"schema": "pinchpoint.run/1", "started_unix_ns": began_s * 10**9}
        (tmp_path / name / "run.json").write_text(json.dumps(facts))
        os.utime(tmp_path / name, (changed_s, changed_s))
    found = recordings(tmp_path).recordings
    assert [one.name for one in found] == ["new", "old"]
    assert [one.when_ns for one in found] == [2_000 * 10**9, 1_000 * 10**9]
    facts = {"schema": "pinchpoint.run/1", "started_unix_ns": 10**30}
    (tmp_path / "old" / "run.json").write_text(json.dumps(facts))
    os.utime(tmp_path / "old", (9_001, 9_001))
    assert listed_as("old", tmp_path / "old").when_ns == 9_001 * 10**9
