"""The interactive monitor, driven by keys on a screen that only exists in memory."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from monitor.fake_nvml import FakeNvml
from pinchpoint.cli import main
from pinchpoint.cli.programs import monitor as command
from pinchpoint.monitor.board import Board

pytest.importorskip("textual", reason="the interactive monitor is drawn by Textual")
from textual.widgets import DataTable, Sparkline

from pinchpoint.cli.programs._monitor_app import MonitorApp


def driven(drive, **fake):
    """Run ``drive(app, pilot)`` on an app over these devices, looking only when told to."""

    async def run():
        with Board(interval_s=1.0, nvml=FakeNvml(**fake)) as board:
            app = MonitorApp(board, board.refresh, interval_s=3600)
            async with app.run_test(size=(150, 50)) as pilot:
                await drive(app, pilot)

    asyncio.run(run())


def text_of(app, name):
    return str(app.query_one(f"#{name}").content)


def row_of(app, metric):
    return app.query_one("#metrics", DataTable).get_row(metric)


def test_values_and_what_is_not_supported_are_shown():
    async def drive(app, pilot):
        assert "H100" in text_of(app, "title")
        assert row_of(app, "power_w")[1].endswith(" W")
        assert row_of(app, "any_kernel_ratio")[1] == "not available (Not Supported)"

    driven(drive, fails={"nvmlDeviceGetUtilizationRates": "Not Supported"})


def test_keys_go_through_the_devices_to_the_host_and_around():
    async def drive(app, pilot):
        titles = [text_of(app, "title")]
        for key in ("n", "right", "n", "p"):
            await pilot.press(key)
            titles.append(text_of(app, "title"))
        assert [title.split()[0] for title in titles] == ["0", "1", "host", "0", "host"]

    driven(drive, devices=2)


def test_the_row_under_the_cursor_is_drawn_over_time():
    async def drive(app, pilot):
        app._tick()
        app.query_one("#metrics", DataTable).focus()
        row = app.query_one("#metrics", DataTable).get_row_index("power_w")
        app.query_one("#metrics", DataTable).move_cursor(row=row)
        await pilot.pause()
        assert text_of(app, "meaning") == "power: power drawn"
        assert len(app.query_one("#chart", Sparkline).data) == 2
        assert "in 2 looks" in text_of(app, "range")

    driven(drive)


def test_a_pause_keeps_the_moment():
    async def drive(app, pilot):
        await pilot.press("space")
        app._tick()
        assert "paused" in text_of(app, "title")
        assert len(app._board.history(None, "host_memory_used_bytes")) == 1
        await pilot.press("space")
        app._tick()
        assert len(app._board.history(None, "host_memory_used_bytes")) == 2

    driven(drive)


def test_without_a_gpu_the_host_is_there_with_the_reason():
    async def drive(app, pilot):
        assert app.place is None
        assert "no GPU: " in text_of(app, "title")
        assert row_of(app, "host_memory_used_bytes")[1].endswith("iB")
        await pilot.press("q")

    driven(drive, fails={"nvmlInit": "Driver Not Loaded"})


def test_it_needs_a_terminal(monkeypatch, capsys):
    assert main(["monitor", "--interactive"]) == 2
    assert "no terminal" in capsys.readouterr().err


def test_without_textual_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    )
    monkeypatch.setitem(sys.modules, "pinchpoint.cli.programs._monitor_app", None)
    assert main(["monitor", "-i"]) == 2
    assert "pip install textual" in capsys.readouterr().err
