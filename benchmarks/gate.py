"""Does the gate keep its promise here? Commits that change nothing, and ones that are 10 % slower.

    python benchmarks/gate.py --unchanged 60 --slower 30 --json gate.json --keep pairs.jsonl
    python benchmarks/gate.py --resample pairs.jsonl --checks 5000

A repository with a small program gets one commit after the other: most change a comment, some
make a step 10 % longer. Each is checked as CI would, by ``pinchpoint bench check`` against a
baseline of the first commit, which is the base by itself. Unchanged ones must not fail (exit 1),
slower ones must.
``cpu`` computes, ``mixed`` computes and waits, half each, ``torch`` trains with as many threads as
there are CPUs. The load is told with the result.

Real checks take minutes, and sixty without an alarm only say "below 5 %". ``--resample`` makes many
of the pairs that real checks measured (``--keep``): each begins with a recorded check, whose pairs
it takes in their order, as neighbours disturb several in a row, and goes on with others, drawn by
chance, until the rule decides. ``--checks 0`` judges each recorded one once.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pinchpoint.bench.ab import AbPlan, decided
from pinchpoint.bench.ab.decision import LONG
from pinchpoint.bench.ab.pairs import Pair
from pinchpoint.bench.folders import write_atomic
from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import Arm, RunOptions
from pinchpoint.cli.programs.bench.ab import seconds
from pinchpoint.errors import MeasurementInvalid

# Of each: what comes first, how many steps, and a step.
PROGRAMS = {
    "cpu": ("", 80, "sum(range(int(100_000 * WORK)))"),
    "mixed": ("", 80, "sum(range(int(50_000 * WORK))); time.sleep(0.001 * WORK)"),
    "torch": (
        """
import torch
from torch.nn import AdaptiveAvgPool1d, BatchNorm1d, Conv1d, Flatten, Linear, ReLU, Sequential
def layers(of):
    return Conv1d(of, 64, 5, padding=2), BatchNorm1d(64), ReLU()
more = [layer for _ in range(3) for layer in layers(64)]
model = Sequential(*layers(9), *more, AdaptiveAvgPool1d(8), Flatten(), Linear(512, 6))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, y, loss = torch.randn(16, 9, 64), torch.arange(16) % 6, torch.nn.functional.cross_entropy
""",
        40,
        "for _ in range(round(10 * WORK)): loss(model(x), y).backward(); optimizer.step()",
    ),
}
TEXT = """import time
import pinchpoint
WORK = {work}
{begin}
for _ in range({steps}):
    {body}
    pinchpoint.step()
# {comment}
"""
SLOWER = 1.10
OUTCOMES = {0: "pass", 1: "regressed", 4: "inconclusive"}


def kinds(unchanged: int, slower: int) -> Iterator[str]:
    """Slower commits spread evenly among those that change nothing."""
    total = unchanged + slower
    for i in range(total):
        yield "slower" if (i + 1) * slower // total > i * slower // total else "unchanged"


class Repository:
    """One program in a repository of its own, and the gate that watches it."""

    def __init__(self, folder: Path, program: str, options: list[str]) -> None:
        self.folder, self.program, self.options = folder, PROGRAMS[program], options
        self.git("init", "-q")
        self.commit(1.0, "the beginning")

    def git(self, *arguments: str) -> None:
        """One command of git, by somebody."""
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=self.folder, check=True, capture_output=True)

    def commit(self, work: float, comment: str) -> None:
        """The program with this much work."""
        begin, steps, body = self.program
        text = TEXT.format(work=work, begin=begin, steps=steps, body=body, comment=comment)
        (self.folder / "program.py").write_text(text)
        self.git("add", "program.py")
        self.git("commit", "-q", "-m", comment)

    def check(self, *options: str) -> tuple[int, str, list[dict[str, object]]]:
        """The exit code of the gate, why, and the runs of its pairs."""
        gate = [sys.executable, "-m", "pinchpoint", "bench", "check", "--baseline", "../base.json"]
        command = [*gate, *options, *self.options, "--json", "--", sys.executable, "program.py"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if not done.stdout:
            return done.returncode, done.stderr.strip()[-200:], []
        said = json.loads(done.stdout)
        pairs = said.get("confirmation") or {}  # the first session has neither pairs nor a verdict
        return done.returncode, said.get("why", ""), pairs.get("runs", [])


def _environment() -> dict[str, str]:
    """Pinchpoint as it is imported here."""
    path = [p for p in sys.path if p]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path)}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All checks, until the time is up; what is known so far is written after each."""
    begin, rows = time.time(), []
    gate = ["--no-profile-on-fail", "--budget", options.budget]
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "repository"
        folder.mkdir()
        repository = Repository(folder, options.program, gate)
        for _ in range(options.sessions):
            repository.check("--update", "--fail", "step_time_ms:5%")
        for i, kind in enumerate(kinds(options.unchanged, options.slower)):
            if options.seconds and time.time() - begin > options.seconds:
                print("time is up", flush=True)
                break
            repository.commit(SLOWER if kind == "slower" else 1.0, f"{kind} {i}")
            started, load = time.time(), os.getloadavg()[0]
            code, why, runs = repository.check()
            if options.keep:
                with options.keep.open("a") as kept:
                    kept.write(json.dumps({"kind": kind, "load": load, "runs": runs}) + "\n")
            rows.append({"kind": kind, "code": code, "load": load, "s": time.time() - started})
            took = f"{time.time() - begin:.0f} s, load {load:.1f}"
            print(f"{took}: {kind}: {OUTCOMES.get(code, code)} ({why})", flush=True)
            if options.json:
                write_atomic(options.json, json.dumps(summary(rows), indent=1).encode() + b"\n")
    return summary(rows)


def resampled(options: argparse.Namespace) -> dict[str, object]:
    """How often the rule of the gate says what, by kind, of checks made of recorded pairs."""
    found: dict[str, object] = {}
    rows = [json.loads(line) for line in options.resample.read_text().splitlines()]
    plan = AbPlan(
        Arm("A", ()),
        Arm("B", ()),
        RunOptions("program"),
        thresholds={"step_time_ms": 0.05},
        most_pairs=LONG,
        budget_s=seconds(options.budget),
    )
    for kind in ("unchanged", "slower"):
        pool = [_pairs(row["runs"]) for row in rows if row["kind"] == kind and row["runs"]]
        if not pool:
            continue
        chance = random.Random(1)
        begins = itertools.islice(itertools.cycle(pool), options.checks or len(pool))
        verdicts = Counter(_drawn(plan, first, pool, chance) for first in begins)
        measured = sum(map(len, pool))
        found[kind] = {"recorded_checks": len(pool), "recorded_pairs": measured} | verdicts
    return found


def _pairs(runs: list[dict[str, object]]) -> list[Pair]:
    decoded = [msgspec.convert(run, RunMetrics) for run in runs]
    arms = {(run.pair_index, run.arm): run for run in decoded}
    return [(arms[i, "A"], arms[i, "B"]) for i in range(len(decoded) // 2)]


def _drawn(plan: AbPlan, first: list[Pair], pool: list[list[Pair]], chance: random.Random) -> str:
    """The verdict on one check: whole recorded ones in a row, as far as it needs them."""
    pairs = list(first)

    def pair(i: int) -> Pair:
        while len(pairs) <= i:
            pairs.extend(chance.choice(pool))
        return pairs[i]

    try:
        return decided(plan, pair, lambda text: None).verdict
    except MeasurementInvalid:
        return "invalid"


def summary(rows: list[dict[str, object]]) -> dict[str, object]:
    """How often each outcome, by kind, and how busy it was."""
    found: dict[str, object] = {}
    for kind in ("unchanged", "slower"):
        codes = Counter(OUTCOMES.get(r["code"], str(r["code"])) for r in rows if r["kind"] == kind)
        found[kind] = dict(codes)
    loads = sorted(float(str(r["load"])) for r in rows)
    seconds = sorted(float(str(r["s"])) for r in rows)
    if rows:
        found["load"] = [loads[0], loads[len(loads) // 2], loads[-1]]
        found["seconds_a_check"] = seconds[len(seconds) // 2]
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", choices=PROGRAMS, default="cpu")
    parser.add_argument("--unchanged", type=int, default=60)
    parser.add_argument("--slower", type=int, default=30)
    parser.add_argument("--sessions", type=int, default=1, help="in the baseline")
    parser.add_argument("--budget", default="2m", help="of pairs in each check")
    parser.add_argument("--seconds", type=float, help="begin no check after that long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="add the runs of each check here, JSON lines")
    parser.add_argument("--resample", type=Path, help="what --keep wrote: checks of its pairs")
    parser.add_argument("--checks", type=int, default=5000, help="how many, with --resample")
    options = parser.parse_args()
    print(json.dumps(resampled(options) if options.resample else measure(options)))


if __name__ == "__main__":
    main()
