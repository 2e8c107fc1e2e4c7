"""How long the command line takes to start, against its budget of 150 ms for ``--help``.

./run bench start_up

Last come diagnoses of made-up traces, whole: their aims are CPU time, which other programs on the
machine change less than the time by the clock.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import synthetic_trace

RUNS = 9
COMMANDS = {
    "python, nothing else": ["-c", "pass"],
    "pinchpoint --help": ["-m", "pinchpoint", "--help"],
    "pinchpoint --version": ["-m", "pinchpoint", "--version"],
    "pinchpoint diagnose --help": ["-m", "pinchpoint", "diagnose", "--help"],
    "import cyclopts": ["-c", "import cyclopts"],
    "cyclopts draws an empty help": ["-c", "import cyclopts; cyclopts.App()(['--help'])"],
    "import argparse": ["-c", "import argparse"],
    "import rich.console": ["-c", "import rich.console"],
    "import jinja2": ["-c", "import jinja2"],
    "import numpy": ["-c", "import numpy"],
    "import msgspec": ["-c", "import msgspec"],
    "import pinchpoint.report": ["-c", "import pinchpoint.report"],
    "pinchpoint demo": ["-m", "pinchpoint", "demo", "--html", os.devnull],
}


# Bytes of text, and the CPU time that a diagnosis of them may take, start-up included.
DIAGNOSES = ((1_000_000, None), (10_000_000, 0.4), (60_000_000, 0.8))


def main() -> None:
    """Print the median wall time, and the fastest wall and CPU time, of each command."""
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {RUNS} runs each")
    print(f"{'':32}{'median':>9}{'fastest':>9}{'CPU':>9}   ms")
    for label, words in COMMANDS.items():
        show(label, [sys.executable, *words])
    with tempfile.TemporaryDirectory() as folder:
        for size, most_s in DIAGNOSES:
            path = Path(folder) / f"{size}.json.gz"
            synthetic_trace.write(path, size)
            command = [sys.executable, "-m", "pinchpoint", "diagnose", str(path)]
            aim = "" if most_s is None else f"   aim {1000 * most_s:.0f} of CPU"
            show(f"diagnose {size / 1e6:.0f} MB of text", command, aim)


def show(label: str, command: list[str], aim: str = "") -> None:
    """Print what one command took."""
    wall, cpu = zip(*sorted(taken_ms(command) for _ in range(RUNS)), strict=True)
    print(f"{label:32}{statistics.median(wall):9.0f}{wall[0]:9.0f}{min(cpu):9.0f}{aim}")


def taken_ms(words: list[str]) -> tuple[float, float]:
    """Wall and CPU time of one process."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * (time.perf_counter() - began), 1000 * cpu


if __name__ == "__main__":
    main()
