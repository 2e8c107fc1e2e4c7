"""A run folder as it stands: how far the run is, and its newest samples of devices and host."""

from collections.abc import Iterator
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.monitor.sample import METRICS, Metric
from pinchpoint.run_folder.documents import Document, RunDocument, read
from pinchpoint.run_folder.layout import METRICS_FILE, RUN_FILE, TELEMETRY_FILE
from pinchpoint.run_folder.metrics import MetricsDocument

SHOWN = (
    *("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "any_kernel_ratio"),
    *("memory_used_bytes", "power_w", "sm_clock_mhz", "temperature_c"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
    *("cpu_ratio", "cpu_cores_used", "host_memory_used_bytes", "disk_read_bytes_per_s"),
)
MOST_SAMPLES = 150  # half a minute at five a second
_TAIL_BYTES = 256 << 10


@dataclass(frozen=True)
class Series:
    """One metric of one device (None: the host), oldest first; None where it is not known."""

    device: str | None
    metric: Metric
    values: tuple[float | None, ...]

    @property
    def latest(self) -> float | None:
        """The newest known value."""
        return next((v for v in reversed(self.values) if v is not None), None)


@dataclass(frozen=True)
class RunState:
    """What the folder says now. ``running`` is what it claims: a killed run never says ended."""

    running: bool
    command: str
    exit_code: int | None
    problems: tuple[str, ...]
    step_ms: float | None  # median without the profiler, once the run has ended
    steps: int | None
    series: tuple[Series, ...]
    newest_unix_ns: int | None  # of the samples


def is_running(folder: Path) -> bool:
    """Whether the run says that it has not ended; a killed run never says so."""
    return _document(folder / RUN_FILE, RunDocument).status == "running"


def run_state(folder: Path) -> RunState:
    """Never fails: what cannot be read is not known."""
    run = _document(folder / RUN_FILE, RunDocument)
    steps = _document(folder / METRICS_FILE, MetricsDocument).steps
    newest, series = _telemetry(folder / TELEMETRY_FILE)
    return RunState(
        running=run.status == "running",
        command=" ".join(run.command),
        exit_code=run.exit_code,
        problems=run.problems,
        step_ms=None if steps is None else steps.unprofiled_ms.median,
        steps=None if steps is None else steps.count,
        series=tuple(series),
        newest_unix_ns=newest,
    )


def _telemetry(path: Path) -> tuple[int | None, list[Series]]:
    names, rows = _tail(path)
    columns: dict[tuple[str, str], list[float | None]] = {}
    newest = None
    for cells in rows:
        if len(cells) != len(names) or not cells[0].isdecimal():
            continue  # the row that is being written
        newest = int(cells[0])
        for name, cell in zip(names[2:], cells[2:], strict=True):
            if name in SHOWN:
                columns.setdefault((cells[1], name), []).append(_number(cell))
    series = [
        Series(device or None, METRICS[name], tuple(values[-MOST_SAMPLES:]))
        for (device, name), values in columns.items()
        if any(value is not None for value in values)
    ]
    order = [METRICS[name] for name in SHOWN]
    return newest, sorted(
        series, key=lambda s: (s.device is None, s.device or "", order.index(s.metric))
    )


def _tail(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """The column names and the newest rows of a log that may be growing."""
    if not path.is_file():
        return [], iter(())
    try:
        with path.open("rb") as file:
            names = file.readline(_TAIL_BYTES)
            start, end = file.tell(), file.seek(0, 2)
            file.seek(max(start, end - _TAIL_BYTES))
            whole = file.tell() == start
            text = file.read(_TAIL_BYTES)
    except OSError:
        return [], iter(())
    lines = text.decode("utf-8", "replace").split("\n")
    cut = lines[:-1] if whole else lines[1:-1]
    return names.decode("utf-8", "replace").strip().split(","), (line.split(",") for line in cut)


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None


def _document(path: Path, kind: type[Document]) -> Document:
    try:
        return read(path, kind).document
    except UnreadableFile:
        return kind()
