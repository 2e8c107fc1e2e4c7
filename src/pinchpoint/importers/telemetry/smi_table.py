"""The boxes that ``nvidia-smi`` prints without options, once or again and again in a log.

Each box has two lines a device, the date in the line above. Times are local and name no zone, so
only differences of them mean something.
"""

from datetime import datetime
from pathlib import Path

from pinchpoint.errors import NotThisFormat, UnreadableFile
from pinchpoint.importers.telemetry._samples import Samples, lines, number, small_number
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "nvidia-smi table"
FILES = (".log .txt", "nvidia-smi, nvidia-smi -l")
READS: tuple[str, ...] = ("counters",)
NOT_READ = "processes"

_SIGN = b"| NVIDIA-SMI "
_BOX = ("|", "+")  # how lines of a box begin
_MIB = 1024.0**2  # bytes
_DATES = 2  # lines before a box that are its own: a date, an empty title
_FEWEST_LOOKS = 2  # one tells nothing of a time
_DEVICE = regex(
    r"\|\s{1,4}(\d{1,3})\s+(\S.{0,60}?)(?:\.\.\.)?\s+(?:On|Off|N/A|Disabled|Enabled)\s+\|"
)
# No cell but N/A holds a bar or slash: there is one way to cut a line, however damaged.
_CELL = r"(N/A|[^\s|/]+?)"
_VALUES = regex(
    rf"\|\s*{_CELL}\s+{_CELL}C\s+{_CELL}\s+{_CELL}W?\s*/\s*{_CELL}W?\s*"
    rf"\|\s*{_CELL}MiB\s*/\s*{_CELL}MiB\s*\|\s*{_CELL}%?\s"
)
_FAN, _STATE = 0, 2  # of its groups, which are no figures of ours
# Of each group of the line, and what one of it is.
_MEANING = (
    ("temperature_c", 1.0),
    ("power_w", 1.0),
    ("power_limit_w", 1.0),
    ("memory_used_bytes", _MIB),
    ("memory_total_bytes", _MIB),
    ("any_kernel_ratio", 0.01),
)
_DATE = regex(r"\w{3} (\w{3} +\d{1,2} \d\d:\d\d:\d\d)( [AP]M)?(?: \w+)? (\d{4})\s*$")
_EPOCH = datetime(1970, 1, 1)


def claims(path: Path, head: bytes) -> bool:
    """The title of a box."""
    return _SIGN in head


def read(path: Path) -> Trace:
    """Counters by device, in the names of ``monitor/sample.py``.

    NotThisFormat where most lines are a program's own, which a script printed boxes before.
    """
    samples, names = Samples(path), dict[int, str]()
    device: int | None = None
    time_ns, looks, dated, inside, others = 0, 0, False, 0, 0
    for line in lines(path):
        inside += line.startswith(_BOX)
        others += bool(line.strip()) and not line.startswith(_BOX)
        if (at := _time_ns(line)) is not None:
            time_ns, dated = at, True
        elif line.startswith(_SIGN.decode()):
            looks += 1
            time_ns = time_ns if dated else looks
        elif found := _DEVICE.match(line):
            device = small_number(found[1])
            if device is not None:
                names[device] = found[2].strip()
        elif device is not None and (values := _VALUES.match(line)):
            cells = [v for at, v in enumerate(values.groups()) if at not in (_FAN, _STATE)]
            for (name, factor), cell in zip(_MEANING, cells, strict=True):
                value = number(cell)
                samples.add(time_ns, name, None if value is None else value * factor, device)
            device = None
    _must_be_a_log_of_looks(path, looks if names else 0, inside, others)
    if not dated:
        samples.note("telemetry-without-time", 1, "looks have no time: only their order is known")
    devices = tuple(Device(n, name, vendor="nvidia") for n, name in sorted(names.items()))
    return samples.trace(FORMAT, devices, recorder="nvidia-smi")


def _must_be_a_log_of_looks(path: Path, looks: int, inside: int, others: int) -> None:
    """Raises where it is one look, or the output of a program before which a script looked."""
    if others > inside:
        raise NotThisFormat(
            f"{path}: the output of a program that printed tables of nvidia-smi,"
            " without one figure of what ran",
            hint="record it: pinchpoint run COMMAND",
        )
    if looks < _FEWEST_LOOKS:
        what = "one look at devices" if looks else "a title of nvidia-smi without a device below it"
        refused = NotThisFormat if others > _DATES else UnreadableFile
        raise refused(
            f"{path}: {what}, not a log of what they did",
            hint="log it while the program runs: nvidia-smi --query-gpu=timestamp,index,"
            "utilization.gpu,memory.used,power.draw --format=csv -l 1",
        )


def _time_ns(line: str) -> int | None:
    """``Wed Apr  9 10:26:15 2025``, with half of the day and zone or without."""
    found = _DATE.match(line)
    if found is None:
        return None
    clock = "%I:%M:%S %p" if found[2] else "%H:%M:%S"
    text = f"{' '.join(found[1].split())}{found[2] or ''} {found[3]}"
    try:
        since = datetime.strptime(text, f"%b %d {clock} %Y") - _EPOCH
    except ValueError:
        return None
    return (since.days * 86_400 + since.seconds) * 10**9
