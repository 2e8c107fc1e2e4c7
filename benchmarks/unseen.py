"""First findings of recordings of ``benchmarks/programs`` beside what is true of them.

    python benchmarks/unseen.py FOLDER     # with c03.slow.pt.trace.json.gz and so on

A program is recorded by ``torch.profiler`` with stacks and shapes; a file's name begins with its
case and its variant. Whether words name the truth is for a person to judge: the row has both, and
the measured step of the variant and of the fixed one.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pinchpoint as pp

TRUTH = Path(__file__).parent / "programs" / "truth.jsonl"
MOST_FINDINGS = 3


def main() -> int:
    """Print one block a recording; returns the exit code."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    known = {one["case"]: one for one in map(json.loads, TRUTH.read_text().splitlines())}
    for path in sorted(Path(sys.argv[1]).glob("*.json.gz")):
        case, variant = path.name.split(".")[:2]
        print("\n".join(_rows(path, variant, known.get(case, {}))))
    return 0


def _rows(path: Path, variant: str, truth: dict[str, Any]) -> list[str]:
    report = pp.diagnose(path)
    measured = truth.get("step_ms_h200", {})
    cause = truth.get("truth", "unknown") if variant == truth.get("variant_with_cause") else variant
    rows = [f"{path.name}: {cause}", f"    measured {_ms(measured.get(variant))}"]
    if cause != variant:
        rows[1] += f", fixed {_ms(measured.get('fixed'))}"
    for finding in report.findings[:MOST_FINDINGS]:
        said_ms = (
            "" if finding.predicted_step_ns is None else f"{finding.predicted_step_ns / 1e6:.2f}"
        )
        rows.append(f"    {finding.id} [{finding.confidence}] → {said_ms} ms: {finding.summary}")
    return rows if report.findings else [*rows, "    no finding"]


def _ms(windows: list[float] | None) -> str:
    return "not known" if not windows else " and ".join(f"{ms:.2f}" for ms in windows) + " ms"


if __name__ == "__main__":
    sys.exit(main())
