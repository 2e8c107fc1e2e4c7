"""The small parts: settings, command lines, trace files, identity, problems."""

import gzip
import json
import shlex
import sys
from types import SimpleNamespace

import msgspec
import pytest

from pinchpoint.capture.launch.collect import begin
from pinchpoint.capture.launch.folder import count_to_the_end
from pinchpoint.capture.launch.launcher import command_line, environment_of, label
from pinchpoint.capture.launch.missing import problems_of
from pinchpoint.capture.process.program import Program
from pinchpoint.capture.process.ranks import identity
from pinchpoint.capture.settings import Settings, chosen, from_environment
from pinchpoint.capture.windows.recording import BrokenTrace, pack
from pinchpoint.capture.windows.torch import TorchWindow
from pinchpoint.errors import UsageError
from pinchpoint.run_folder.documents import ProcessDevice, ProcessDocument, RecordingNote

WITHOUT_KERNELS = ProcessDocument(
    recordings=(RecordingNote(file="t.json.gz", kernels=0),), device=ProcessDevice(number=0)
)


def test_settings_travel_through_the_environment():
    settings = Settings("/run", steps=7, stacks=True, ranks="0,3", after_s=1.5)
    assert from_environment(settings.environment()) == settings


def test_no_variable_no_capture_and_rubbish_means_defaults():
    assert from_environment({}) is None
    rubbish = {"PINCHPOINT_RUN": "/run", "PINCHPOINT_CAPTURE": "{not json"}
    assert from_environment(rubbish) == Settings("/run")


@pytest.mark.parametrize(
    ("ranks", "world", "recorded"),
    [
        pytest.param("auto", 2, [0, 1], id="few"),
        pytest.param("auto", 16, [0, 8, 15], id="first, middle, last"),
        pytest.param("all", 3, [0, 1, 2], id="all"),
        pytest.param("0, 2", 4, [0, 2], id="named"),
    ],
)
def test_which_ranks_record(ranks, world, recorded):
    assert [r for r in range(world) if chosen(ranks, r, world)] == recorded


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert command_line(["train.py", "-o", "x"]) == [sys.executable, "train.py", "-o", "x"]
    assert command_line(["-m", "pkg", "a"]) == [sys.executable, "-m", "pkg", "a"]
    assert command_line(["sh", "-c", "true"]) == ["sh", "-c", "true"]
    assert label(["torchrun", "--nproc-per-node=2", "exp/train.py"]) == "train"
    assert label(["-m", "pkg.train"]) == "pkg.train"


def test_an_option_that_is_not_there_is_no_program():
    with pytest.raises(UsageError, match="--stepz: no such option"):
        command_line(["--stepz", "3", "train.py"])


@pytest.mark.parametrize("words", [[], ["-m"], ["missing.py"], ["no-such-program-here"]])
def test_commands_that_cannot_be_started(words):
    with pytest.raises(UsageError):
        command_line(words)


def test_the_kept_trace_is_whole_compressed_and_counted(tmp_path):
    events = ['{"cat": "kernel"}'] * 70_000 + ['{"cat": "cpu_op"}'] * 50_000
    (tmp_path / "raw").write_text('{"traceEvents": [' + ",".join(events) + "]}\n")
    packed = pack(tmp_path / "raw", tmp_path / "t.json.gz")
    assert (packed.kernels, packed.operators) == (70_000, 50_000)
    with gzip.open(tmp_path / "t.json.gz", "rt") as file:
        assert file.read().endswith("]}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["t.json.gz"]


def test_a_cut_off_trace_is_not_kept(tmp_path):
    (tmp_path / "raw").write_text('{"traceEvents": [{"cat": "ker')
    with pytest.raises(BrokenTrace, match="disk full"):
        pack(tmp_path / "raw", tmp_path / "t.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_identity_comes_from_the_launchers_variables():
    me = identity({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"})
    assert (me.rank, me.world_size, me.local_rank, me.launched) == (3, 8, 1, True)
    assert me.stem.startswith("rank00003of00008.")
    alone = identity({})
    assert (alone.rank, alone.world_size, alone.launched) == (0, 1, False)


def ended(busy):
    devices = [] if busy is None else [{"device": "0", "any_kernel_ratio": {"max": busy}}]
    sampled = SimpleNamespace(problem=None, summary=SimpleNamespace(devices=lambda: devices))
    return SimpleNamespace(exit_code=0, sampled=sampled)


@pytest.mark.parametrize(("busy", "loud"), [(0.9, True), (0.0, False), (None, True)])
def test_a_recording_without_kernels_of_a_working_device_is_called_out(tmp_path, busy, loud):
    found = problems_of(tmp_path, [WITHOUT_KERNELS], Settings(""), ended(busy))
    assert any("another tool has taken" in problem for problem in found) == loud


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings("", names=True), "for 1 s, imports and compilation apart"),
        (Settings(""), "for 5 s, imports and compilation apart"),
        (Settings("", after_s=0.0), "no work after that lasted; mark its steps"),
    ],
)
def test_a_program_without_steps_is_told_the_whole_command_that_records_it(
    tmp_path, settings, says
):
    words = ["python", "my fit.py", *(f"--option-{number}" for number in range(40))]
    begin(tmp_path, words, settings)
    marks = tmp_path / "processes"
    marks.mkdir()
    (marks / "hooks-loaded").touch()
    (marks / "framework-imported").touch()
    whole = ended(None)
    whole.started_unix_ns, whole.ended_unix_ns = 0, 12_340_000_000
    (problem,) = problems_of(tmp_path, [], settings, whole)
    assert "ended 12.3 s after it was started, but no step was seen" in problem
    assert says in problem
    command = f"pinchpoint run --after-seconds 0 {shlex.join(words)}"
    assert problem.endswith(command) == (settings.after_s is None)


@pytest.mark.parametrize(
    ("code", "files", "says"),
    [
        (1, (), "failed with exit code 1 (what it printed is above); it came before any recording"),
        (2, ("t.json.gz",), "exit code 2 (what it printed is above); what was recorded is from"),
        (0, ("t.json.gz",), None),
        (137, ("t.json.gz",), None),
    ],
)
def test_a_program_that_failed_is_said_to_have_failed_first(tmp_path, code, files, says):
    recordings = tuple(RecordingNote(file=name, kernels=9) for name in files)
    process = ProcessDocument(recordings=recordings, complete=True)
    failed = SimpleNamespace(exit_code=code, sampled=SimpleNamespace(problem=None))
    problems = problems_of(tmp_path, [process], Settings("", only_when_slower=True), failed)
    assert (says in problems[0]) if says else problems == []


def test_a_teardown_that_loses_kernels_is_named_and_left_to_who_set_it(tmp_path, monkeypatch):
    assert environment_of(Settings("/run"))["TEARDOWN_CUPTI"] == "0"
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    assert environment_of(Settings("/run"))["TEARDOWN_CUPTI"] == "1"
    (problem,) = problems_of(tmp_path, [WITHOUT_KERNELS], Settings(""), ended(0.9))
    assert "unset it" in problem


@pytest.mark.parametrize(("cuda", "primed"), [("12.4", 1), ("12.6", 0), ("13.0", 0), (None, 1)])
def test_the_profiler_is_primed_before_a_graph_only_where_it_must_be(cuda, primed, monkeypatch):
    calls = []
    monkeypatch.setattr(TorchWindow, "prime", lambda: calls.append("prime"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda=cuda)))

    class Graph:
        def __enter__(self):
            return "captures"

        def __exit__(self, *raised):
            return False

    program = Program(Settings("/run"))
    program._on_cuda_graphs(SimpleNamespace(graph=Graph))
    assert [Graph().__enter__(), Graph().__enter__()] == ["captures", "captures"]
    assert len(calls) == primed


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (143, "by signal 15 (SIGTERM)"),
        (200, "before Python could end"),
        (0, "before Python could end"),
    ],
)
def test_a_program_without_an_orderly_end_has_steps_that_are_not_counted(tmp_path, code, how):
    facts = {"complete": False, "steps": {"count": 40}, "recordings": [{"file": "t", "kernels": 1}]}
    cut = msgspec.convert(facts, ProcessDocument)
    whole = ended(None)
    whole.exit_code = code
    problem = problems_of(tmp_path, [cut], Settings(""), whole)[-1]
    assert problem.startswith(f"the program was ended {how}: 40 steps were counted")
    complete = msgspec.structs.replace(cut, complete=True)
    assert not any("ended" in one for one in problems_of(tmp_path, [complete], Settings(""), whole))


def test_a_full_disk_is_no_sudden_end(tmp_path):
    facts = {"complete": False, "steps": {"count": 40}, "problems": ["t: No space left on device"]}
    cut = msgspec.convert(facts, ProcessDocument)
    assert problems_of(tmp_path, [cut], Settings(""), ended(None)) == ["t: No space left on device"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (138, "signal 10 (SIGUSR1) ended the program 12.3 s after it was started"),
        (137, "signal 9 (SIGKILL) ended the program 12.3 s after it was started; the kernel sends"),
        (200, "the program failed with exit code 200"),
    ],
)
def test_a_program_that_a_signal_ended_before_its_first_step_is_told_that(tmp_path, code, says):
    for mark in ("hooks-loaded", "framework-imported"):
        (tmp_path / "processes").mkdir(exist_ok=True)
        (tmp_path / "processes" / mark).touch()
    whole = ended(None)
    whole.exit_code, whole.started_unix_ns, whole.ended_unix_ns = code, 0, 12_340_000_000
    (problem,) = problems_of(tmp_path, [], Settings(""), whole)
    assert says in problem


def test_copies_that_could_not_be_recorded_are_told_with_the_way_out(tmp_path):
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "copy-not-recorded").touch()
    (problem,) = problems_of(tmp_path, [], Settings(""), ended(None))
    assert 'multiprocessing.set_start_method("spawn")' in problem
    kept = ProcessDocument(recordings=(RecordingNote(file="t.json.gz", kernels=9),), complete=True)
    assert problems_of(tmp_path, [kept], Settings(""), ended(None)) == []


@pytest.mark.parametrize(("counted", "steps"), [("90", 90), ("30", 40), ("", 40)])
def test_a_killed_process_has_the_steps_that_it_counted_last(tmp_path, counted, steps):
    (tmp_path / "rank0.json").write_text('{"steps": {"count": 40}}')
    (tmp_path / "rank0.steps").write_text(counted)
    count_to_the_end(tmp_path)
    assert json.loads((tmp_path / "rank0.json").read_text()) == {"steps": {"count": steps}}
