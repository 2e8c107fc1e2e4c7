"""Runs programs with known causes under ``pinchpoint run`` with default options; prints a table.

    python benchmarks/live.py                                    five small programs on the CPU
    python benchmarks/live.py FOLDER --device cuda --steps 160   a folder of other programs

The small ones name the slow function in ``SLOW``; it counts as found where the verdict or the first
finding names it. A folder has a ``truth.jsonl`` in or beside it, with ``case``, ``variant`` and
``truth``: the id that the first finding should have. Its programs take ``--variant``, ``--device``
and ``--steps``.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pinchpoint as pp

SMALL = Path(__file__).parent / "live_programs"
LONGEST_S = 600.0  # of one program; the machine is somebody's


@dataclass(frozen=True)
class Program:
    """What to run, and what should be found."""

    path: Path
    arguments: tuple[str, ...]
    truth: str
    by_place: bool


@dataclass(frozen=True)
class Result:
    """What was recorded and said."""

    windows: str
    cost: str
    first: str
    three: tuple[str, ...]
    said: str


def small(steps: int) -> list[Program]:
    """The programs that come with this benchmark."""
    found = []
    for path in sorted(SMALL.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SLOW":
                found.append(Program(path, (str(steps),), ast.literal_eval(node.value), True))
    return found


def of_folder(folder: Path, variant: str, device: str, steps: int) -> list[Program]:
    """Programs of a folder whose truth is known."""
    places = (folder / "truth.jsonl", folder.parent / "truth.jsonl")
    truth = next(place for place in places if place.exists())
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    options = ("--variant", variant, "--device", device, "--steps", str(steps))
    known = {row["case"]: row["truth"] for row in rows if row["variant"] == variant}
    return [
        Program(folder / f"{case}.py", options, what, False)
        for case, what in sorted(known.items())
        if (folder / f"{case}.py").exists()
    ]


def run(program: Program, home: Path) -> Result:
    """Record one program as a user would, and read the folder."""
    folder = home / program.path.stem
    command = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder), "--no-diagnose"]
    try:
        subprocess.run(
            [*command, "--no-diff", str(program.path), *program.arguments],
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        report = pp.diagnose(pp.load(folder))
    except (pp.PinchpointError, subprocess.TimeoutExpired) as error:
        return Result("none", "-", "-", (), str(error))
    metrics = json.loads((folder / "metrics.json").read_text())
    cost_ms = (metrics.get("steps") or {}).get("recording_cost_ms")
    ids = tuple(finding.id for finding in report.findings[:3])
    first = report.findings[0] if report.findings else None
    said = report.verdict if first is None else f"{report.verdict} {first.summary} {first.location}"
    share = "-" if cost_ms is None else f"{cost_ms / 10 / metrics['duration_s']:.1f} %"
    return Result(_windows(folder), share, ids[0] if ids else "-", ids, said)


def _windows(folder: Path) -> str:
    notes = (json.loads(p.read_text()) for p in sorted((folder / "processes").glob("rank*.json")))
    return "+".join(r["window"] for note in notes for r in note["recordings"] if r["file"])


def right(program: Program, result: Result) -> str:
    """Whether the cause came first, among the first three, or not at all."""
    if program.by_place:
        return "yes" if program.truth in result.said else "no"
    if program.truth == "healthy":
        return "no" if result.three else "yes"
    if program.truth == result.first:
        return "yes"
    return "in three" if program.truth in result.three else "no"


def main() -> None:
    """Run all, print a row each, then the sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--variant", default="slow")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--only", nargs="*", help="names of programs")
    asked = parser.parse_args()
    programs = small(asked.steps)
    if asked.folder:
        programs = of_folder(asked.folder, asked.variant, asked.device, asked.steps)
    programs = [p for p in programs if not asked.only or p.path.stem in asked.only]
    answers = []
    print("| program | cause | recorded | cost of the run | first finding | right |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="pinchpoint-live-") as home:
        for program in programs:
            result = run(program, Path(home))
            answers.append(right(program, result))
            cells = (program.path.stem, program.truth, result.windows, result.cost, result.first)
            print(f"| {' | '.join(cells)} | {answers[-1]} |", flush=True)
    first, near = answers.count("yes"), answers.count("in three")
    print(f"\nfirst right: {first} of {len(answers)}; in the first three: {first + near}")


if __name__ == "__main__":
    main()
