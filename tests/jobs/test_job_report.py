"""From files to the document and its pictures; recordings are of two H100."""

import gzip
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pinchpoint.analysis.ranks.summary import Calls, Kernel, StepColumns
from pinchpoint.diagnosis.finding import Location
from pinchpoint.errors import UnreadableFile, UsageError
from pinchpoint.importers import load
from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs import diagnose_ranks, merge_parts, write_shard
from pinchpoint.jobs.parts import write_part
from pinchpoint.jobs.rank_map import read_rank, record_of
from pinchpoint.report import diagnose, html
from pinchpoint.report.documents.clock import job_as_recorded
from pinchpoint.report.documents.rank_records import PartHeader, decode_record, encode_record
from pinchpoint.report.documents.ranks import decode_ranks, encode_ranks
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.report.svg.ranks import heat_svg
from pinchpoint.report.terminal import Look, render
from rank_traces import MS, Job

DATA = Path(__file__).parents[1] / "data" / "ranks"


def both(name):
    return [DATA / f"{name}.rank{r}.json.gz" for r in (0, 1)]


@pytest.fixture(scope="module")
def uneven():
    return diagnose_ranks(both("uneven"))


def test_the_rank_with_more_work_is_named_and_what_sharing_it_gives(uneven):
    (found,) = uneven.findings
    assert found.id == "straggler-rank"
    assert found.summary.startswith("Rank 1 holds up the others by 10.4")
    # Measured with the work shared evenly, without the profiler: 8.76 ms.
    assert found.predicted_range_ns[0] < 8.76 * MS < found.predicted_range_ns[1]
    (straggler,) = uneven.stragglers
    assert (straggler.rank, straggler.last_ratio) == (1, 1.0)
    assert straggler.doing[0].subject == "more work"


def test_even_work_is_no_finding():
    report = diagnose_ranks(both("even"))
    assert report.findings == ()
    assert abs(report.scaling.replay_error_ratio) < 0.01


def test_sockets_are_a_slow_transport_and_no_late_rank():
    report = diagnose_ranks(both("sockets"))
    assert [f.id for f in report.findings] == ["nccl-slow-transport"]
    assert report.stragglers == ()
    # Measured with the usual transport: 5.5 to 5.7 ms.
    low, high = report.findings[0].predicted_range_ns
    assert low < 5.6 * MS < high
    kinds = report.tables["collectives"]
    row = dict(zip((c.id for c in kinds.columns), kinds.rows[0], strict=True))
    assert row["bytes"] == 128_000_000
    assert row["busbw"] == pytest.approx(2.36e9, rel=0.01)


def test_the_breakdown_adds_up_to_the_step(uneven):
    assert sum(p.ns_per_step for p in uneven.breakdown) == uneven.steps.typical_ns


def test_the_document_survives_json(uneven):
    assert decode_ranks(encode_ranks(uneven)) == uneven


def test_an_executor_gives_the_same_bytes(uneven):
    with ThreadPoolExecutor(2) as executor:
        assert encode_ranks(diagnose_ranks(both("uneven"), executor)) == encode_ranks(uneven)


def test_shards_give_the_same_bytes(uneven, tmp_path):
    parts = [tmp_path / f"{i}.part" for i in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert write_shard(both("uneven"), (number, 2), part) == 1
    assert encode_ranks(merge_parts(parts)) == encode_ranks(uneven)


def test_a_missing_shard_is_said(tmp_path):
    write_shard(both("uneven"), (2, 2), tmp_path / "2.part")
    report = merge_parts([tmp_path / "2.part"])
    assert report.job.shards_missing == (1,)
    assert report.job.missing == (0,)
    assert "shards that are missing: 1" in render(ranks_page(report))


def test_parts_that_do_not_belong_together(tmp_path):
    for shard in ((1, 2), (1, 3)):
        write_shard(both("uneven"), shard, tmp_path / f"{shard[1]}.part")
    with pytest.raises(UnreadableFile, match="shards of different splits"):
        merge_parts([tmp_path / "2.part", tmp_path / "3.part"])
    with pytest.raises(UnreadableFile, match="shard 1 again"):
        merge_parts([tmp_path / "2.part"] * 2)
    cut = tmp_path / "cut.part"
    cut.write_bytes((tmp_path / "2.part").read_bytes()[:-200])
    with pytest.raises(UnreadableFile, match="cut off"):
        merge_parts([cut])
    with pytest.raises(UnreadableFile, match="not a part file"):
        merge_parts([DATA / "provenance.toml"])
    with pytest.raises(UsageError, match="which parts"):
        merge_parts([])
    with pytest.raises(UsageError, match="not one of"):
        write_shard(both("uneven"), (3, 2), cut)


def test_a_part_whose_columns_do_not_fit_is_refused(tmp_path):
    part = tmp_path / "1.part"
    write_shard(both("uneven"), (1, 1), part)
    header, line, *_ = part.read_bytes().splitlines()
    record = decode_record(line)
    summary = record.summary
    replaced = msgspec.structs.replace
    for what, bad in {
        "length": replaced(summary, steps=replaced(summary.steps, end_ns=b"")),
        "parts": replaced(summary, steps=replaced(summary.steps, parts_ns=bytes(8))),
        "kind": replaced(summary, call_kinds=()),
        "group": replaced(summary, groups=()),
        "stride": replaced(summary, calls=replaced(summary.calls, stride=0)),
        "never ran": replaced(summary, kernels=(Kernel(name="k", count=0, total_ns=9),)),
    }.items():
        assert summary.fault() is None
        assert what in bad.fault()
        part.write_bytes(header + b"\n" + encode_record(replaced(record, summary=bad)) + b"\n")
        with pytest.raises(UnreadableFile, match="not a part file"):
            merge_parts([part])


def test_a_part_with_a_number_of_more_than_64_bits_is_refused(tmp_path):
    part = tmp_path / "1.part"
    write_shard(both("uneven"), (1, 1), part)
    text, replaced = re.subn(rb'"bytes":\d+', b'"bytes":1' + b"0" * 400, part.read_bytes())
    assert replaced
    part.write_bytes(text)
    with pytest.raises(UnreadableFile, match="not a part file"):
        merge_parts([part])


@pytest.mark.parametrize("text", [b'{"traceEvents": []}', b'{"a":' * 50_000, b"[" * 50_000])
def test_json_that_is_no_part(text, tmp_path):
    part = tmp_path / "x.part"
    part.write_bytes(text)
    with pytest.raises(UnreadableFile, match="not a part file"):
        merge_parts([part])


def test_a_pipe_is_neither_read_nor_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UnreadableFile, match="pipe"):
        merge_parts([pipe])
    with pytest.raises(UsageError, match="cannot be written"):
        write_shard(both("uneven"), (1, 1), pipe)
    assert pipe.is_fifo()


def test_names_of_devices_cannot_steer_a_terminal(uneven):
    replaced = msgspec.structs.replace
    named = replaced(uneven, job=replaced(uneven.job, devices={"H100\x1b[31m\n::error::": 2}))
    text = render(ranks_page(named))
    assert "\x1b" not in text
    assert "H100\ufffd[31m ::error::" in text


def test_one_bad_file_does_not_stop_the_rest(tmp_path):
    for path in both("uneven"):
        shutil.copy(path, tmp_path)
    (tmp_path / "uneven.rank2.json.gz").write_bytes(both("uneven")[0].read_bytes()[:9000])
    (tmp_path / "uneven.rank3.json.gz").write_bytes(b"no recording at all")
    report = diagnose_ranks([tmp_path])
    assert report.job.ranks == 2
    assert [f.id for f in report.findings] == ["straggler-rank"]
    assert {note.rank for note in report.job.unreadable} == {2, 3}
    text = render(ranks_page(report))
    assert "cannot be used: " in text


def test_files_that_all_claim_rank_0_are_told_apart_by_name(tmp_path):
    for r in (0, 1):
        shutil.copy(both("uneven")[0], tmp_path / f"a.rank{r}.json.gz")
    report = diagnose_ranks([tmp_path])
    assert report.job.ranks == 2
    assert report.stragglers == ()


def test_one_rank_twice_is_left_out(tmp_path):
    for name in ("host_7.json.gz", "host_8.json.gz"):
        shutil.copy(both("uneven")[0], tmp_path / name)
    report = diagnose_ranks([tmp_path])
    assert report.job.ranks == 1
    assert "rank 0" in report.job.left_out[0].why


def test_a_file_without_rank_beside_ranks_is_left_out(tmp_path):
    for path in both("uneven"):
        shutil.copy(path, tmp_path)
    single = Job(ranks=1).traces()[0]
    record = record_of(single, RankFile("single.json"))
    nameless = msgspec.structs.replace(
        record.summary,
        rank=None,
        world_size=None,
        steps=StepColumns(how="none"),
        parts=(),
        call_kinds=(),
        calls=Calls(),
    )
    record = msgspec.structs.replace(record, summary=nameless)
    part = tmp_path / "0.part"
    write_part(part, PartHeader(), [encode_record(record)])
    write_shard(both("uneven"), (1, 1), tmp_path / "1.part")
    report = merge_parts([part, tmp_path / "1.part"])
    assert report.job.ranks == 2
    assert report.job.left_out[0].why.startswith("its rank is not known")


def test_a_recording_of_another_day_is_left_out(tmp_path):
    for path in both("uneven"):
        shutil.copy(path, tmp_path)
    other = tmp_path / "uneven.rank2.json.gz"
    text = gzip.decompress(both("uneven")[0].read_bytes()).replace(b'"rank": 0', b'"rank": 2', 1)
    base = re.search(rb'"baseTimeNanoseconds": (\d+)', text)[1]
    text = text.replace(base, b"%d" % (int(base) - 86_400 * 10**9), 1)
    other.write_bytes(gzip.compress(text))
    report = diagnose_ranks([tmp_path])
    assert report.job.ranks == 2
    assert [note.path for note in report.job.left_out] == [str(other)]
    assert "another time" in report.job.left_out[0].why


def test_recordings_of_other_moments_are_said_to_be_so(tmp_path):
    shutil.copy(both("uneven")[0], tmp_path)
    text = gzip.decompress(both("uneven")[1].read_bytes())
    base = re.search(rb'"baseTimeNanoseconds": (\d+)', text)[1]
    text = text.replace(base, b"%d" % (int(base) + 5 * 10**9), 1)
    # Steps and numbers of other moments: nothing of one rank is anything of the other.
    text = re.sub(rb"ProfilerStep#(\d)", rb"ProfilerStep#9\1", text)
    (tmp_path / "uneven.rank1.json.gz").write_bytes(gzip.compress(text))
    report = diagnose_ranks([tmp_path])
    assert report.clocks.not_aligned == (0, 1)
    assert report.clocks.apart_ns == pytest.approx(5e9, rel=0.05)
    assert "recorded one after the other: 4" in " ".join(render(ranks_page(report)).split())


def test_absurd_numbers_in_a_part_are_no_internal_error(tmp_path):
    record = record_of(Job(ranks=1).traces()[0], RankFile("a.json", 0))
    absurd = msgspec.structs.replace(
        record.summary, rank=10**9, world_size=10**12, events=10**18, typical_step_ns=-(10**18)
    )
    part = tmp_path / "0.part"
    write_part(part, PartHeader(), [encode_record(msgspec.structs.replace(record, summary=absurd))])
    report = merge_parts([part])
    assert (report.job.ranks, report.job.world_size, report.job.missing) == (1, None, ())


def test_recordings_without_rank_or_collective_are_no_job(tmp_path):
    record = record_of(Job(ranks=1).traces()[0], RankFile("a.json"))
    alone = msgspec.structs.replace(
        record.summary, rank=None, world_size=None, call_kinds=(), calls=Calls()
    )
    records = [msgspec.structs.replace(record, path=p, summary=alone) for p in ("a.json", "b.json")]
    part = tmp_path / "0.part"
    write_part(part, PartHeader(), map(encode_record, records))
    with pytest.raises(UsageError, match="not ranks of one job"):
        merge_parts([part])


def test_recordings_of_another_job_are_left_out(tmp_path):
    write_shard(both("uneven"), (1, 1), tmp_path / "1.part")
    other = record_of(Job(ranks=1).traces()[0], RankFile("stranger.json", 7))
    summary = msgspec.structs.replace(other.summary, rank=7, world_size=300)
    record = msgspec.structs.replace(other, summary=summary)
    write_part(tmp_path / "2.part", PartHeader(), [encode_record(record)])
    report = merge_parts([tmp_path / "1.part", tmp_path / "2.part"])
    assert (report.job.ranks, report.job.world_size) == (2, 2)
    assert [note.path for note in report.job.left_out] == ["stranger.json"]
    assert "300 ranks" in report.job.left_out[0].why


def test_ranks_that_never_met_are_not_called_healthy():
    single = diagnose_ranks(both("uneven")[:1])
    assert "Only one rank" in single.verdict
    assert (single.scaling, single.what_if) == (None, ())
    assert "Nothing inside a single rank" in render(ranks_page(single))


def test_one_rank_alone_says_what_its_own_report_says():
    file = DATA.parent / "labelled/c16_sync_in_loop.slow.json.gz"
    alone, own = diagnose_ranks([file]), diagnose(load(file))
    assert alone.fix_ladder == own.fix_ladder
    assert alone.steps.unprofiled_ns_predicted == own.steps.unprofiled_ns_predicted
    said = [(f.id, f.predicted_step_ns, f.predicted_range_ns) for f in own.findings]
    assert [(f.id, f.predicted_step_ns, f.predicted_range_ns) for f in alone.findings] == said


def test_the_page_of_a_job_has_both_clocks_and_one_switch(uneven):
    parts = sum(part.unprofiled_ns_per_step for part in uneven.breakdown)
    assert parts == uneven.steps.unprofiled_ns_predicted
    assert 'id="clock-recorded"' not in html.render(ranks_page(uneven, full=True))
    quicker = msgspec.structs.replace(
        uneven.steps, unprofiled_ns_predicted=uneven.steps.typical_ns // 2
    )
    slowed = msgspec.structs.replace(uneven, steps=quicker)
    page = html.render(ranks_page(slowed, full=True), home="/")
    assert 'id="clock-recorded"' in page
    assert page.count("Change this first") == 2
    recorded = job_as_recorded(slowed)
    assert recorded.steps.unprofiled_ns_predicted is None
    first, before = recorded.findings[0], uneven.findings[0]
    assert first.predicted_step_ns == pytest.approx(2 * before.predicted_step_ns, rel=0.01)


def test_the_document_of_a_large_job_has_the_first_ranks_and_those_that_stand_out(monkeypatch):
    whole = diagnose_ranks(both("uneven")).tables
    monkeypatch.setattr("pinchpoint.report.assemble.ranks_tables.MOST_RANKS", 1)
    tables = diagnose_ranks(both("uneven")).tables
    assert tables["ranks"].rows == whole["ranks"].rows[:1]
    assert tables["ranks"].rows_left_out == 1
    assert tables["outliers"] == whole["outliers"]


def test_what_is_kept_of_ranks_as_parquet(tmp_path, uneven):
    duckdb = pytest.importorskip("duckdb", reason="the extra [sql] is not installed")
    report = diagnose_ranks(both("uneven"), parquet=tmp_path / "tables")
    assert encode_ranks(report) == encode_ranks(uneven)

    def ask(statement):
        return duckdb.sql(statement.format(f"{tmp_path}/tables")).fetchall()

    steps = ask("SELECT rank, count(*), sum(complete::int) FROM '{}/steps-*.parquet' GROUP BY 1")
    assert sorted(steps) == [(0, 4, 3), (1, 4, 3)]
    rows = ask("SELECT rank, own, clock, last, path FROM '{}/ranks-*.parquet' ORDER BY rank")
    listed = [(r[0], r[1], r[7], r[5], r[9]) for r in report.tables["ranks"].rows]
    assert [tuple(row) for row in rows] == listed
    (parts,) = ask("SELECT sum(ns) FROM '{}/step_parts-*.parquet'")
    (windows,) = ask("SELECT sum(end_ns - start_ns) FROM '{}/steps-*.parquet'")
    assert parts == windows
    calls = ask("SELECT DISTINCT kind, bytes, sequence FROM '{}/collectives-*.parquet'")
    assert calls == [("allreduce", 16_000_000, None)]


def test_a_record_says_why_there_is_nothing(tmp_path):
    record = decode_record(read_rank(RankFile(str(tmp_path / "gone.json"), 4)))
    assert (record.rank, record.summary) == (4, None)
    assert "no such file" in record.error


def test_a_record_is_small():
    trace = Job(ranks=1, steps=60, calls=60).traces()[0]
    record = record_of(trace, RankFile("rank0.json"))
    assert record.summary.calls.in_all == 3600
    assert record.summary.calls.stride == 2
    assert len(msgspec.json.encode(record)) < 200_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """40 ranks by hand: 7 and 21 late, written as part file without ever being a file of traces."""
    job = Job(
        ranks=40,
        steps=4,
        stall_ms=lambda rank, step: 4.0 * (rank in (7, 21)),
        stall_name="train.py(9): <script>alert(1)</script>\x00",
    )
    records = [
        encode_record(record_of(trace, RankFile(f"rank{r}.json", r)))
        for r, trace in enumerate(job.traces())
    ]
    part = tmp_path_factory.mktemp("many") / "all.part"
    write_part(part, PartHeader(files=40), records)
    return merge_parts([part])


def test_two_late_ranks_of_forty(many):
    assert {s.rank for s in many.stragglers} == {7, 21}
    found = next(f for f in many.findings if f.id == "straggler-rank")
    assert found.summary.startswith("Ranks 7 and 21 hold up the others by 4.00 ms")
    text = render(ranks_page(many))
    assert "Late ranks" in text
    assert re.search(r"6 to 8\s+\|█+\|", text)
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (Location("train.py", 41, "shared_step"), "   at       train.py:41, in shared_step"),
        (Location("train.py", 41, "shared_step", "Net_0"), "   at       train.py:41, in Net_0"),
        (Location("src/common.py", 95, "__call__"), None),  # the sentence above names that line
        (None, None),
    ],
)
def test_the_terminal_says_where_a_cause_is(uneven, place, line):
    report = _placed(uneven, place)
    text = render(ranks_page(report), Look(width=80)).splitlines()
    assert [row for row in text if row.startswith("   at ")] == ([line] if line else [])
    said = render(ranks_page(report, verbose=True)).splitlines()
    assert any(row.startswith("   at ") for row in said) == (place is not None)


def test_a_long_place_stays_within_the_terminal(uneven):
    place = Location("projects/recommender/" + "training/" * 8 + "train.py", 1041, "shared_step")
    text = render(ranks_page(_placed(uneven, place)), Look(width=80))
    assert all(len(row) <= 80 for row in text.splitlines() if "Next: " not in row)  # a command
    assert "train.py:1041,inshared_step" in re.sub(r"\s+", "", text)


def _placed(report, place):
    (finding,) = report.findings
    return msgspec.structs.replace(
        report, findings=(msgspec.structs.replace(finding, location=place),)
    )


def test_plain_ascii_where_the_terminal_has_no_more(many):
    assert render(ranks_page(many), Look(unicode=False)).isascii()


def test_the_page_shows_names_as_text(many):
    page = html.render(ranks_page(many, verbose=True, full=True))
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count('role="img" aria-label="Lateness') == 1
    assert page.count('role="img" aria-label="Step') == 1
    assert "\x00" not in page


def test_tables_of_ten_thousand_ranks_stay_readable(uneven):
    def widened(table, column, value):
        at = next(i for i, c in enumerate(table.columns) if c.id == column)
        rows = tuple((*row[:at], value, *row[at + 1 :]) for row in table.rows)
        return msgspec.structs.replace(table, rows=rows)

    tables = uneven.tables | {
        "collectives": widened(uneven.tables["collectives"], "ranks", 10_000),
        "ranks": widened(uneven.tables["ranks"], "rank", 9_999),
    }
    report = msgspec.structs.replace(uneven, tables=tables)
    (row,) = [x for x in render(ranks_page(report)).splitlines() if x.startswith("allreduce")]
    assert " 10,000 " in row
    assert len(row) <= 80
    assert ">9999<" in html.render(ranks_page(report, verbose=True, full=True))


def test_a_map_of_few_steps_is_narrow_and_its_first_label_whole(uneven):
    picture = heat_svg(uneven.heat_map)
    width = int(re.search(r'viewBox="0 0 (\d+)', picture)[1])
    assert width == 110 + 48 * len(uneven.heat_map.columns)
    assert f"max-width: {width}px" in picture
    assert float(re.search(r'<text class="r-text" x="[\d.]+" y="([\d.]+)"', picture)[1]) > 11
