"""SQL and Parquet over the tables of a trace."""

import sys

import pytest

from builders import TraceBuilder
from pinchpoint.errors import MissingExtra, UsageError
from pinchpoint.report.ways_out.database import query, write_parquet


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
        "COPY names TO 'x.csv'",
        "SELECT * FROM read_csv('x.csv')",
        "SET enable_external_access = true",
    ],
)
def test_what_cannot_be_asked_is_one_line(statement):
    with pytest.raises(UsageError) as caught:
        query(small(), statement)
    assert "\n" not in caught.value.message


def test_every_declared_table_can_be_stored():
    assert query(TraceBuilder().trace(), "SELECT count(*) FROM device_ops")[1] == [(0,)]


def test_parquet_files_open_again(tmp_path):
    folder = tmp_path / "it's"
    folder.mkdir()
    files = write_parquet(small(), folder)
    assert [file.name for file in files] == [
        "host_ops.parquet",
        "api_calls.parquet",
        "device_ops.parquet",
    ]
    rows = duckdb.read_parquet(str(files[2])).fetchall()
    assert [row[3] for row in rows] == ["gemm", "gemm"]


def test_a_folder_that_takes_nothing_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"device_ops|host_ops"):
        write_parquet(small(), tmp_path / "absent")
