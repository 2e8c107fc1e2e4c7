"""Databases that are broken, unfinished or made to do harm."""

import gzip
import sqlite3

import pytest

import pinchpoint as pp
from importers.nsys_export import call, kernel, strings, write
from pinchpoint.errors import HostileFile, UnreadableFile

TABLES = {
    "StringIds": strings("gemm", "cudaLaunchKernel_v7000"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1, 2, 3, 1)],
}
ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    " SELECT x AS start, x + 1 AS end, 0 AS demangledName FROM n"
)


def test_a_view_in_place_of_a_table_is_not_run(tmp_path):
    path = write(
        tmp_path / "view.sqlite", TABLES, f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS}"
    )
    trace = pp.load(path)
    assert trace.device_ops is None
    assert len(trace.api_calls) == 1
    assert passed_over(trace) == [(1, "CUPTI_ACTIVITY_KIND_KERNEL")]


def passed_over(trace):
    told = zip(*(trace.health[c].tolist() for c in ("fact", "count", "detail")), strict=True)
    return [
        (count, trace.names[text])
        for kind, count, text in told
        if trace.names[kind] == "tables-passed-over"
    ]


def test_generated_columns_and_virtual_tables_are_not_there(tmp_path):
    script = """
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(
            start, end, demangledName, correlationId AS (zeroblob(1000000000)));
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0);
        CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMCPY USING fts5(start, end);
    """
    trace = pp.load(write(tmp_path / "generated.sqlite", TABLES, script))
    assert trace.device_ops["duration_ns"].tolist() == [1]
    assert not trace.device_ops.known("correlation").any()


def test_triggers_stay_asleep_and_the_file_stays_as_it_was(tmp_path):
    script = """
        CREATE TABLE log(x);
        CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN INSERT INTO log VALUES (1); END;
    """
    path = write(tmp_path / "trigger.sqlite", TABLES, script)
    before = path.read_bytes()
    pp.load(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["trigger.sqlite"]


def test_names_are_quoted(tmp_path):
    script = """CREATE TABLE "x"" UNION SELECT 1 --"("a""b");"""
    assert len(pp.load(write(tmp_path / "quotes.sqlite", TABLES, script)).api_calls) == 1


def test_words_where_numbers_belong(tmp_path):
    tables = TABLES | {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 1), kernel("DROP", 2, 1)]}
    with pytest.raises(UnreadableFile, match="something else than numbers"):
        pp.load(write(tmp_path / "words.sqlite", tables))


def test_numbers_where_words_belong(tmp_path):
    tables = TABLES | {
        "StringIds": [{"id": 0, "value": 12}, {"id": 1, "value": b"\xff"}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 1)],
    }
    trace = pp.load(write(tmp_path / "numbers.sqlite", tables))
    assert trace.text(trace.device_ops, "name", 0) == "(unnamed kernel)"


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.2])
def test_a_database_that_is_cut_off(tmp_path, keep):
    rows = [kernel(i, i + 1, i) for i in range(2_000)]
    path = write(tmp_path / "whole.sqlite", TABLES | {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(UnreadableFile, match=r"cut\.sqlite: damaged"):
        pp.load(cut)


def test_bytes_overwritten_with_nonsense(tmp_path):
    rows = [kernel(i, i + 1, i) for i in range(2_000)]
    path = write(tmp_path / "noise.sqlite", TABLES | {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    content = bytearray(path.read_bytes())
    content[4096:] = bytes((i * 37) % 256 for i in range(len(content) - 4096))
    path.write_bytes(bytes(content))
    with pytest.raises(UnreadableFile, match="damaged"):
        pp.load(path)


def test_only_the_magic_word(tmp_path):
    path = tmp_path / "magic.sqlite"
    path.write_bytes(b"SQLite format 3\x00" + b"\x00" * 5_000)
    with pytest.raises(UnreadableFile):
        pp.load(path)


def test_a_database_that_is_being_written(tmp_path):
    path = tmp_path / "live.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE StringIds(id, value)")
    connection.commit()
    try:
        with pytest.raises(UnreadableFile, match="write-ahead log"):
            pp.load(path)
    finally:
        connection.close()


def test_another_program_holds_a_lock(tmp_path):
    path = write(tmp_path / "locked.sqlite", TABLES)
    connection = sqlite3.connect(path)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert len(pp.load(path).api_calls) == 1  # immutable: no lock is asked for
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        (("cookies",), "of cookies, but no export of Nsight Systems"),
        (("StringTable", "CUPTI_ACTIVITY_KIND_DEVICE"), "a database of nvprof"),
        (("op_nodes", "kernel_iteration_stats"), "a database of DLProf"),
        (("ZISSUE", "Z_METADATA"), "Apple's Instruments"),
    ],
)
def test_another_kind_of_database(tmp_path, tables, what):
    row = [{"host": "x", "value": "y"}]
    with pytest.raises(UnreadableFile, match=what):
        pp.load(write(tmp_path / "other.sqlite", dict.fromkeys(tables, row)))


def test_a_gzip_that_unpacks_to_far_too_much(tmp_path):
    path = tmp_path / "bomb.sqlite.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\x00" + b"\x00" * 80 * 1024**2))
    with pytest.raises(HostileFile, match="unpacks to more"):
        pp.load(path)


def test_a_path_with_signs_that_mean_something_in_a_uri(tmp_path):
    path = write(tmp_path / "a?mode=rwc#b%20c.sqlite", TABLES)
    assert len(pp.load(path).api_calls) == 1
    assert len(list(tmp_path.iterdir())) == 1
