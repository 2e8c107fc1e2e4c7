import os
import subprocess
import sys

import pytest

from pinchpoint.capture.launch import attach
from pinchpoint.cli import main
from pinchpoint.errors import MeasurementInvalid, UsageError

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def process():
    """Starts a Python that waits, with the given environment; ends it afterwards."""
    started = []

    def start(code=WAITS, **environ):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        made = subprocess.Popen([sys.executable, "-c", code], env=os.environ | environ, **pipes)
        started.append(made)
        assert made.stdout.readline() == b"ready\n"  # its environment is readable from now on
        return made

    yield start
    for made in started:
        made.kill()
        made.communicate()


def test_a_process_that_was_not_started_for_it_is_left_in_peace(process):
    plain = process()
    with pytest.raises(UsageError, match="not started so that it can be recorded") as caught:
        attach.record(plain.pid, 1.0, lambda text: None)
    assert "pinchpoint run" in caught.value.hint
    assert plain.poll() is None


def test_a_daemon_without_the_signal_trigger_is_not_signalled(process, tmp_path):
    (tmp_path / "kineto.conf").write_text("ACTIVITIES_LOG_FILE=/tmp/x.json\n")
    daemon = process(KINETO_USE_DAEMON="1", KINETO_CONFIG=str(tmp_path / "kineto.conf"))
    with pytest.raises(UsageError, match="the signal would end it"):
        attach.way_to(daemon.pid)
    assert daemon.poll() is None


def test_the_launcher_of_a_run_stands_for_it(process, tmp_path):
    child = f"subprocess.Popen([sys.executable, '-c', {WAITS!r}], stdout=1, env=env)"
    code = (
        "import os, subprocess, sys\n"
        f"env = os.environ | {{'PINCHPOINT_RUN': {str(tmp_path)!r}}}\n"
        f"child = {child}\n"
        "sys.stdin.read(); child.kill()"
    )
    assert attach.way_to(process(code).pid) == attach.Way("run folder", tmp_path)


def test_a_run_is_asked_through_its_folder(process, tmp_path, monkeypatch):
    (tmp_path / "traces").mkdir()
    monkeypatch.setattr(attach, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(attach, "_SETTLED_S", 0.0)
    answers = (
        "import sys, os, time\n"
        "print('ready', flush=True)\n"
        "while not os.path.exists('capture.request'): time.sleep(0.01)\n"
        "open('traces/rank00000of00001.h.1.trace.json.gz', 'w').close()\n" + WAITS
    )
    monkeypatch.chdir(tmp_path)
    run = process(answers, PINCHPOINT_RUN=str(tmp_path))
    (path,) = attach.record(run.pid, 30.0, lambda text: None)
    assert path.name == "rank00000of00001.h.1.trace.json.gz"


def test_a_process_with_the_trigger_is_signalled(process, tmp_path, monkeypatch):
    log = tmp_path / "kineto.json"
    config = tmp_path / "kineto.conf"
    config.write_text(f"ENABLE_SIGUSR2=YES\nACTIVITIES_LOG_FILE={log}\n")
    monkeypatch.setattr(attach, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(attach, "_SETTLED_S", 0.0)
    answers = (
        "import signal, sys\n"
        f"signal.signal(signal.SIGUSR2, lambda *_: open({str(log)!r}, 'w').close())\n" + WAITS
    )
    daemon = process(answers, KINETO_USE_DAEMON="1", KINETO_CONFIG=str(config))
    assert attach.record(daemon.pid, 30.0, lambda text: None) == [log]


def test_no_answer_in_time_is_said(process, tmp_path, monkeypatch):
    monkeypatch.setattr(attach, "_LOOK_EVERY_S", 0.01)
    run = process(PINCHPOINT_RUN=str(tmp_path))
    with pytest.raises(MeasurementInvalid, match="wrote no recording within"):
        attach.record(run.pid, 0.05, lambda text: None)


def test_no_such_process(capsys):
    assert main(["attach", str(2**22 + 1)]) == 2
    assert "there is no process" in capsys.readouterr().err
