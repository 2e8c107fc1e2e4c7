"""SQL and Parquet over the tables of a trace."""

import sys
from pathlib import Path

import pytest

from builders import TraceBuilder
from pinchpoint.cli import main
from pinchpoint.errors import MissingExtra, UsageError
from pinchpoint.export.database import Limits, query, write_parquet

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


def small():
    builder = TraceBuilder()
    builder.op("mm\x00'; DROP TABLE names; --", 0, 100)
    builder.launch(at=15, takes=5, kernel="gemm", runs_at=30, for_ns=40)
    builder.launch(at=215, takes=5, kernel="gemm", runs_at=230, for_ns=2)
    return builder.trace()


def test_without_duckdb_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra) as caught:
        query(small(), "SELECT 1")
    assert "pip install duckdb, or in a checkout: pip install -e '.[sql]'" in caught.value.hint


duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")


def test_names_and_kinds_are_words_and_unknown_is_null():
    header, rows = query(small(), "SELECT name, kind, duration_ns, host_op FROM device_ops")
    assert header == ["name", "kind", "duration_ns", "host_op"]
    assert rows == [("gemm", "kernel", 40, 0), ("gemm", "kernel", 2, None)]


def test_rows_join():
    statement = "SELECT h.name, d.bytes FROM device_ops d JOIN host_ops h ON h.row = d.host_op"
    assert query(small(), statement)[1] == [("mm\x00'; DROP TABLE names; --", None)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELEC",
        "SELECT * FROM nowhere",
        "COPY names TO 'out.csv'",
        "COPY (SELECT 1) TO '/tmp/out.parquet' (FORMAT parquet)",
        "EXPORT DATABASE 'out'",
        "ATTACH 'other.db'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/*')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/passwd'",
        "FROM 'https://example.org/x.parquet'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET enable_external_access",
        "PRAGMA enable_external_access=true",
        "SET lock_configuration = false",
        "SET python_enable_replacements = true",
        "SET temp_directory = '/tmp'",
        "SET memory_limit = '100GB'",
        "SELECT getenv('HOME')",
        "SELECT * FROM TABLES",
        "SELECT * FROM header",
        "SELECT * FROM columns",
        "CALL pragma_version(",
        "CREATE SECRET x (TYPE s3)",
        "SELECT 1; COPY names TO 'x'",
        "IMPORT DATABASE '/tmp'",
        "",
    ],
)
def test_what_cannot_be_asked_is_one_line_and_leaves_nothing(statement, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        query(small(), statement)
    assert "\n" not in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_every_declared_table_can_be_stored():
    assert query(TraceBuilder().trace(), "SELECT count(*) FROM device_ops")[1] == [(0,)]


def test_parquet_files_open_again(tmp_path):
    folder = tmp_path / "it's"
    folder.mkdir()
    files = list(write_parquet(small(), folder))
    assert [file.name for file in files] == [
        "host_ops.parquet",
        "api_calls.parquet",
        "device_ops.parquet",
    ]
    rows = duckdb.read_parquet(str(files[2])).fetchall()
    assert [row[3] for row in rows] == ["gemm", "gemm"]


def test_a_folder_that_takes_nothing_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"device_ops|host_ops"):
        list(write_parquet(small(), tmp_path / "absent"))


def test_a_query_without_end_ends():
    with pytest.raises(UsageError, match="too long"):
        query(small(), "SELECT * FROM range(1000000000000) WHERE range < 0", Limits(0.2, None, 10))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no limit without it")
def test_one_value_takes_no_gigabytes_and_the_limit_is_lifted_again():
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(UsageError, match="out of memory"):
        query(small(), "SELECT repeat('x', 4000000000)", Limits(60, None, 10))
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert query(small(), "SELECT 1", Limits(60, None, 10))[1] == [(1,)]


def test_more_rows_than_asked_for_are_seen_but_not_fetched():
    assert len(query(small(), "SELECT * FROM range(1000000)", Limits(20, None, 10))[1]) == 11


def test_the_command_refuses_what_it_cannot_show(monkeypatch, capsys):
    monkeypatch.setattr("pinchpoint.cli.sharing.sql.MOST_ROWS", 2)
    assert main(["sql", str(DEMO), "SELECT * FROM device_ops"]) == 2
    assert "more than 2 rows" in capsys.readouterr().err
    assert main(["sql", str(DEMO), "SELECT 1", "--timeout", "0"]) == 2
    assert "--timeout 0" in capsys.readouterr().err
