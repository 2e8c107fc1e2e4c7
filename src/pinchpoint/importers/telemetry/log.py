"""Our own ``telemetry.csv``, as ``pinchpoint run`` and ``pinchpoint monitor --log`` write it."""

from pathlib import Path

from pinchpoint.importers.telemetry._samples import Samples, lines, number, small_number
from pinchpoint.monitor.sample import METRICS
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "pinchpoint telemetry"
FILES = (".csv", "pinchpoint run, pinchpoint monitor --log")
READS: tuple[str, ...] = ("counters",)
NOT_READ = ""

_TIME = regex(r"[0-9]{1,18}|[0-8][0-9]{18}")  # fits in 63 bits
_START = b"unix_ns,device,"


def claims(path: Path, head: bytes) -> bool:
    """The first two columns, which no other log has."""
    return head.startswith(_START)


def read(path: Path) -> Trace:
    """Counters by device; host samples have no device."""
    samples = collect(path)
    devices = tuple(Device(number, vendor="nvidia") for number in sorted(samples.devices))
    return samples.trace(FORMAT, devices, recorder="pinchpoint", origin_ns=0)


def collect(path: Path) -> Samples:
    """All samples with their Unix times."""
    samples = Samples(path)
    source = lines(path)
    names = next(source, "").split(",")[2:]
    torn = 0
    for line in source:
        cells = line.split(",")
        if len(cells) != len(names) + 2 or not _TIME.fullmatch(cells[0]):
            torn += bool(line)
            continue
        time_ns, place = int(cells[0]), cells[1]
        device_text, _, mig_slice = place.partition("/")
        device = small_number(device_text)
        for name, cell in zip(names, cells[2:], strict=True):
            if cell and name in METRICS:
                shown = f"{name} of slice {mig_slice}" if mig_slice else name
                samples.add(time_ns, shown, number(cell), device)
    if torn:
        samples.note("telemetry-torn-lines", torn, f"{torn} lines are cut off")
    return samples
