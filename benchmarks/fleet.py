"""`pinchpoint fleet` over thousands of made-up run folders with planted changes.

    python benchmarks/fleet.py [--runs 5000] [--programs 50]

Every program runs for weeks; its step varies by 2 % from run to run, and one run in thirty is half
as long again. One program in five became longer for good at some run (by 5, 10 or 20 %). Printed:
the first time and the second (from the index), a query in SQL, the planted changes that were found
within three runs, and changes that nobody planted. Then, without files, the same series many times:
how often a program without a change is said to have one, and how many runs a change takes to be
seen.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pinchpoint.compare.over_time import shifts

DAY_NS = 86_400 * 10**9
START_NS = 1_790_000_000 * 10**9
SPREAD, ODD_SHARE, ODD_FACTOR = 0.02, 1 / 30, 1.5
CHANGES = (0.05, 0.10, 0.20)
NEAR = 3  # runs by which the place may be off


def series(random: np.random.Generator, runs: int) -> np.ndarray:
    """Steps of one program in milliseconds, without a change."""
    steps = 10 * np.exp(random.normal(0, SPREAD, runs))
    steps[random.random(runs) < ODD_SHARE] *= ODD_FACTOR
    return steps


def write(root: Path, programs: int, runs: int) -> dict[str, tuple[str, float]]:
    """The folders; what was planted, by program: the first run after it and its size."""
    random, planted = np.random.default_rng(7), {}
    each = runs // programs
    for program in range(programs):
        steps = series(random, each)
        script = f"train_{program}.py"
        at, change = each, 0.0
        if program % 5 == 0:
            change = CHANGES[program // 5 % len(CHANGES)]
            at = int(random.integers(each // 3, each - 10))
            steps[at:] *= 1 + change
            planted[script] = (f"{script}/run{at:05}", change)
        for run, step_ms in enumerate(steps):
            place = root / script / f"run{run:05}"
            write_run(place, script, program, run, step_ms, "b" * 40 if run >= at else "a" * 40)
    return planted


def write_run(
    folder: Path, script: str, program: int, run: int, step_ms: float, commit: str
) -> None:
    """The documents of one run, as ``pinchpoint.watch`` leaves them."""
    folder.mkdir(parents=True)
    begin = START_NS + (run * 50 + program) * DAY_NS // 1000
    said = {
        "run.json": {
            "schema": "pinchpoint.run/1", "status": "ended", "command": ["python", script],
            "started_unix_ns": begin, "ended_unix_ns": begin + 2 * 3600 * 10**9, "exit_code": 0,
            "devices": ["NVIDIA H100 80GB HBM3"] * 8,
        },
        "metrics.json": {
            "schema": "pinchpoint.run-metrics/1", "exit_code": 0, "duration_s": 7200.0,
            "world_size": 8,
            "steps": {"count": 7000, "run_ms": {"p50": step_ms, "p99": 2 * step_ms}},
            "data_wait": {"of_run_ratio": 0.02},
        },
        "env.json": {"code": {"commit": commit}},
    }  # fmt: skip
    for name, document in said.items():
        (folder / name).write_text(json.dumps(document))


def asked(root: Path, cache: Path, *options: str) -> tuple[str, float, float]:
    """Standard output of a command, its seconds on a core, the most megabytes of one so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pinchpoint", "fleet", str(root), *options],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, took_s, after.ru_maxrss / 1024


def folders(programs: int, runs: int) -> None:
    """Write, ask, and compare with what was planted."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as scratch:
        root, cache = Path(scratch, "runs"), Path(scratch, "cache")
        planted = write(root, programs, runs)
        text, first_s, most_mb = asked(root, cache, "--json")
        again_s = asked(root, cache, "--json")[1]
        query = "SELECT script, median(step_ms) FROM runs GROUP BY ALL ORDER BY ALL"
        sql_s = asked(root, cache, "--sql", query)[1]
    answer = json.loads(text)
    found = {(c["program"], int(c["since"][-5:])) for c in answer["changes"]}
    hit = [p for p, (at, _) in planted.items() if any(_near(p, at, f) for f in found)]
    missed = sorted(set(planted) - set(hit))
    print(
        f"{answer['runs']:,} runs, seconds on a core: {first_s:.1f} the first time, "
        f"{again_s:.1f} again, SQL {sql_s:.1f}; {most_mb:.0f} MB at most\n"
        f"planted changes found: {len(hit)} of {len(planted)}"
        f"{''.join(f'; missed {p} ({planted[p][1]:.0%})' for p in missed)}; "
        f"not planted: {len(found) - len(hit)}"
    )


def _near(program: str, at: str, found: tuple[str, int]) -> bool:
    return found[0] == program and abs(found[1] - int(at[-5:])) <= NEAR


def rates(rounds: int = 1000) -> None:
    """False alarms, and what is seen after how many runs."""
    random = np.random.default_rng(11)
    for runs in (20, 50, 200):
        false = sum(bool(shifts(series(random, runs))) for _ in range(rounds))
        print(f"{runs} runs without a change: {false / rounds:.2%} of programs said to have one")
    for change in CHANGES:
        seen = []
        for since in (3, 5, 10, 20):
            hits = 0
            for _ in range(rounds // 5):
                steps = series(random, 60)
                steps[60 - since :] *= 1 + change
                hits += any(abs(s.at - 60 + since) <= NEAR and s.ratio > 0 for s in shifts(steps))
            seen.append(f"{5 * hits / rounds:.0%} after {since}")
        print(f"{change:+.0%}: seen {', '.join(seen)} runs")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--programs", type=int, default=50)
    options = parser.parse_args()
    folders(options.programs, options.runs)
    rates()


if __name__ == "__main__":
    main()
