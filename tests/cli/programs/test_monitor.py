import json
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

import pinchpoint as pp
from monitor.fake_nvml import FakeNvml
from pinchpoint.cli import main
from pinchpoint.cli.programs import monitor as command
from pinchpoint.cli.programs._monitor_view import draw, spark
from pinchpoint.monitor.board import Board


@pytest.fixture
def h100(monkeypatch):
    """A machine with one busy H100."""
    fake = FakeNvml(gpm={2: 96.4, 5: 93.6, 10: 24.3})
    monkeypatch.setattr(command, "Board", partial(Board, nvml=fake))
    monkeypatch.setattr(command, "FIRST_LOOK_S", 0.11)
    return fake


def test_one_look_as_json(h100, capsysbinary):
    assert main(["monitor", "--once", "--json"]) == 0
    document = json.loads(capsysbinary.readouterr().out)
    assert document["schema"] == "pinchpoint.monitor/1"
    assert document["devices"][0]["values"]["sm_active_ratio"] == pytest.approx(0.964)


def test_one_look_for_people(h100, capsys):
    assert main(["monitor", "--once"]) == 0
    text = capsys.readouterr().out
    assert "SM active" in text
    assert "96.4 %" in text
    assert "1305 of 1980 MHz" in text
    assert "time with any kernel" in text


def test_what_is_not_supported_is_said_in_the_view():
    fake = FakeNvml(fails={"nvmlDeviceGetUtilizationRates": "Not Supported"})
    with Board(interval_s=1.0, nvml=fake) as board:
        board.refresh()
        console = Console(width=100, record=True, file=StringIO())
        console.print(draw(board))
    assert "not available (Not Supported)" in console.export_text()


def test_the_log_is_read_back_by_the_importer(h100, tmp_path, capsys):
    log = tmp_path / "log.csv"
    assert main(["monitor", "--log", str(log), "--interval", "0.1", "--seconds", "0.15"]) == 0
    assert pp.load(log).counters is not None
    assert f"wrote {log}" in capsys.readouterr().err


def test_one_look_is_logged_too(h100, tmp_path, capsys):
    log = tmp_path / "log.csv"
    assert main(["monitor", "--once", "--log", str(log)]) == 0
    assert pp.load(log).counters is not None
    assert f"wrote {log}" in capsys.readouterr().err


def test_the_textfile_for_prometheus(h100, tmp_path):
    path = tmp_path / "pinchpoint.prom"
    words = ["monitor", "--prometheus", str(path), "--interval", "0.1", "--seconds", "0.05"]
    assert main(words) == 0
    assert 'pinchpoint_power_w{device="0"' in path.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--json"], "--json needs --once"),
        (["--interval", "0.01"], "answer 0 when read more often"),
        ([], "no terminal to draw on"),
        (["--log", "/nowhere/log.csv"], "No such file"),
    ],
)
def test_what_makes_no_sense(h100, words, message, capsys):
    assert main(["monitor", *words]) == 2
    assert message in capsys.readouterr().err


def test_sparks_show_gaps_and_the_top():
    assert spark([0.0, None, 0.5, 1.0], 1.0) == "▁ ▅█"
