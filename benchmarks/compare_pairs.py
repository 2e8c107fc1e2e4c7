"""What ``pinchpoint compare`` names as the cause between fixed and slow labelled recordings.

    python benchmarks/compare_pairs.py CORPUS

Reads ``labelled/truth.jsonl`` of the corpus and compares every case of which both variants are
there (of ranks, rank 0). Prints a table: planted cause, the change of the step, the first cause
and the largest change, and how often the first cause is the planted one. A contrast counts if the
planted cause is among those that it says may lie behind it; the last line counts these apart.
"""

import json
import sys
from pathlib import Path

from pinchpoint.compare.profiles import CauseOfChange, ProfileComparison
from pinchpoint.diagnosis.difference import explained
from pinchpoint.importers import load


def main(corpus: Path) -> None:
    """Print the table."""
    folder = corpus / "labelled"
    cases = _cases(folder / "truth.jsonl")
    print("| case | planted | step, ms | sure | first cause | ms | largest change | ms |")
    print("|---|---|---:|---|---|---:|---|---:|")
    named = contrasted = pairs = 0
    for name, sides in cases.items():
        if not {"slow", "fixed"} <= set(sides):
            continue
        fixed, slow = (load(folder / sides[v][0]) for v in ("fixed", "slow"))
        found = explained(fixed, slow)
        planted = set(sides["slow"][1].split(" + "))
        first = next(iter(found.causes), None)
        pairs += 1
        named += first is not None and first.id in planted
        contrasted += first is not None and not planted.isdisjoint(first.possible)
        print(f"| {name} | {sides['slow'][1]} | {_row(found, first)} |", flush=True)
    print(f"\n{named + contrasted} of {pairs} pairs, {contrasted} of them by a contrast")


def _cases(path: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Case: variant: (recording, planted cause)."""
    cases: dict[str, dict[str, tuple[str, str]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["rank"] == 0 and row["trace"]:
            sides = cases.setdefault(row["case"], {})
            sides[row["variant"]] = (row["trace"], row["truth"])
    return cases


def _row(found: ProfileComparison, cause: CauseOfChange | None) -> str:
    sure = {True: "yes", False: "no", None: "-"}[found.sure]
    step = "-" if found.change_ns is None else f"{found.change_ns / 1e6:+.2f}"
    why = "- | -" if cause is None else f"{cause.id} | {_ms(cause.change_ns)}"
    if not found.rows:
        return f"{step} | {sure} | {why} | nothing | -"
    first = found.rows[0]
    kernel = next(iter(first.b_kernels or first.a_kernels), "")
    what = " ".join(filter(None, (first.part, first.what, kernel)))[:60].replace("|", "/")
    return f"{step} | {sure} | {why} | {what} | {_ms(first.change_ns)}"


def _ms(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / 1e6:+.2f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
