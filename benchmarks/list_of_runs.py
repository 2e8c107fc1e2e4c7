"""How long the list of ``serve`` takes over many runs: a fresh server's first answer, and the next.

./run bench list_of_runs               a thousand
./run bench list_of_runs --runs 300    another number

The recordings are copies of a small one of this repository, in folders of 20; their summaries lie
in the index, as after a first visit. The aim: under a second, the first time too. On a machine
that others use, the CPU time says what it would be alone.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDING = Path(__file__).resolve().parents[1] / "tests/data/kineto/cupy_mix.json.gz"
IN_A_FOLDER = 20
MOST_S = 1.0
LATER_ANSWERS = 5
# In a process of its own, as a fresh server is: nothing is remembered but the index.
ANSWER = """
import sys, time
from pathlib import Path
from threading import Lock
from pinchpoint.serve.index import Index
from pinchpoint.serve.pages import list_page
from pinchpoint.serve.reader import Reader
root, index = Path(sys.argv[1]), Index(Path(sys.argv[2]))
reader = Reader(root, index, Lock())
for _ in range(int(sys.argv[3])):
    began, worked = time.perf_counter(), time.process_time()
    text = list_page(root, "/", index, reader)
    print(time.perf_counter() - began, time.process_time() - worked, len(text))
"""


def main() -> int:
    """Fill a folder and an index, ask for the list, print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as scratch:
        root, index = Path(scratch) / "runs", Path(scratch) / "index.sqlite"
        fill(root, index, runs)
        words = [sys.executable, "-c", ANSWER, str(root), str(index), str(1 + LATER_ANSWERS)]
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in printed.splitlines()]
    first, *later = (float(seconds) for seconds, *_ in lines)
    print(f"{runs} runs, {int(lines[0][2]) / 1e6:.1f} MB of page, load {os.getloadavg()[0]:.1f}")
    print(f"first answer {first:.2f} s, later {statistics.median(later):.2f} s", end=", ")
    print(f"of CPU {float(lines[0][1]):.2f} s and {float(lines[-1][1]):.2f} s", end=", ")
    kept = first <= MOST_S
    print(f"at most {MOST_S:g} s: {'kept' if kept else 'NOT kept'}")
    return 0 if kept else 1


def fill(root: Path, index_file: Path, runs: int) -> None:
    """The recordings, and what is known of them."""
    from pinchpoint.serve.index import Index
    from pinchpoint.serve.listing import MOST_RECORDINGS, recordings
    from pinchpoint.serve.reader import summary_of

    for number in range(min(runs, MOST_RECORDINGS)):
        folder = root / f"program{number // IN_A_FOLDER}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(RECORDING, folder / f"run{number}.json.gz")
    found, index = recordings(root).recordings, Index(index_file)
    summary = summary_of(root, found[0].name)
    for recording in found:
        index.put(recording, summary)


if __name__ == "__main__":
    raise SystemExit(main())
