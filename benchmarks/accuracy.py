"""How often is the diagnosis right? Measured over labelled recordings.

    python benchmarks/accuracy.py CORPUS [--document docs/accuracy.md] [--json FILE] [--rows]

CORPUS holds ``labelled/truth.jsonl``: for each recording the planted cause and the step times
without the profiler, before and after the fix; and ``h200/truth.jsonl``, the same for programs that
nobody tuned for, on a device of another kind. What was fitted to recordings is also tried on
programs that had no part in the fit. Nothing of these files reaches the product.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accuracy_figures import families, figures, gains, summary
from accuracy_measured import Measured, measure
from accuracy_page import HELD_OUT, page
from accuracy_rows import Row
from held_out import HeldOut, Predicted


def main() -> int:
    """Print the rows that fail and the summary; optionally write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--document", type=Path)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    measured = measure(options.corpus, options.only)
    parts = (*measured.sets, ("jobs, all ranks together", measured.jobs))
    for title, part in parts:
        print(f"\n{title}: {len(part)}")
        for row in part:
            if options.rows or row.failed or part is not measured.labelled:
                _print(row)
        for gain in gains(part):
            print(_gain_line(gain))
        for name, value in summary(part):
            print(f"{name:52s} {value}")
    if options.json:
        options.json.write_text(json.dumps(as_json(measured), indent=1), "utf-8")
    document = page(measured)
    print(document[document.index(HELD_OUT) :])
    if options.document:
        options.document.write_text(document, "utf-8")
    return 0


def as_json(measured: Measured) -> dict[str, Any]:
    """Every figure of the document, for machines."""
    return {
        "sets": [
            {
                "name": name,
                "recordings": len(rows),
                "figures": asdict(figures(rows)),
                "families": [asdict(family) for family in families(rows)],
            }
            for name, rows in measured.sets
        ],
        "jobs": asdict(figures(measured.jobs)),
        "held_out": {
            "unprofiled_ranges": _ranges_as_json(measured.unprofiled),
            "gain_ranges": _ranges_as_json(measured.gains),
            "recording_cost": asdict(measured.costs) if measured.costs else None,
        },
    }


def _ranges_as_json(found: HeldOut) -> dict[str, Any]:
    return {
        "with_all": asdict(found.with_all) if found.with_all else None,
        "said": [
            {"family": p.family, "holds": p.holds, "width_ratio": p.width} for p in found.said
        ],
        "chosen": [asdict(doubts) | {"families": n} for doubts, n in found.chosen.items()],
    }


def _gain_line(gain: Predicted) -> str:
    low, high = (end / 1e6 for end in gain.range_ns)
    predicted, true = gain.predicted_ns / 1e6, gain.true_ns / 1e6
    return (
        f"gain {gain.name:32s} predicted {predicted:8.2f} ({low:.2f} to {high:.2f})"
        f" true {true:8.2f} {gain.error:7.1%} {'' if gain.holds else 'outside'}"
    )


def _print(row: Row) -> None:
    said = ", ".join(
        f"{i} {p / 1e6:.1f}" if p else i
        for i, p in zip(row.found[:4], row.predicted_ns, strict=False)
    )
    corrected = f"{row.corrected_ns / 1e6:.2f}" if row.corrected_ns else "-"
    print(
        f"{row.failed:5s} {row.name:40s} truth {' + '.join(row.truth):24s} step {corrected:>8s}"
        f" ({row.unprofiled_ns / 1e6:.2f}) said: {said} {' '.join(row.crashed)[:300]}"
    )


if __name__ == "__main__":
    sys.exit(main())
