"""The interactive monitor: one device at a time, every metric, and the last minute of one of them.

Needs the extra ``tui``. The screen only shows what a board knows; it samples nothing by itself.
"""

from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Sparkline, Static

from pinchpoint.cli.programs._monitor_view import process_rows
from pinchpoint.monitor import reasons
from pinchpoint.monitor.board import Board
from pinchpoint.monitor.sample import METRICS
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import quantity

_MASK = "event_reasons"  # bits, shown in words below the chart


class MonitorApp(App[None]):
    """``look`` takes one look at everything; the board then has it."""

    CSS = """
    #metrics { width: 64; }
    #side { padding: 0 2; }
    #chart { height: 8; margin: 1 0; }
    #sentences { color: $warning; margin: 1 0; }
    """
    BINDINGS: ClassVar[list[Binding | tuple[str, str] | tuple[str, str, str]]] = [
        Binding("n,right", "turn(1)", "next device"),
        Binding("p,left", "turn(-1)", "previous"),
        Binding("space", "pause", "pause"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(
        self,
        board: Board,
        look: Callable[[], object],
        *,
        interval_s: float,
        seconds: float | None = None,
    ) -> None:
        super().__init__()
        self._board, self._look = board, look
        self._interval_s, self._seconds = interval_s, seconds
        self._places: list[str | None] = [*(d.device for d in board.devices), None]
        self._at, self._paused, self._metric = 0, False, ""

    @property
    def place(self) -> str | None:
        """The device that is shown; None is the host."""
        return self._places[self._at]

    def compose(self) -> ComposeResult:
        """Metrics on the left; on the right one of them over time, and what it all means."""
        yield Static(id="title", markup=False)
        with Horizontal():
            yield DataTable[str](id="metrics", cursor_type="row")
            with Vertical(id="side"):
                yield Static(id="meaning", markup=False)
                yield Sparkline(id="chart")
                yield Static(id="range", markup=False)
                yield Static(id="sentences", markup=False)
                yield Static(id="processes", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Look at once, then again and again."""
        table = self.query_one("#metrics", DataTable)
        table.add_column("", key="label", width=26)
        table.add_column("now", key="now", width=34)
        self._tick()
        self.set_interval(self._interval_s, self._tick)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The row under the cursor is drawn over time."""
        if event.row_key.value is not None:
            self._metric = event.row_key.value
            self._draw_metric()

    def action_turn(self, by: int) -> None:
        """Show the next device, or the one before; the host comes last."""
        self._at = (self._at + by) % len(self._places)
        self._draw()

    def action_pause(self) -> None:
        """Stop looking, so that a moment can be studied; or go on."""
        self._paused = not self._paused
        self._draw()

    def _tick(self) -> None:
        if not self._paused:
            self._look()
            self._draw()

    def _draw(self) -> None:
        self.query_one("#title", Static).update(self._title())
        table = self.query_one("#metrics", DataTable)
        rows = self._rows()
        if [str(key.value) for key in table.rows] != [name for name, _, _ in rows]:
            table.clear()
            for name, label, now in rows:
                table.add_row(label, now, key=name)
        for name, _, now in rows:
            table.update_cell(name, "now", now)
        self.query_one("#sentences", Static).update("\n".join(self._sentences()))
        lines = [f"{label}  {text}" for label, text in process_rows(self._board, self.place)]
        self.query_one("#processes", Static).update("\n".join(lines))
        self._draw_metric()

    def _title(self) -> str:
        name = "host" if self.place is None else self._board.names[self.place]
        number = "" if self.place is None else f"{self.place}  "
        of = f"  ({self._at + 1} of {len(self._places)})"
        why = self._board.no_devices
        absent = f"  no GPU: {plain(why)}" if why else ""
        return f"{number}{plain(name)}{of}{'  paused' if self._paused else ''}{absent}"

    def _rows(self) -> list[tuple[str, str, str]]:
        """Name, label and present value of what the device tells or should tell."""
        values, missing = self._board.latest(self.place), self._board.missing(self.place)
        found = []
        for name, metric in METRICS.items():
            if name in values and name != _MASK:
                found.append((name, metric.label, quantity(values[name], metric.unit)))
            elif name in missing:
                found.append((name, metric.label, f"not available ({plain(missing[name], 16)})"))
        return found

    def _sentences(self) -> list[str]:
        found = [f"! {plain(sentence)}" for sentence in self._board.sentences(self.place)]
        mask = self._board.latest(self.place).get(_MASK)
        if mask is not None:
            words = ", ".join(reasons.in_words(int(mask))) or "none"
            found.insert(0, f"clock reasons: {words}")
        return found

    def _draw_metric(self) -> None:
        metric = METRICS.get(self._metric)
        known = [v for v in self._board.history(self.place, self._metric) if v is not None]
        self.query_one("#chart", Sparkline).data = known
        about = f"{metric.label}: {metric.meaning}" if metric else ""
        self.query_one("#meaning", Static).update(about)
        shown = ""
        if metric and known:
            least, mean, most = (
                quantity(v, metric.unit) for v in (min(known), sum(known) / len(known), max(known))
            )
            shown = f"least {least}   mean {mean}   most {most}   in {len(known)} looks"
        self.query_one("#range", Static).update(shown)
