"""A query of somebody else is held by the operating system, and ours goes on."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import pinchpoint as pp
from pinchpoint.errors import UsageError
from pinchpoint.export.database import Limits, query
from pinchpoint.export.query_apart import _START_S, query_apart

pytest.importorskip("duckdb")
SAMPLE = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
LIMITS = Limits(seconds=20.0, memory_mb=256, rows=200)


@pytest.fixture(scope="module")
def trace():
    return pp.load(SAMPLE)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name, count(*) n, sum(duration_ns) ns FROM device_ops GROUP BY ALL ORDER BY ALL",
        "SELECT thread, process, id, label FROM threads ORDER BY ALL",
        "SELECT NULL, true, 1.5::DOUBLE, 170141183460469231731687303715884105727::HUGEINT",
    ],
)
def test_the_answer_is_that_of_a_query_here(trace, statement):
    header, rows = query(trace, statement, LIMITS)
    texts = [
        tuple(v if isinstance(v, bool | int | float | None) else str(v) for v in r) for r in rows
    ]
    assert query_apart(trace, statement, LIMITS) == (header, texts)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is bounded on Linux")
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT length(repeat('x', 2000000000))",
        "SELECT list_sum(range(1000000000))",
        "SELECT string_agg(i::VARCHAR) FROM range(100000000) t(i)",
    ],
)
def test_one_value_cannot_take_gigabytes(trace, statement):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # children of other tests
    with pytest.raises(UsageError, match=r"(?i)out of memory|more than 256 MB"):
        query_apart(trace, statement, LIMITS)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert largest <= max(before, 1024 << 10)


def test_time_is_bounded(trace):
    with pytest.raises(UsageError, match="too long"):
        query_apart(trace, "SELECT count(*) FROM range(10000000000000) a", Limits(0.2, 256, 10))


def test_a_long_answer_is_cut_and_a_longer_one_refused(trace):
    _, rows = query_apart(trace, "SELECT repeat('x', 1000000)", LIMITS)
    assert rows == [("x" * 10_000,)]
    wide = ", ".join("repeat('x', 10000)" for _ in range(20))
    with pytest.raises(UsageError, match="answer is too long"):
        query_apart(trace, f"SELECT {wide} FROM range(200)", LIMITS)


def test_modules_in_the_current_folder_are_not_run(trace, tmp_path, monkeypatch):
    for name in ("duckdb", "json", "pickle", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    assert query_apart(trace, "SELECT 1", LIMITS)[1] == [(1,)]
    assert not (tmp_path / "ran").exists()


def test_a_process_that_dies_is_said(trace, monkeypatch):
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda words, **how: real([words[0], "-c", "raise SystemExit(1)"], **how),
    )
    with pytest.raises(UsageError, match="needs more than 256 MB or 20 s"):
        query_apart(trace, "SELECT 1", LIMITS)


@pytest.mark.skipif(sys.platform == "win32", reason="the system's clock ends it (POSIX)")
def test_one_long_piece_of_work_ends_with_its_time(trace, monkeypatch):
    """What DuckDB does not look at its clock in: a second after the time, and not 30 later."""
    sleeping = "from pinchpoint.export import query_apart as q; import time; q.query = lambda *a: (a[3](), time.sleep(60)); q.main()"  # noqa: E501
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda words, **how: real([words[0], "-c", sleeping, words[-1]], **how),
    )
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"more than 256 MB or 0\.2 s"):
        query_apart(trace, "SELECT 1", Limits(0.2, 256, 10))
    assert time.monotonic() - began < _START_S  # else it was ended by who waits for it


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a process of its parent's end")
def test_a_query_ends_with_the_program_that_asked(tmp_path):
    """Killed in the middle of a query, a program leaves no process of it."""
    program = (
        "import pinchpoint as pp; from pinchpoint.export.database import Limits;"
        "from pinchpoint.export.query_apart import query_apart;"
        f"query_apart(pp.load({str(SAMPLE)!r}), 'SELECT count(*) FROM range(10000000000000)',"
        " Limits(60.0, 256, 10))"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as asking:
        of_it = psutil.Process(asking.pid)
        while not (queries := of_it.children()):
            time.sleep(0.01)
        while queries[0].cpu_times().user < 0.2:
            time.sleep(0.01)
        asking.kill()
    _, alive = psutil.wait_procs(queries, timeout=10)
    assert not alive


def test_that_no_process_can_be_started_is_said(trace, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(SAMPLE))  # no program
    with pytest.raises(UsageError, match="cannot be started"):
        query_apart(trace, "SELECT 1", LIMITS)
