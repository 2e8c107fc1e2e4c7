"""Engines that lose workers lose nothing else."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from fuzz.samples import trace
from jobs.rank_workers import fragile, interrupted_for_ever, quick
from pinchpoint.cli import main
from pinchpoint.errors import UsageError
from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs import engines
from pinchpoint.jobs.engines import _pool, _submitted, in_processes, run, workers_for
from pinchpoint.report.documents.rank_records import decode_record

FILES = [RankFile(f"rank{i}.json", i) for i in range(6)]


def ranks(records):
    return sorted(decode_record(r).rank for r in records)


@pytest.fixture
def one_dies(tmp_path):
    return [*FILES[:3], RankFile("rank3.json", 3, label=str(tmp_path / "once")), *FILES[4:]]


def test_a_process_that_dies_once_loses_nothing(one_dies):
    records = list(in_processes(one_dies, 2, fragile))
    assert ranks(records) == [0, 1, 2, 3, 4, 5]
    assert all(decode_record(r).error == "nothing to read" for r in records)


def test_a_file_that_always_kills_is_the_only_one_lost(tmp_path):
    deadly = RankFile("rank3.json", 3, label=str(tmp_path / "always"))
    records = list(in_processes([*FILES[:3], deadly, *FILES[4:]], 2, fragile))
    assert ranks(records) == [0, 1, 2, 3, 4, 5]
    lost = [decode_record(r) for r in records if decode_record(r).error != "nothing to read"]
    assert [r.rank for r in lost] == [3]
    assert "died" in lost[0].error


@pytest.mark.parametrize("missing", ["program", "semaphores"])
def test_where_no_process_can_be_started_this_one_reads(missing, monkeypatch):
    if missing == "program":
        monkeypatch.setattr(sys, "executable", __file__)
    else:
        monkeypatch.setattr(engines, "get_context", lambda _: NoSemaphores())
    assert ranks(in_processes(FILES, 2, quick)) == [0, 1, 2, 3, 4, 5]


def test_a_script_without_a_guard_is_not_run_again_in_each_process(tmp_path):
    for rank in range(engines.SMALL_JOB + 1):
        (tmp_path / f"rank{rank}.json").write_text(trace())
    script = tmp_path / "script.py"
    script.write_text(
        "print('begun', flush=True)\n"
        "import pinchpoint as pp\n"
        "from pinchpoint.jobs import engines\n"
        "engines.workers_for = lambda files: 2\n"
        f"print(pp.diagnose_ranks([{str(tmp_path)!r}]).job.ranks)\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert run.stdout.split() == ["begun", str(engines.SMALL_JOB + 1)]
    assert run.stderr == ""


class NoSemaphores:
    def Lock(self):  # noqa: N802 - its name
        raise FileNotFoundError(2, "No such file or directory")


def test_what_is_lost_is_said_in_the_form_of_the_work(tmp_path):
    deadly = RankFile("rank3.json", 3, label=str(tmp_path / "always"))
    said = in_processes([deadly], 1, fragile, lambda file, why: f"{file.rank}: {why}".encode())
    assert list(said) == [b"3: the process that read it died; out of memory?"]


class Recording:
    """An executor that runs at once, counts what is in flight, and loses the first task."""

    def __init__(self):
        self.open, self.most, self.lost = 0, 0, False

    def submit(self, work, file):
        self.open += 1
        self.most = max(self.most, self.open)
        future = Future()
        if not self.lost:
            self.lost = True
            future.set_exception(ConnectionError("worker lost"))
        else:
            future.set_result(work(file))
        self.open -= future.done()
        return future


@pytest.mark.skipif(not hasattr(signal, "pause"), reason="signals of POSIX")
def test_processes_end_with_an_interruption_that_only_we_see(tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    processes = []

    def work_until_interrupted():
        with _pool(1) as pool:
            _submitted(pool, interrupted_for_ever, str(ready))
            ready.read_text()  # waits until it is at work
            processes.extend(pool._processes.values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_until_interrupted()
    assert [p.exitcode for p in processes] == [-signal.SIGTERM]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_any_executor_and_lost_tasks_are_sent_again():
    executor = Recording()
    assert ranks(run(FILES, executor, quick)) == [0, 1, 2, 3, 4, 5]
    assert executor.lost


def test_workers_fit_into_memory(monkeypatch, tmp_path):
    big = tmp_path / "rank0.json"
    big.write_bytes(b"")
    os.truncate(big, 4_000_000_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    free = type("Memory", (), {"available": 40_000_000_000})
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    assert workers_for([RankFile(str(big))]) == 2
    assert workers_for(FILES) == 64


def test_ray_gives_the_same_and_survives_a_killed_worker(tmp_path, one_dies):
    ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")
    from pinchpoint.jobs import OnRay, diagnose_ranks
    from pinchpoint.jobs.run import run_on_ray
    from pinchpoint.report.documents.ranks import encode_ranks

    data = Path(__file__).parents[1] / "data" / "ranks"
    files = sorted(data.glob("uneven.rank*.json.gz"))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(["src", "tests/jobs"])}},
    )
    try:
        assert ranks(run_on_ray(one_dies, work=fragile)) == [0, 1, 2, 3, 4, 5]
        there = diagnose_ranks(files, OnRay())
    finally:
        ray.shutdown()
    assert encode_ranks(there) == encode_ranks(diagnose_ranks(files))


def test_no_ray_at_the_address():
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    from pinchpoint.jobs.run import run_on_ray

    with pytest.raises(UsageError, match=r"Ray at 127\.0\.0\.1:1"):
        list(run_on_ray(FILES, "127.0.0.1:1"))


def test_commands_answer_the_same_where_a_worker_is_killed(tmp_path, monkeypatch, capsys):
    for rank in range(3):
        (tmp_path / f"rank{rank}.json").write_text(trace())
    out = tmp_path / "out"
    commands = [["diagnose", "--json"], ["ranks", "--shard", "1/1", "-o", str(out)]]
    submitted, killed = engines._submitted, []

    def and_killed(pool, work, file):
        future = submitted(pool, work, file)
        if not killed:
            killed.append(next(iter(pool._processes)))
            os.kill(killed[0], signal.SIGKILL)
        return future

    monkeypatch.setattr(engines, "_submitted", and_killed)
    monkeypatch.setattr(engines, "workers_for", lambda files: 2)
    for command, *words in commands:
        answers = []
        for small in (engines.SMALL_JOB, 0):  # in this process, then in others
            monkeypatch.setattr(engines, "SMALL_JOB", small)
            assert main([command, str(tmp_path), *words]) == 0
            said = capsys.readouterr().out
            answers.append(sorted((out.read_text() if out.exists() else said).splitlines()))
            out.unlink(missing_ok=True)
        assert killed, command
        assert answers[0] == answers[1], command
        killed.clear()
        monkeypatch.setattr(engines, "SMALL_JOB", 16)
