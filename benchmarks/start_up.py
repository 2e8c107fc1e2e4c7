"""How long the command line takes to start, against its budget of 150 ms for ``--help``.

./run bench start_up
"""

import os
import statistics
import subprocess
import sys
import time

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


def main() -> None:
    """Print the median and the fastest wall time of each command."""
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {RUNS} runs each, wall time")
    print(f"{'':32}{'median':>9}{'fastest':>9}   ms")
    for label, words in COMMANDS.items():
        took = sorted(wall_ms([sys.executable, *words]) for _ in range(RUNS))
        print(f"{label:32}{statistics.median(took):9.0f}{took[0]:9.0f}")


def wall_ms(words: list[str]) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
