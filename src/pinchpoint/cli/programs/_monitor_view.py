"""Draws a board of samples with rich: one block a device, one for the host."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pinchpoint.monitor import reasons
from pinchpoint.monitor.board import Board
from pinchpoint.monitor.sample import METRICS, process_name
from pinchpoint.report.plain import plain

GIB = 1024.0**3
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 40
_RATIOS = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "any_kernel_ratio")
_MOST_PROCESSES = 6
_READINGS = (
    ("memory", "memory_used_bytes", "GiB", GIB),
    ("power", "power_w", "W", 1.0),
    ("SM clock", "sm_clock_mhz", "MHz", 1.0),
    ("temperature", "temperature_c", "°C", 1.0),
    ("PCIe in", "pcie_rx_bytes_per_s", "GB/s", 1e9),
    ("PCIe out", "pcie_tx_bytes_per_s", "GB/s", 1e9),
    ("NVLink in", "nvlink_rx_bytes_per_s", "GB/s", 1e9),
    ("NVLink out", "nvlink_tx_bytes_per_s", "GB/s", 1e9),
)
_TOPS = {
    "memory_used_bytes": "memory_total_bytes",
    "power_w": "power_limit_w",
    "sm_clock_mhz": "sm_clock_max_mhz",
}


def draw(board: Board) -> RenderableType:
    """The whole view."""
    blocks: list[RenderableType] = [_device(board, d.device, d.name) for d in board.devices]
    if board.no_devices:
        blocks.append(Text(f"No GPU to show: {board.no_devices}. CPU and memory only.", "yellow"))
    blocks.append(_host(board))
    return Group(*blocks)


def _device(board: Board, device: str, name: str) -> Panel:
    values, missing = board.latest(device), board.missing(device)
    grid = _grid()
    for metric in _RATIOS:
        grid.add_row(*_ratio_row(board, device, metric, missing.get(metric)))
    for label, text, metric in _readings(values):
        grid.add_row(label, text, spark(board.history(device, metric), _top(values, metric)))
    if "event_reasons" in values:
        words = ", ".join(reasons.in_words(int(values["event_reasons"]))) or "none"
        grid.add_row("clock reasons", words, "")
    for label, text in process_rows(board, device):
        grid.add_row(label, text, "")
    return _panel(f"{device}  {plain(name)}", grid, board.sentences(device))


def process_rows(board: Board, device: str | None) -> list[tuple[str, str]]:
    """The first processes on a device: number, name and the device memory they hold."""
    found = []
    for process in [p for p in board.processes() if p.device == device][:_MOST_PROCESSES]:
        held = process.memory_bytes
        memory = "memory not told" if held is None else f"{held / GIB:.1f} GiB"
        name = plain(process_name(process.pid) or "", 24)
        found.append(("process", f"{process.pid} {name} {memory}".replace("  ", " ")))
    return found


def _host(board: Board) -> Panel:
    values = board.latest(None)
    grid = _grid()
    grid.add_row(*_ratio_row(board, None, "cpu_ratio", None))
    used, total = values.get("host_memory_used_bytes"), values.get("host_memory_total_bytes")
    if used is not None and total:
        history = board.history(None, "host_memory_used_bytes")
        grid.add_row("memory", f"{used / GIB:.1f} of {total / GIB:.1f} GiB", spark(history, total))
    for metric, form in (
        ("runnable_count", "{:.0f}"),
        ("context_switches_per_s", "{:.0f} a second"),
        ("cpu_pressure_ratio", "{:.0%}"),
        ("disk_read_bytes_per_s", "{:.3g} B/s"),
    ):
        if metric in values:
            history = board.history(None, metric)
            grid.add_row(METRICS[metric].label, form.format(values[metric]), spark(history, None))
    return _panel("host", grid, board.sentences(None))


def _ratio_row(
    board: Board, device: str | None, metric: str, why: str | None
) -> tuple[str, str, str]:
    value = board.latest(device).get(metric)
    label = METRICS[metric].label
    if value is None:
        return label, f"not available ({plain(why)})" if why else "no value yet", ""
    return label, f"{100 * value:5.1f} %", spark(board.history(device, metric), 1.0)


def _readings(values: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Label, value (of the most there is) and metric of what is no ratio."""
    for label, metric, unit, scale in _READINGS:
        if metric in values:
            top = _top(values, metric)
            most = f" of {top / scale:.4g}" if top else ""
            yield label, f"{values[metric] / scale:.4g}{most} {unit}", metric


def _top(values: Mapping[str, float], metric: str) -> float | None:
    return values.get(_TOPS.get(metric, ""))


def spark(values: Sequence[float | None], top: float | None) -> str:
    """The newest values as a line of blocks; a gap where nothing is known."""
    shown = values[-_SPARK_WIDTH:]
    most = top or max((v for v in shown if v is not None), default=0.0)
    if not most:
        return " " * len(shown)
    marks = [" " if v is None else _BLOCKS[min(int(v / most * 8), 7)] for v in shown]
    return "".join(marks)


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=20)
    grid.add_column(min_width=22)
    grid.add_column(style="cyan", no_wrap=True)
    return grid


def _panel(title: str, grid: Table, sentences: Sequence[str]) -> Panel:
    lines = [Text(f"! {plain(sentence)}", style="bold yellow") for sentence in sentences]
    return Panel(Group(grid, *lines), title=title, title_align="left")
