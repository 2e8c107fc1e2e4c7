"""``pinchpoint run`` on real programs, on the CPU: what is kept, and what passes untouched."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

import pinchpoint as pp
from capture import scripts
from pinchpoint.capture.launch.launcher import command_line
from pinchpoint.cli import main
from pinchpoint.importers.ranks.files import find_rank_files
from pinchpoint.trace import HostKind

SOURCE = Path(pp.__file__).parents[1]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.skipif(find_spec("torch") is None, reason="these programs train with torch"),
]


@dataclass(frozen=True)
class Program:
    source: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ("script.py",)
    name: str = "script.py"


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "script.py")
LONG_RECORDING = ("--after-steps", "8", "--steps", "900")
PROGRAMS = {
    "loader": Program(
        scripts.LOADER_PACKAGE, ("--shapes",), ("-m", "program", "--steps", "9"), "program.py"
    ),
    "crashes": Program(scripts.CRASHES_EARLY_AFTER_A_FORK),
    "copies": Program(scripts.TRAINS_IN_COPIES),
    "sigterm": Program(scripts.ENDED_BY_A_SCHEDULER, LONG_RECORDING),
    "disk full": Program(scripts.DISK_FULL),
    "own profiler": Program(scripts.OWN_PROFILER),
    "quiet": Program(scripts.QUIET_UNTIL_RECORDED, ("--after-seconds", "0.2", "--seconds", "0.2")),
    "jax": Program(scripts.JAX),
    "two ranks": Program(scripts.TWO_RANKS, (), TORCHRUN),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Gives what became of a program under ``pinchpoint run``.

    Most of the time goes to imports of torch. So one thread runs the programs from the last one
    on, while tests ask for them from the first one on.
    """

    def run(name):
        program, folder = PROGRAMS[name], tmp_path_factory.mktemp("run")
        (folder / program.name).write_text(program.source)
        command = [sys.executable, "-m", "pinchpoint", "run", "-o", "out", "--no-diagnose"]
        path = os.pathsep.join((str(SOURCE), os.environ.get("PYTHONPATH", "")))
        done = subprocess.run(
            [*command, *program.options, *program.words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        return Ran(done.returncode, folder / "out", done.stdout, done.stderr)

    with ThreadPoolExecutor(1) as ahead:
        futures = {name: ahead.submit(run, name) for name in reversed(PROGRAMS)}
        yield lambda name: run(name) if futures[name].cancel() else futures[name].result()
        ahead.shutdown(cancel_futures=True)


class Ran:
    def __init__(self, code, folder, out, err):
        self.code, self.folder, self.out, self.err = code, folder, out, err

    def document(self, name):
        return json.loads((self.folder / name).read_text())

    @property
    def processes(self):
        return [
            json.loads(p.read_text()) for p in sorted((self.folder / "processes").glob("rank*"))
        ]

    @property
    def traces(self):
        return sorted(p.name for p in (self.folder / "traces").iterdir())


def test_a_module_with_loader_workers_is_timed_recorded_and_left_alone(ran):
    run = ran("loader")
    assert run.code == 0
    assert run.out == "arguments ['--steps', '9']\n"
    (process,) = run.processes
    steps = process["steps"]
    assert (steps["by"], steps["count"], steps["batches_per_step"]) == ("optimizer", 160, 1.0)
    assert len(steps["before_ns"]) >= 10
    # of the 20 one may be looked at for values, and calls of six are compared
    assert len(steps["after_ns"]) in range(12, 21)
    assert len(steps["wait_ns"]) == len(steps["before_ns"]) + len(steps["after_ns"])
    assert [loader["iterators"] for loader in process["loaders"]] == [2]
    metrics = run.document("metrics.json")
    assert metrics["loader_workers"]["processes"] == 4  # two workers, started anew each epoch
    assert metrics["steps"]["unprofiled_ms"]["median"] > 0
    trace = pp.load(run.folder)
    before, after = tuple(steps["before_ns"]), tuple(steps["after_ns"])
    # One side alone where other programs had the cores while the other one was timed; as long as
    # the run's own steps where they had them while both were.
    told = trace.run.unprofiled_step_ns
    assert len(told) in {len(before + after), len(before), len(after)}
    assert min(told) > 0
    assert len(trace.run.loader_workers) == 4
    assert trace.run.documents["software"]["python"]
    assert len(trace.steps) == 6
    assert (trace.host_ops["kind"] == HostKind.OPERATOR).any()
    assert not (trace.host_ops["kind"] == HostKind.PYTHON).any()
    assert (trace.run.named.host_ops["kind"] == HostKind.PYTHON).any()
    assert len(trace.run.named.steps) == 3
    assert len(trace.counters)
    assert run.document("run.json")["recordings"] == [f"traces/{run.traces[0]}"]


def test_a_crash_after_five_steps_and_a_fork_keeps_what_was_recorded_from_the_second(ran):
    run = ran("crashes")
    assert run.code == run.document("run.json")["exit_code"] == 1
    assert run.out == "to stdout\n"
    assert "the user's own mistake" in run.err
    (process,) = run.processes
    assert process["steps"]["count"] == 5
    (recording,) = process["recordings"]
    assert (recording["window"], recording["steps"] > 0) == ("early", True)
    trace = pp.load(run.folder)
    assert len(trace.steps) >= recording["steps"]  # three, or fewer on a busy machine
    assert trace.run.named is None


def test_copies_of_a_process_that_train_are_recorded_each_to_their_end(ran):
    run = ran("copies")
    assert (run.code, run.out) == (0, "[0, 0]\n")
    assert [p["steps"]["count"] for p in run.processes] == [40, 40]
    assert [p["complete"] for p in run.processes] == [True, True]
    assert len(run.traces) == 2
    assert run.document("run.json")["problems"] == []


def test_a_program_that_a_scheduler_ends_keeps_what_was_recorded(ran):
    run = ran("sigterm")
    assert run.code == 143
    assert len(run.traces) == 1
    assert 20 < run.processes[0]["recordings"][0]["steps"] < 40


def test_a_full_disk_costs_the_recording_and_nothing_else(ran):
    run = ran("disk full")
    assert run.code == 0
    assert run.traces == []
    assert "full" in run.err or "too large" in run.err


def test_a_program_with_its_own_profiler_keeps_it(ran):
    run = ran("own profiler")
    assert (run.code, run.out, len(run.traces)) == (0, "True\n", 1)
    assert "its recording is the one that is diagnosed" in run.err


def test_a_loop_without_steps_is_recorded_by_time(ran):
    run = ran("quiet")
    assert run.code == 0
    (recording,) = run.processes[0]["recordings"]
    assert recording["operators"] > 50


def test_a_jax_program_is_recorded_by_its_own_profiler(ran):
    pytest.importorskip("jax", reason="this program trains with jax")
    run = ran("jax")
    assert (run.code, run.document("run.json")["problems"]) == (0, [])
    (process,) = run.processes
    assert (process["steps"]["by"], process["steps"]["count"]) == ("annotation", 60)
    trace = pp.load(run.folder)
    assert trace.source.format == "run folder (xplane)"
    assert len(trace.steps) == process["recordings"][0]["steps"] == 6
    # On a busy machine the two sides of the recording may differ, and one of them stands for it.
    assert len(trace.run.unprofiled_step_ns) >= 10
    assert [file.rank for file in find_rank_files([run.folder]).files] == [0]


def test_two_ranks_record_the_same_steps(ran):
    run = ran("two ranks")
    assert run.code == 0
    first, second = run.processes
    assert (first["rank"], second["rank"], second["world_size"]) == (0, 1, 2)
    assert [name[:15] for name in run.traces] == ["rank00000of00002"[:15], "rank00001of00002"[:15]]
    windows = [p["recordings"][0]["steps"] for p in run.processes]
    assert windows[0] == windows[1] >= 2  # six, or fewer where a busy machine makes them long
    ends = [len(p["steps"]["before_ns"]) for p in run.processes]
    assert abs(ends[0] - ends[1]) <= 1
    assert pp.load(run.folder).rank == 0


def test_a_folder_that_cannot_be_written_stops_before_the_program_starts(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    (tmp_path / "s.py").write_text("print('started')")
    assert main(["run", "-o", str(tmp_path / "file/out"), str(tmp_path / "s.py")]) == 2
    out, err = capfd.readouterr()
    assert "started" not in out
    assert "Not a directory" in err


def test_a_folder_in_use_is_not_written_over(tmp_path, capfd):
    (tmp_path / "s.py").write_text("")
    (tmp_path / "precious.txt").write_text("")
    assert main(["run", "-o", str(tmp_path), str(tmp_path / "s.py")]) == 2
    assert "already holds something else" in capfd.readouterr().err


def test_a_program_without_torch_is_answered_by_looks_at_it(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text(scripts.WITHOUT_TORCH)
    shown = []
    monkeypatch.setattr("pinchpoint.api.with_code", lambda found, _: shown.append(1) or found)
    assert main(["run", "-o", "out", "s.py"]) == 0
    out, err = capfd.readouterr()
    assert out == "done\n"
    assert "nothing else recorded" in err
    assert shown  # as pinchpoint diagnose would: with the program's own lines
    report = pp.diagnose(tmp_path / "out")
    assert report.run.alone
    assert "rest" in [place.location.function for place in report.run.places if place.location]
    assert (report.run.processes, report.crashed) == (2, ())


def test_an_interpreter_without_torch_is_named_with_the_way_out(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("import torch")
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    assert main(["run", "-o", "out", "--python", sys.executable, "s.py"]) == 1
    assert "has no torch" in (said := capfd.readouterr().err)
    assert "pinchpoint run --python " in said


def test_a_script_runs_with_the_interpreter_that_is_asked_for(tmp_path, capfd):
    (tmp_path / "s.py").write_text("")
    assert command_line([str(tmp_path / "s.py"), "a"], "py")[0] == "py"
    assert main(["run", "--python", str(tmp_path / "none"), str(tmp_path / "s.py")]) == 2
    assert "no such program" in capfd.readouterr().err


def test_a_program_that_is_no_python_passes_through(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-o", "out", "sh", "-c", "echo hi; kill -9 $$"]) == 137
    out, err = capfd.readouterr()
    assert out == "hi\n"
    assert "hooks were never loaded" in err


def test_a_disk_that_fills_up_at_the_end_does_not_touch_the_exit_code(tmp_path, capfd, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pinchpoint.capture.launch.collect.finish", full)
    (tmp_path / "s.py").write_text("raise SystemExit(9)")
    assert main(["run", "-o", "out", "s.py"]) == 9
    assert "is incomplete" in capfd.readouterr().err


def test_a_disk_that_is_full_at_the_beginning_starts_nothing(tmp_path, capfd, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pinchpoint.capture.launch.collect.begin", full)
    (tmp_path / "s.py").write_text("print('started')")
    assert main(["run", "-o", "out", "s.py"]) == 2
    out, err = capfd.readouterr()
    assert "started" not in out
    assert "No space left on device" in err
