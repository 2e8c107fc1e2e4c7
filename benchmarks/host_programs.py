"""Programs of NumPy, pandas and plain Python under ``pinchpoint run``, beside what is true of them.

    python benchmarks/host_programs.py OUT [CASE ...]

Runs each program of ``benchmarks/programs/host`` with default options, in run folders below OUT,
and prints whether the first finding is the cause and names the responsible function, what the
samples cost, and the first words of the answer. Folders that are there are read, not run again.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pinchpoint as pp

HOME = Path(__file__).parent / "programs" / "host"


def main() -> int:
    """Print one row a program; returns the exit code."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    cases = [json.loads(line) for line in (HOME / "truth.jsonl").read_text().splitlines()]
    print("| program | truth | first finding | cause | place | samples cost |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        if not wanted or case["case"] in wanted:
            print(_row(case, _run(case["case"], out)), flush=True)
    return 0


def _run(case: str, out: Path) -> Path:
    folder = out / case
    if not folder.exists():
        command = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder)]
        command.append(str(HOME / f"{case}.py"))
        with (out / f"{case}.txt").open("w") as said:
            subprocess.run(command, stdout=said, stderr=said, check=False)
    return folder


def _row(case: dict[str, Any], folder: Path) -> str:
    report = pp.diagnose(folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    cost = (metrics["samples_cost_ms"] or 0.0) / 1e3 / metrics["duration_s"]
    first = report.findings[0] if report.findings else None
    named = first is not None and first.location is not None and first.location.function
    said = "nothing" if first is None else f"`{first.id}`: {first.summary}"
    cause = "quiet" if first is None else "yes" if first.id in case["ids"] else "no"
    place = "" if case["place"] is None else "yes" if named == case["place"] else f"no: {named}"
    return f"| {case['case']} | {case['truth']} | {said} | {cause} | {place} | {cost:.2%} |"


if __name__ == "__main__":
    sys.exit(main())
