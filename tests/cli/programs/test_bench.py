import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from pinchpoint.bench.ab.bisect import Tried
from pinchpoint.bench.run import Arm
from pinchpoint.cli import main as cli
from pinchpoint.cli.programs.bench import bisect as bisect_command
from pinchpoint.cli.programs.bench import profiles
from pinchpoint.cli.programs.bench.options import arguments_of

RECORDING = Path(__file__).parents[3] / "src/pinchpoint/data/item_sync.json.gz"
PRINTED = ["--metric", r"x=x: ([\d.]+)", "--no-steps"]


def _prints(text):
    return f"{sys.executable} -c \"print('x: {text}')\""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


def _ab(*words, a="10", b="10"):
    return cli(["bench", "ab", "--pairs", "3", *PRINTED, *words, "--", _prints(a), _prints(b)])


def test_equal_commands_pass(capsys):
    assert _ab() == 0
    assert "pass: no change as large as the threshold" in capsys.readouterr().out


def test_a_worse_command_exits_with_1(capsys):
    assert _ab(b="10.5") == 1
    out = capsys.readouterr().out
    assert "regressed: x 5.0 % worse" in out


def test_a_better_command_passes(capsys):
    assert _ab(b="5") == 0
    assert "x improved 2.00 ×" in capsys.readouterr().out


def test_json_is_one_document_and_the_folder_is_complete(capsys, tmp_path):
    assert _ab("--json", "-o", "out", b="11") == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["schema"] == "bench.ab/1"
    assert document["verdict"] == "regressed"
    assert "wrote out/result.json" in err
    assert json.loads((tmp_path / "out/result.json").read_bytes()) == document
    session = json.loads((tmp_path / "out/session.json").read_bytes())
    assert (session["status"], session["verdict"]) == ("complete", "regressed")
    assert json.loads((tmp_path / "out/env.json").read_bytes())["schema"]


def test_inconclusive_exits_with_4_or_not(capsys):
    noisy = f"{sys.executable} -c \"import os; print('x:', 1 + os.getpid() % 97)\""
    words = ["bench", "ab", "--pairs", "3", *PRINTED]
    code = cli([*words, "--", noisy, noisy])
    assert code in (0, 4)  # three pairs of noise cannot prove a regression
    assert cli([*words, "--allow-inconclusive", "--", noisy, noisy]) == 0


def test_a_failing_command_exits_with_5(capsys):
    bad = f"{sys.executable} -c \"raise SystemExit('no GPU')\""
    assert cli(["bench", "ab", "--", bad, bad]) == 5
    assert "no GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["ab"], "two quoted commands", id="nothing to compare"),
        pytest.param(["ab", "--", "true"], "two quoted commands", id="one command"),
        pytest.param(["ab", "--pairs", "2", "--", "a", "b"], "3 pairs", id="too few pairs"),
        pytest.param(["ab", "--threshold", "3", "--", "true", "true"], "percent", id="threshold"),
        pytest.param(["ab", "--", "no-such-program", "true"], "no-such-program", id="missing"),
        pytest.param(
            ["ab", "--knob", "a=1,2", "--knob", "b=1,2", "--", "x"], "two knobs", id="knobs"
        ),
        pytest.param(["ab", "--metric", "x=(", "--", "true", "true"], "--metric", id="expression"),
        pytest.param(["run"], "which command", id="nothing to run"),
        pytest.param(["run", "--json", "--markdown", "--", "true"], "choose one", id="formats"),
        pytest.param(
            ["check", "--baseline", "none.json", "--", "true"], "none.json", id="baseline"
        ),
        pytest.param(["history", "none.json"], "none.json", id="no history"),
        pytest.param(["calibrate"], "which command", id="nothing to calibrate"),
    ],
)
def test_usage_errors(words, said, capsys):
    assert cli(["bench", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_output_folder_is_never_shared(capsys):
    assert _ab("-o", "out") == 0
    assert _ab("-o", "out") == 2
    assert "not empty" in capsys.readouterr().err


def test_knob(capsys):
    words = ["bench", "ab", "--pairs", "3", *PRINTED, "--knob", "n=10,20", "--"]
    assert cli([*words, sys.executable, "-c", "print('x: {n}')"]) == 1


def test_junit_and_github(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    words = ("--format", "github", "--junit", "junit.xml", "--sarif", "out.sarif")
    assert _ab(*words, b="12") == 1
    out = capsys.readouterr().out
    assert "\n::error title=" in out
    assert "**B is worse: x 10.0 → 12.0, 20.0 % worse" in (tmp_path / "summary.md").read_text()
    assert (
        tmp_path / "outputs"
    ).read_text() == "verdict=regressed\nregressions=1\nimprovements=0\n"
    suite = Xml.parse(tmp_path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    (run,) = json.loads((tmp_path / "out.sarif").read_text())["runs"]
    assert [r["ruleId"] for r in run["results"]] == ["x"]


def test_a_missing_baseline_is_said_before_anything_runs(capsys, tmp_path):
    command = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert cli(["bench", "check", "--baseline", "none.json", "--", *command]) == 2
    assert "--update" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_baseline_without_gates_lets_nothing_pass_in_silence(capsys, tmp_path):
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    command = ["--", sys.executable, "-c", "print('x: 10')"]
    assert cli([*gate, "--update", *command]) == 0
    ran = ["--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert cli([*gate, *ran]) == 2
    assert "--fail" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("used", ["results", "results-ab"])
def test_results_of_another_check_are_said_before_anything_runs(used, capsys, tmp_path):
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    command = ["--", sys.executable, "-c", "print('x: 10')"]
    assert cli([*gate, "--fail", "x:20%", "--update", *command]) == 0
    Path(used).mkdir()
    Path(used, "session.json").touch()
    ran = ["--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert cli([*gate, "-o", "results", *ran]) == 2
    assert f"{used}: the folder is not empty" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_run_and_check_and_history(capsys, tmp_path):
    run = ["bench", "run", "-p", "2", "--name", "t", *PRINTED]
    command = ["--", sys.executable, "-c", "print('x: 10')"]
    assert cli([*run, "-o", "first", *command]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 runs valid" in out
    assert "wall time of the" in out
    gate = ["bench", "check", "--baseline", "b.json", *PRINTED]
    assert cli([*gate, "--result", "first", "--fail", "x:5%", "--update"]) == 0
    assert cli([*gate, "--result", "first"]) == 0
    assert "pass: 1 gated measure is not worse" in capsys.readouterr().out
    assert cli(["bench", "history", "b.json"]) == 0
    assert "t: x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (900.0, "no later time will be held against these alone"),
        (0.0, "the first session of the baseline"),
    ],
)
def test_the_first_session_says_what_can_be_compared_with_it(capsys, monkeypatch, load, said):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    command = [sys.executable, "-c", "print('x: 10')"]
    assert cli([*gate, "--fail", "x:5%", "--update", "--", *command]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert "--base" in out
    assert "watched from the next check on: x (fail 5 %)" in out


def test_a_gate_on_what_no_run_gives_says_so_and_what_to_take(capsys):
    """``--warn device_peak_bytes`` of a program that uses no device watched nothing, in silence."""
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    asked = ["--fail", "x:20%", "--warn", "device_peak_bytes:2%", "--fail", "ttft_p99_ms:5%"]
    program = ["--", sys.executable, "-c", "print('x: 10')"]
    for more in (["--update"], ["--format", "github"]):
        assert cli([*gate, *asked, *more, *program]) in (0, 4)
        out = " ".join(capsys.readouterr().out.split())
        assert out.count("--warn device_peak_bytes watches nothing: no run here gives it") == 1
        assert "the program used no CUDA allocator that we saw" in out
        assert ("watched from the next check on: x (fail 20 %)" in out) == ("--update" in more)
        assert "--fail ttft_p99_ms watches nothing: no run here gives it (not a serving run)" in out
    assert "::warning title=check of t%3A ttft_p99_ms::ttft_p99_ms watches nothing" in out


def test_check_accepts_a_new_level(capsys, tmp_path):
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    before, after = ([sys.executable, "-c", f"print('x: {x}')"] for x in (10, 15))
    assert cli([*gate, "--fail", "x:5%", "--update", "--", *before]) == 0
    assert cli([*gate, "--", *after]) == 1
    assert cli([*gate, "--accept", "--", *after]) == 1
    assert cli([*gate, "--", *after]) == 0


def test_check_refuses_another_machine(capsys, tmp_path):
    run = ["bench", "run", "-p", "1", "--name", "t", "--no-steps", "-o", "first"]
    assert cli([*run, "--", sys.executable, "-c", "pass"]) == 0
    gate = ["bench", "check", "--baseline", "b.json", "--result", "first"]
    assert cli([*gate, "--fail", "duration_s:50%", "--update"]) == 0
    text = (tmp_path / "b.json").read_text()
    (tmp_path / "b.json").write_text(text.replace('"cpu_model": "', '"cpu_model": "Other '))
    assert cli(gate) == 3
    assert "CPU model" in capsys.readouterr().err
    assert cli([*gate, "--force"]) == 0


def test_another_machine_is_refused_before_anything_is_measured(capsys, tmp_path):
    """A check of minutes ended with the CPUs that it may use, which were known before it."""
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", "--no-steps"]
    program = ["--", sys.executable, "-c", "open('ran', 'a').close()"]
    assert cli([*gate, "--fail", "duration_s:50%", "--update", *program]) == 0
    text = (tmp_path / "b.json").read_text()
    (tmp_path / "b.json").write_text(text.replace('"cpu_model": "', '"cpu_model": "Other '))
    (tmp_path / "ran").unlink()
    assert cli([*gate, *program]) == 3
    said = capsys.readouterr().err
    assert "CPU model" in said
    assert "nothing was measured" in said
    assert not (tmp_path / "ran").exists()
    assert cli([*gate, "--force", "--allow-inconclusive", *program]) in (0, 1)
    assert (tmp_path / "ran").exists()


def test_calibrate(capsys):
    words = ["bench", "calibrate", "--pairs", "3", *PRINTED, "--"]
    assert cli([*words, sys.executable, "-c", "print('x: 5')"]) == 0
    out = capsys.readouterr().out
    assert "sd of a pair" in out
    assert "0.00 %" in out


OP = ["bench", "op", "--seconds", "0.05", "--precision", "50%"]


def test_op(capsys):
    assert cli([*OP, "x + x", "-s", "import numpy as np; x = np.ones(500)"]) in (0, 5)
    out = capsys.readouterr().out
    assert "x + x on" in out
    assert "batched" in out


def test_op_json(capsys):
    code = cli([*OP, "--json", "--no-cold", "--claim", "1h", "1 + 1"])
    assert code == 2
    code = cli([*OP, "--json", "--no-cold", "--claim", "900s", "sum(range(9))"])
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 5)
    assert document["schema"] == "bench.timing/1"
    assert set(document["modes"]) == {"batched", "hot"}
    assert document["remarks"][-1]["id"] == "unexplained"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["1 +"], "SyntaxError", id="syntax"),
        pytest.param(["x"], "NameError", id="unknown name"),
        pytest.param(["1", "-s", "import no_such_module_"], "no_such_module_", id="set-up"),
    ],
)
def test_op_that_cannot_run(words, said, capsys):
    assert cli([*OP, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def recorder(monkeypatch):
    """Stands in for ``pinchpoint run``: leaves the embedded recording where a profile would be."""

    def record(jobs, limit_s):
        for job in jobs:
            (job.folder / "traces").mkdir(parents=True)
            shutil.copy(RECORDING, job.folder / "traces/rank0.json.gz")
            record.commands.append(job.command)
            record.environments.append(dict(job.arm.env))

    record.commands, record.environments = [], []
    monkeypatch.setattr(profiles, "_record", record)
    monkeypatch.setattr(profiles.shutil, "which", lambda name: None)
    return record


@pytest.fixture
def alone(monkeypatch):
    """As if nobody else used the CPUs."""
    monkeypatch.setattr("pinchpoint.bench.run.waits.disturbed", lambda so_far: False)


def test_a_failure_is_explained_by_profiles_of_both(recorder, capsys, tmp_path, alone):
    assert _ab("--profile-on-fail", "-o", "out", b="12") == 1
    out = capsys.readouterr().out
    assert "regressed" in out
    assert "where the step goes" in out
    assert len(recorder.commands) == 2
    assert recorder.commands[0][-3:] == (sys.executable, "-c", "print('x: 10')")
    change = json.loads((tmp_path / "out/change.json").read_bytes())
    assert change["schema"] == "pinchpoint.compare/1"
    assert (tmp_path / "out/change.md").exists()


@pytest.mark.parametrize(("load", "policy"), [(1e3, "passive"), (0.0, None)])
def test_profiles_of_a_failure_are_taken_as_its_pairs_were(
    recorder, capsys, monkeypatch, load, policy
):
    """Two threads that spin on full CPUs take most of a step: nothing is seen of the change."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert _ab("--profile-on-fail", b="12") == 1
    assert [e.get("OMP_WAIT_POLICY") for e in recorder.environments] == [policy, policy]


def test_a_pass_takes_no_profile(recorder):
    assert _ab("--profile-on-fail") == 0
    assert recorder.commands == []


def test_a_profile_that_fails_does_not_fail_the_comparison(monkeypatch, capsys):
    monkeypatch.setattr(profiles, "_record", lambda jobs, limit_s: None)
    assert _ab("--profile-on-fail", b="12") == 1
    assert "no profile of A" in capsys.readouterr().err


RECORDS = """
import pathlib, signal, sys
for kind in sys.argv[2:]:
    folder = pathlib.Path(sys.argv[1], kind)
    folder.mkdir(parents=True)
    (folder / "0.json").write_text("{}")
try:
    signal.pause()
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1], "run.json").write_text("{}")
"""


@pytest.mark.parametrize(("kinds", "limit_s"), [(("traces", "names"), 600), (("traces",), 1)])
def test_a_program_that_goes_on_is_ended_once_it_is_recorded(tmp_path, monkeypatch, kinds, limit_s):
    """With both windows, else at the limit; as Ctrl-C would, so that its folder is put together."""
    monkeypatch.setattr(profiles, "_SETTLES_S", 0.0)
    folder = tmp_path / "profile"
    command = (sys.executable, "-c", RECORDS, str(folder), *kinds)
    job = profiles.Job(command, Arm("A", ("python",)), folder)
    if limit_s == 1:  # not before the program has begun, however busy the machine is
        began = folder / "traces/0.json"
        monkeypatch.setattr(profiles, "monotonic", lambda: 10.0 * began.exists())
    profiles._record([job], limit_s)
    assert profiles._recorded(job) == folder


@pytest.fixture
def commits(tmp_path):
    """A repository with a good commit and eight after it."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(("git", *who, *words), check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    made = []
    for number in range(9):
        (tmp_path / "job.py").write_text(f"print({number})")
        git("add", "job.py")
        git("commit", "-q", "-m", str(number))
        made.append(git("rev-parse", "HEAD"))
    return made


def test_a_search_that_is_interrupted_says_what_it_knows_and_how_to_go_on(
    commits, capsys, monkeypatch
):
    asked = []

    def judged(session, what, deciding, measuring, commit):
        asked.append(commit)
        if len(asked) == 3:
            raise KeyboardInterrupt
        verdict = "regressed" if commits.index(commit) >= 7 else "pass"
        return Tried(commit=commit, verdict=verdict, why="")

    monkeypatch.setattr(bisect_command, "_judged", judged)
    words = ["bench", "bisect", "--good", commits[0], "--budget", "2m"]
    program = ["--", sys.executable, "job.py"]
    assert cli([*words, "-o", "first", *program]) == 130
    said = capsys.readouterr().err
    assert "8 commits after" in said
    assert "4 comparisons at most, each 2m of pairs" in said
    assert "about 8 min in all" in said
    assert f"good: {commits[0]}, {commits[4][:10]}; worse: {commits[8][:10]}" in said
    assert f"4 commits left ({commits[5][:10]} to {commits[8][:10]})" in said
    assert "to go on: the same command with --resume first" in said
    assert cli([*words, "--threshold", "9%", "--resume", "first", *program]) == 2
    assert "another threshold" in capsys.readouterr().err
    assert cli([*words, "--resume", "first", *program]) == 0
    said = capsys.readouterr()
    assert f"git show {commits[7][:10]}" in said.out
    assert "2 comparisons at most" in said.err
    assert [commits.index(c) for c in asked] == [8, 4, 6, 6, 7]


def test_run_with_a_profile(recorder, capsys):
    words = ["bench", "run", "-p", "1", "--no-steps", "--profile", "-o", "out", "--"]
    assert cli([*words, sys.executable, "-c", "pass"]) == 0
    assert "pinchpoint diagnose out/profile/traces/rank0.json.gz" in capsys.readouterr().err


def test_a_failed_check_is_explained_too(recorder, capsys, tmp_path, alone):
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", "-p", "1", *PRINTED]
    before, after = ([sys.executable, "-c", f"print('x: {x}')"] for x in (10, 15))
    assert cli([*gate, "--fail", "x:20%", "--update", "--", *before]) == 0
    assert cli([*gate, "--profile-on-fail", "--", *after]) == 1
    assert "profile: pinchpoint diagnose" in capsys.readouterr().err
    assert cli([*gate, "--profile-on-fail", "--base", _prints("10"), "--", *after]) == 1
    out = capsys.readouterr().out
    assert "50.0 % worse (95 %: 50.0 to 50.0 % worse) against the base" in out
    assert "where the step goes" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_measurement_says_so_and_leaves_no_program_behind(number, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import os, signal; open({str(pipe)!r}, 'w').write(str(os.getpid())); signal.pause()"
    program = f"{sys.executable} -c {shlex.quote(code)}"
    words = [sys.executable, "-m", "pinchpoint", "bench", "ab", "-o", "out", "--", program, program]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(words, env=environ, stderr=subprocess.DEVNULL) as process:
        waiting = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        started = select.select([waiting], [], [], 120)[0]  # never a test that hangs
        process.send_signal(number if started else signal.SIGKILL)
        assert started
        child = int(os.read(waiting, 99))
        os.close(waiting)
        assert process.wait() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert json.loads((tmp_path / "out/session.json").read_bytes())["status"] == "cut"
    assert cli(["compare", "out", "out"]) == 2
    assert "not complete: cut" in capsys.readouterr().err


def test_seeds_differ_by_run(tmp_path):
    code = "import os; print('x:', float(os.environ['PINCHPOINT_SEED']))"
    words = ["bench", "run", "-p", "2", "--seed", "7", *PRINTED, "-o", "out", "--"]
    assert cli([*words, sys.executable, "-c", code]) == 0
    runs = json.loads((tmp_path / "out/result.json").read_bytes())["runs"]
    assert [run["custom"]["x"] for run in runs] == [7.0, 8.0]
    assert [run["seed"] for run in runs] == [7, 8]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python new/train.py --batch 4", "--batch 4"),
        ("torchrun --nproc 2 train.py a", "a"),
        ("python -m package.train a", "a"),
        ("./a.out 3", "3"),
    ],
)
def test_other_arguments_are_another_benchmark(command, arguments):
    assert arguments_of(tuple(command.split())) == tuple(arguments.split())


@pytest.mark.parametrize(
    "option",
    ["--timeout=-1", "--timeout=nan", "--samples-per-step=-2", "--warmup-steps=-3", "--seed=-5"],
)
def test_options_without_a_meaning_are_refused_before_anything_runs(option, capsys, tmp_path):
    assert cli(["bench", "run", option, "--", sys.executable, "-c", "open('ran', 'w')"]) == 2
    assert f"error: {option.partition('=')[0]} " in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_an_unknown_gate_is_refused_before_anything_runs(capsys):
    assert _ab("--gate", "foo") == 2
    err = capsys.readouterr().err
    assert "no measure 'foo'" in err
    assert "warm-up" not in err


def test_a_comparison_is_not_compared_again(capsys):
    assert _ab("-o", "out") == 0
    assert cli(["compare", "out", "out"]) == 2
    assert "out: made by ab, already a comparison" in capsys.readouterr().err


def test_the_variable_of_a_knob_is_shown_with_its_command(capsys):
    words = ["bench", "ab", "--pairs", "3", *PRINTED, "--knob", "env:PACE=1,2"]
    program = "import os; print('x:', os.environ['PACE'])"
    assert cli([*words, "--", sys.executable, "-c", program]) == 1
    out = capsys.readouterr().out
    assert "A: PACE=1 " in out
    assert "B: PACE=2 " in out


def test_few_sessions_are_decided_in_pairs_with_the_commit_of_the_baseline(tmp_path, capsys):
    script, here = tmp_path / "job.py", ("-c", "user.name=a", "-c", "user.email=a@b")

    def git(*words):
        subprocess.run(["git", *here, *words], check=True, capture_output=True)

    git("init", "-q")
    script.write_text("print('x: 10')")
    git("add", "job.py")
    git("commit", "-m", "one")
    program = ["--", sys.executable, "job.py"]
    gate = ["bench", "check", "--baseline", "b.json", *PRINTED, "-p", "1"]
    assert cli([*gate, "--fail", "x:20%", "--update", *program]) == 0
    script.write_text("print('x: 15')")
    assert cli([*gate, "--no-profile-on-fail", *program]) == 1
    said = capsys.readouterr()
    assert "few past sessions: measuring side by side with the base" in said.err
    assert "50.0 % worse (95 %: 50.0 to 50.0 % worse) against the base" in said.out
    assert "5 pairs of runs with commit" in said.out
    script.write_text("print('x: 5')")
    assert cli([*gate, "--update", *program]) == 0
    assert len(json.loads(Path("b.json").read_text())["entries"]) == 1
    git("worktree", "prune")
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1  # the checkout of the base is gone


@pytest.mark.parametrize(
    ("load", "in_git", "runs"), [(1e3, True, 1), (1e3, False, 3), (0.0, True, 3)]
)
def test_a_first_session_that_pairs_will_be_beside_takes_one_run(
    tmp_path, monkeypatch, capsys, load, in_git, runs
):
    if in_git:
        subprocess.run(["git", "init", "-q"], check=True)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    gate = ["bench", "check", "--baseline", "b.json", "--name", "t", *PRINTED, "-o", "out"]
    program = [sys.executable, "-c", "print('x: 10')"]
    assert cli([*gate, "--fail", "x:20%", "--update", "--", *program]) == 0
    assert len(json.loads((tmp_path / "out/result.json").read_bytes())["runs"]) == runs


def test_another_program_than_that_of_the_baseline_is_refused_before_anything_runs(
    tmp_path, capsys
):
    (tmp_path / "new").mkdir()
    for name in ("job.py", "new/job.py"):
        (tmp_path / name).write_text("print('x: 10')")
    gate = ["bench", "check", "--baseline", "b.json", *PRINTED, "-p", "1"]
    here, other = (["--", sys.executable, name] for name in ("./job.py", "new/job.py"))
    assert cli([*gate, "--fail", "x:20%", "--update", *here]) == 0
    assert cli([*gate, "-o", "out", *other]) == 2
    said = capsys.readouterr().err
    assert "its sessions are of job.py, and this is new/job.py, another program" in said
    assert 'pinchpoint bench ab -- "python job.py" "python new/job.py"' in said
    assert not (tmp_path / "out").exists()
    assert cli([*gate, "--", sys.executable, str(tmp_path / "job.py")]) == 0  # by its whole path
    assert cli([*gate, "--accept", *other]) == 0
    assert cli([*gate, *other]) == 0


def test_a_base_that_cannot_be_measured_leaves_the_history(tmp_path, capsys):
    """Its checkout lacks what git does not know."""
    script, here = tmp_path / "job.py", ("-c", "user.name=a", "-c", "user.email=a@b")
    Path("data").write_text("10")
    script.write_text("print('x:', open('data').read())")
    for words in (("init", "-q"), ("add", "job.py"), ("commit", "-m", "one")):
        subprocess.run(["git", *here, *words], check=True, capture_output=True)
    program = ["--", sys.executable, "job.py"]
    gate = ["bench", "check", "--baseline", "b.json", *PRINTED, "-p", "1"]
    assert cli([*gate, "--fail", "x:20%", "--update", *program]) == 0
    script.write_text("print('x:', open('data').read())  # the same")
    assert cli([*gate, *program]) == 0
    assert "the base cannot be measured, and the history decides" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"), [("5x", "--budget '5x': no time"), ("0m", "no time"), ("m", "no time")]
)
def test_a_budget_is_a_time(text, said, capsys):
    assert _ab("--budget", text) == 2
    assert said in capsys.readouterr().err


def test_a_command_that_the_baseline_does_not_know_is_no_pass_with_update(tmp_path, capsys):
    for name in ("job.py", "other.py"):
        (tmp_path / name).write_text("print('x: 10')")
    gate = ["bench", "check", "--baseline", "b.json", *PRINTED, "-p", "1", "--fail", "x:20%"]
    job, other = [sys.executable, "job.py"], [sys.executable, "other.py"]
    assert cli([*gate, "--update", "--", *job]) == 0
    for command in (other, [*job, "--steps", "2"]):
        assert cli([*gate, "--update", "-o", "out", "--", *command]) == 2
        said = capsys.readouterr().err
        assert "no session of this command" in said
        assert "--update --name NAME" in said
        assert not (tmp_path / "out").exists()
    assert cli([*gate, "--update", "--name", "second", "--", *other]) == 0
    assert "no session of this benchmark so far; nothing is compared" in capsys.readouterr().err
    assert cli([*gate, "--update", "--name", "second", "--", *other, "1"]) == 2
    assert cli([*gate, "--accept", "--", *job, "--steps", "2"]) == 0
    assert len(json.loads(Path("b.json").read_text())["entries"]) == 3
