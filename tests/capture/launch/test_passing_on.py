"""Signals of ``pinchpoint run``: each reaches the program, once, and both end together."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.capture.launch.passing_on import PASSED_ON
from pinchpoint.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals with their senders")

WAITS = """
import os, signal, sys, time
{setup}
print("ready", os.getpid(), flush=True)
while True:
    time.sleep(0.05)  # not pause: a signal just before it would wait for the next one
"""
SAYS = """
def say(number, frame):
    print("got", number, flush=True)
for number in {numbers}:
    signal.signal(number, say)
"""
EXITS = "signal.signal({number}, lambda *_: sys.exit(42))"


# The signals as a terminal has them: who starts the tests in the background ignores some.
ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "pinchpoint", *sys.argv[1:]])
"""
COUNTS = """
import signal, sys, time
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
print("ready", flush=True)
while not came:
    time.sleep(0.05)
time.sleep(0.3)
print("came", len(came), flush=True)
sys.exit(7)
"""


def ctrl_c(words, when):
    """Exit code and output of a command on a terminal, where Ctrl-C is pressed after ``when``."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL, *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, pressed = b"", False
    with contextlib.suppress(OSError):  # EIO: everybody has left the terminal
        while read := os.read(ours, 1 << 16):
            said += read
            if when in said and not pressed:
                os.write(ours, b"\x03")
                pressed = True
    os.close(ours)
    return process.wait(), said.decode("utf-8", "replace")


def test_ctrl_c_on_a_terminal_is_the_programs(tmp_path):
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    words = ["run", "--hooks-only", "-o", str(tmp_path / "run"), "--", sys.executable, str(script)]
    code, said = ctrl_c(words, b"ready")
    assert (code, "came 1" in said) == (7, True)


@pytest.mark.parametrize("command", ["run", "bench run", "serve"])
def test_ctrl_c_on_a_terminal_ends_both(command, tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(WAITS.format(setup=""))
    program = ["--", sys.executable, str(script)]
    words, when, expected = {
        "run": (["--hooks-only", "-o", str(tmp_path / "run"), *program], b"ready", 130),
        "bench run": (["-o", str(tmp_path / "run"), "--no-steps", *program], b"run 1", 130),
        "serve": ([str(tmp_path), "--port", "0"], b"serving", 0),
    }[command]
    code, said = ctrl_c([*command.split(), *words], when)
    assert code == expected
    assert not {"Error", "Warning"} & set(said.replace(":", " ").split())
    if command == "bench run":
        assert "holds what was measured until then" in said


def test_an_interruption_before_the_program_leaves_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pinchpoint.capture.launch.launcher.start", interrupted)
    assert main(["run", "-o", str(tmp_path / "run"), "--", sys.executable, "-V"]) == 130
    assert capsys.readouterr().err == "interrupted; nothing was written\n"
    assert not (tmp_path / "run").exists()


@pytest.fixture
def started(tmp_path):
    """Starts ``pinchpoint run`` around a program that waits; gives both."""
    running, programs = [], []

    def start(setup, **how):
        script = tmp_path / "waits.py"
        script.write_text(WAITS.format(setup=setup))
        words = [sys.executable, "-m", "pinchpoint", "run", "-o", str(tmp_path / "run"), "--"]
        wrapper = subprocess.Popen(
            [*words, sys.executable, str(script)], stdout=subprocess.PIPE, text=True, **how
        )
        running.append(wrapper)
        ready, pid = wrapper.stdout.readline().split()
        assert ready == "ready"
        programs.append(int(pid))
        return wrapper, int(pid)

    yield start
    for wrapper in running:
        wrapper.kill()
        wrapper.wait()
        wrapper.stdout.close()
    for program in programs:  # one that handles every signal outlives its wrapper
        with contextlib.suppress(ProcessLookupError):
            os.kill(program, signal.SIGKILL)


def test_every_signal_that_a_program_may_handle_is_passed_on(started):
    numbers = sorted(int(n) for n in PASSED_ON - {signal.SIGTSTP, signal.SIGCONT})
    assert {signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH} <= set(numbers)
    assert {signal.SIGRTMIN, signal.SIGRTMAX} <= set(numbers)
    wrapper, _ = started(SAYS.format(numbers=numbers))
    for number in numbers:
        wrapper.send_signal(number)
        assert wrapper.stdout.readline() == f"got {number}\n"


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGQUIT, signal.SIGINT])
def test_the_exit_code_is_that_of_the_program(started, number):
    wrapper, _ = started(EXITS.format(number=int(number)))
    wrapper.send_signal(number)
    assert wrapper.wait() == 42


def test_what_ends_the_program_ends_both(started):
    wrapper, program = started("")
    wrapper.send_signal(signal.SIGUSR2)
    assert wrapper.wait() == 128 + signal.SIGUSR2
    assert gone(program)


def test_interrupting_the_wrapper_alone_interrupts_the_program(started):
    wrapper, program = started("")
    wrapper.send_signal(signal.SIGINT)
    assert wrapper.wait() == 128 + signal.SIGINT
    assert gone(program)


def test_what_the_program_sends_is_not_sent_back(started):
    wrapper, _ = started(
        SAYS.format(numbers=[int(signal.SIGUSR1), int(signal.SIGUSR2)])
        + "os.kill(os.getppid(), signal.SIGUSR1)"
    )
    wrapper.send_signal(signal.SIGUSR2)
    assert wrapper.stdout.readline() == f"got {int(signal.SIGUSR2)}\n"


def test_a_killed_wrapper_leaves_nothing_behind(started):
    wrapper, program = started("")
    watched = os.pidfd_open(program)
    wrapper.kill()
    wrapper.wait()
    assert select.select([watched], [], [], 30)[0]  # readable once it has ended
    os.close(watched)


def test_a_signal_that_was_ignored_stays_ignored(started):
    wrapper, _ = started(
        "assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait() == 128 + signal.SIGTERM


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("words", [["run", "-o", "run", "--"], ["bench", "run", "-o", "b", "--"]])
def test_codes_are_kept_where_whoever_started_us_ignores_the_end_of_children(tmp_path, words):
    (tmp_path / "p.py").write_text(
        "import signal, sys\nprint(signal.getsignal(signal.SIGCHLD).name)\nsys.exit(7)\n"
    )
    program = [sys.executable, "p.py"] if words[0] == "bench" else ["p.py"]
    run = subprocess.run(
        [sys.executable, "-m", "pinchpoint", *words, *program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    if words[0] == "bench":
        assert "the command ended with exit code 7" in run.stderr
    else:
        assert (run.returncode, run.stdout) == (7, "SIG_IGN\n")


SLOWLY = """
import sys, time
from pinchpoint.capture.launch import collect
from pinchpoint.cli import main
finish = collect.finish
def slowly(*words):
    print("finishing", flush=True)
    time.sleep(1)
    return finish(*words)
collect.finish = slowly
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_folder_is_made_whole_before_a_signal_ends_us(tmp_path, number):
    command = [sys.executable, "-c", SLOWLY, "run", "-o", str(tmp_path / "run"), "--", "true"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
    ) as process:
        assert process.stdout.readline() == b"finishing\n"
        process.send_signal(number)
    assert process.returncode == -number
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "ended"
