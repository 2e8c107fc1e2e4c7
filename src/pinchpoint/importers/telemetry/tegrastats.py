"""What NVIDIA's ``tegrastats`` prints on Jetson boards, a line a second.

Which fields a line has depends on the board and its release. The GPU has no memory of its own: what
``RAM`` says is of both. Without ``--verbose`` older releases print no time.
"""

from datetime import datetime
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.telemetry._samples import Samples, lines
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "tegrastats"
FILES = (".log .txt", "tegrastats (Jetson)")
READS: tuple[str, ...] = ("counters",)
NOT_READ = "rails but the board's own, engines but the GPU, temperatures of other parts"

_MIB = 1024.0**2  # bytes; it prints MB and counts so
_RAM = regex(r"\bRAM (\d{1,8})/(\d{1,8})MB\b")
_SIGN = regex(rb"(?:^|\n)[^\n]{0,24}\bRAM \d{1,8}/\d{1,8}MB [^\n]{0,300}\bCPU \[")
_SWAP = regex(r"\bSWAP (\d{1,8})/\d{1,8}MB\b")
_CPU = regex(r"\bCPU \[([^\]]{1,400})\]")
_CORE = regex(r"(\d{1,3})%")  # one that is off has no share
_GPU = regex(r"\bGR3D(?:_FREQ)? (\d{1,3})%(?:@\[?(\d{1,6}))?")
_HOT = regex(r"\b(?:GPU|gpu)@(-?\d{1,3}(?:\.\d{1,3})?)C\b")
# The rail by which the whole board is fed: mW now, then on average.
_POWER = regex(r"\b(?:VDD_IN|POM_5V_IN|VIN) (\d{1,8})(?:mW)?/\d")
_STAMP = regex(r"(\d\d-\d\d-\d{4} \d\d:\d\d:\d\d) ")
_EPOCH = datetime(1970, 1, 1)
_LEAST_LOOKS = 2  # one tells nothing of a time


def claims(path: Path, head: bytes) -> bool:
    """A line of it: memory of the board, then its cores."""
    return _SIGN.search(head) is not None


def read(path: Path) -> Trace:
    """Counters of the one GPU and of the host, in the names of ``monitor/sample.py``."""
    samples, looks, dated, others = Samples(path), 0, False, 0
    for line in lines(path):
        found = _RAM.search(line)
        if found is None:
            others += bool(line.strip())
            continue
        looks += 1
        at = _time_ns(line)
        dated = dated or at is not None
        time_ns = looks if at is None else at
        for name, value, device in _of_line(line):
            samples.add(time_ns, name, value, device)
        samples.add(time_ns, "host_memory_used_bytes", int(found[1]) * _MIB, None)
        samples.add(time_ns, "host_memory_total_bytes", int(found[2]) * _MIB, None)
    if looks < _LEAST_LOOKS:
        raise UnreadableFile(
            f"{path}: one look of tegrastats, not a log of what the board did",
            hint="log it while the program runs: tegrastats --interval 1000 --logfile FILE",
        )
    if others:
        samples.note("telemetry-torn-lines", others, f"{others} lines are not of tegrastats")
    if not dated:
        samples.note("telemetry-without-time", 1, "rows have no time: only their order is known")
    return samples.trace(
        FORMAT, (Device(0, vendor="nvidia"),), recorder="tegrastats", truncated=False
    )


def _of_line(line: str) -> list[tuple[str, float, int | None]]:
    """Names, values and devices but for the memory of the board."""
    found: list[tuple[str, float, int | None]] = []
    if gpu := _GPU.search(line):
        found.append(("any_kernel_ratio", int(gpu[1]) / 100, 0))
        if gpu[2]:
            found.append(("sm_clock_mhz", float(gpu[2]), 0))
    if hot := _HOT.search(line):
        found.append(("temperature_c", float(hot[1]), 0))
    if power := _POWER.search(line):
        found.append(("power_w", int(power[1]) / 1e3, 0))
    if swap := _SWAP.search(line):
        found.append(("swap_used_bytes", int(swap[1]) * _MIB, None))
    cpu = _CPU.search(line)
    if cpu and (cores := [int(share) for share in _CORE.findall(cpu[1])]):
        found.append(("cpu_ratio", sum(cores) / len(cores) / 100, None))
    return found


def _time_ns(line: str) -> int | None:
    """``10-01-2025 20:05:55``, month first, local."""
    stamp = _STAMP.match(line)
    if stamp is None:
        return None
    try:
        since = datetime.strptime(stamp[1], "%m-%d-%Y %H:%M:%S") - _EPOCH
    except ValueError:
        return None
    return (since.days * 86_400 + since.seconds) * 10**9
