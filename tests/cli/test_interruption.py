"""A Ctrl-C that Python itself loses still ends what goes on until it is ended."""

import os
import signal
import sys

import pytest

from pinchpoint import interruption
from pinchpoint.bench.run import process
from pinchpoint.cli import main
from pinchpoint.cli.programs import monitor
from pinchpoint.cli.sharing import serve

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class PressedInDestructor:
    """What it raises is printed and ignored, as in the callbacks of an import."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def lose_one(module, name, monkeypatch):
    """One Ctrl-C is pressed and lost where ``module.name`` is called."""
    usual = getattr(module, name)

    def call(*args, **named):
        PressedInDestructor()
        return usual(*args, **named)

    monkeypatch.setattr(module, name, call)


def forbid(*_args):
    raise AssertionError("it goes on")


def test_serve_ends(tmp_path, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(uvicorn.Server, "on_tick", forbid)
    lose_one(serve, "_listen", monkeypatch)
    assert main(["serve", str(tmp_path), "--port", "0"]) == 0
    assert "serving" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_monitor_ends(tmp_path, monkeypatch, capsys):
    lose_one(monitor, "TelemetryLog", monkeypatch)
    monkeypatch.setattr(monitor.Board, "refresh", forbid)
    assert main(["monitor", "--log", str(tmp_path / "log.csv")]) == 0
    assert "wrote" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits by pidfd, which Linux has")
def test_bench_run_hears_of_one_that_was_lost_as_its_program_started(tmp_path, monkeypatch, capsys):
    lose_one(process, "ends_with_us", monkeypatch)
    words = ["bench", "run", "-o", str(tmp_path / "run"), "--no-steps"]
    program = [sys.executable, "-c", "import time; time.sleep(30)"]
    assert main([*words, "--", *program]) == 130
    assert "holds what was measured until then" in capsys.readouterr().err


def test_one_that_was_heard_is_none_of_the_next_command():
    with interruption.noted():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interruption.came()
    assert not interruption.came()
