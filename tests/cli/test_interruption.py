"""A Ctrl-C that Python itself loses still ends what goes on until it is ended."""

import signal

import pytest

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
