"""Watch devices and host live, in figures that mean what they say."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import has_unicode, may_write, note, show, show_plainly
from pinchpoint.cli.page import Force
from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.interruption import as_usual, came
from pinchpoint.monitor.board import Board
from pinchpoint.monitor.sample import SHORTEST_S, Sample
from pinchpoint.monitor.telemetry import COLUMNS, TelemetryLog

Switch = Parameter(negative="")
FIRST_LOOK_S = 0.25  # activity counters are means between two looks


def command(  # noqa: PLR0913 - one argument an option
    *,
    once: Annotated[bool, Switch] = False,
    json: Annotated[bool, Switch] = False,
    log: Path | None = None,
    prometheus: Path | None = None,
    force: Force = False,
    interval: float = 1.0,
    seconds: float | None = None,
    gpus: str | None = None,
    no_counters: Annotated[bool, Switch] = False,
    interactive: Annotated[bool, Parameter(alias="-i", negative="")] = False,
) -> int:
    """Show what devices and host do, until Ctrl-C.

    SM, tensor and DRAM activity come from the device's own counters (Hopper and newer). "time with
    any kernel" is what other tools call utilization: it says nothing about how busy the device is.

    Parameters
    ----------
    once
        Show one look and end.
    json
        With --once: one JSON document on standard output and nothing else.
    log
        Also write every look to this CSV file, which pinchpoint diagnose and pandas read.
    prometheus
        Also keep this text file up to date, for the node exporter's textfile collector.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    interval
        Seconds between looks, at least 0.1.
    seconds
        End after so many seconds.
    gpus
        Only these devices, such as 0,2.
    no_counters
        Leave the activity counters alone, for example while DCGM reads them.
    interactive
        Every metric of one device at a time, with its history; keys are shown below (extra tui).
    """
    if json and not once:
        raise UsageError("--json needs --once", hint="pinchpoint monitor --once --json")
    if interval < SHORTEST_S:
        raise UsageError(
            f"--interval {interval:g}: activity counters answer 0 when read more often than every "
            f"{SHORTEST_S:g} s",
            hint=f"--interval {SHORTEST_S:g}",
        )
    for path, beginning in ((log, ",".join(COLUMNS).encode()), (prometheus, b"# HELP")):
        if path is not None:
            may_write(path, beginning, force=force)
    only = None if gpus is None else frozenset(part.strip() for part in gpus.split(","))
    with Board(interval_s=interval, only=only, counters=not no_counters) as board:
        if once:
            return _once(board, log, prometheus, as_json=json)
        return _watch(board, interval, seconds, log, prometheus, interactive=interactive)


def _once(board: Board, log_path: Path | None, prometheus: Path | None, *, as_json: bool) -> int:
    log = TelemetryLog(log_path) if log_path else None
    board.refresh()
    time.sleep(FIRST_LOOK_S)
    samples = board.refresh()
    _keep_textfile(prometheus, samples, board)
    if log is not None:
        log.add(samples)
    _show(board, as_json=as_json)
    return _closed(log)


def _show(board: Board, *, as_json: bool) -> None:
    if as_json:
        import json

        show(json.dumps(board.document(), indent=1, allow_nan=False) + "\n")
        return
    import io

    from rich.console import Console

    from pinchpoint.cli.programs._monitor_view import draw

    if has_unicode() and sys.stdout.isatty():
        Console().print(draw(board))
        return
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as drawn:
        console.print(draw(board))
    show_plainly(drawn.get())


def _closed(log: TelemetryLog | None) -> int:
    """The exit code, after what became of the log was said."""
    if log is None:
        return 0
    log.close()
    note(log.problem or f"wrote {log.path}")
    return 2 if log.problem else 0


def _watch(
    board: Board,
    interval_s: float,
    seconds: float | None,
    log_path: Path | None,
    prometheus: Path | None,
    *,
    interactive: bool = False,
) -> int:
    draw = _app if interactive else _live
    log = TelemetryLog(log_path) if log_path else None

    def tick() -> None:
        if came():
            raise KeyboardInterrupt
        samples = board.refresh()
        _keep_textfile(prometheus, samples, board)
        if log is not None:
            log.add(samples)

    try:
        if sys.stdout.isatty():
            draw(board, interval_s, seconds, tick)
        elif interactive or (log is None and prometheus is None):
            raise UsageError("no terminal to draw on", hint="--once, --once --json, or --log FILE")
        else:
            _repeat(interval_s, seconds, tick)
    except KeyboardInterrupt:
        pass
    finally:
        if log is not None:
            log.close()
    return _closed(log)


def _live(board: Board, interval_s: float, seconds: float | None, tick: Callable[[], None]) -> None:
    from rich.live import Live

    from pinchpoint.cli.programs._monitor_view import draw

    with Live(auto_refresh=False, screen=seconds is None) as live:

        def tick_and_draw() -> None:
            tick()
            live.update(draw(board), refresh=True)

        _repeat(interval_s, seconds, tick_and_draw)


def _app(board: Board, interval_s: float, seconds: float | None, tick: Callable[[], None]) -> None:
    try:
        from pinchpoint.cli.programs._monitor_app import MonitorApp
    except ImportError:
        raise MissingExtra(
            "--interactive needs Textual", hint=install_hint("tui", "textual")
        ) from None
    as_usual()
    MonitorApp(board, tick, interval_s=interval_s, seconds=seconds).run()


def _repeat(interval_s: float, seconds: float | None, tick: Callable[[], None]) -> None:
    start_s = next_s = time.monotonic()
    while seconds is None or time.monotonic() - start_s < seconds:
        tick()
        next_s = max(next_s + interval_s, time.monotonic())
        time.sleep(next_s - time.monotonic())


def _keep_textfile(path: Path | None, samples: list[Sample], board: Board) -> None:
    if path is None:
        return
    from pinchpoint.monitor.sample import exposition, write_textfile

    try:
        write_textfile(path, exposition(samples, board.names))
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="name a file in a folder you may write to"
        ) from None
