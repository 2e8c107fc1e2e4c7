"""What ``pinchpoint compare`` calls the largest change between fixed and slow labelled recordings.

    python benchmarks/compare_pairs.py CORPUS

Reads ``labelled/truth.jsonl`` of the corpus and compares every case of which both variants are
there (of ranks, rank 0). Prints a table: planted cause, the change of the step, and the largest
change. Whether that names the planted cause is for the reader; ``tests/compare/test_corpus.py``
pins those that do.
"""

import json
import sys
from pathlib import Path

from pinchpoint.compare import compare_profiles
from pinchpoint.compare.profiles import ProfileComparison
from pinchpoint.importers import load


def main(corpus: Path) -> None:
    """Print the table."""
    folder = corpus / "labelled"
    cases = _cases(folder / "truth.jsonl")
    print("| case | planted | step, ms | largest change | ms | sure |")
    print("|---|---|---:|---|---:|---|")
    compared = [name for name, sides in cases.items() if {"slow", "fixed"} <= set(sides)]
    for name in compared:
        fixed, slow = (folder / cases[name][v][0] for v in ("fixed", "slow"))
        found = compare_profiles(load(fixed), load(slow))
        print(f"| {name} | {cases[name]['slow'][1]} | {_row(found)} |", flush=True)
    print(f"\n{len(compared)} pairs")


def _cases(path: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Case: variant: (recording, planted cause)."""
    cases: dict[str, dict[str, tuple[str, str]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["rank"] == 0 and row["trace"]:
            sides = cases.setdefault(row["case"], {})
            sides[row["variant"]] = (row["trace"], row["truth"])
    return cases


def _row(found: ProfileComparison) -> str:
    if not found.rows:
        return "- | nothing | - | -"
    first = found.rows[0]
    step = "-" if found.change_ns is None else f"{found.change_ns / 1e6:+.2f}"
    kernel = next(iter(first.b_kernels or first.a_kernels), "")
    what = " ".join(filter(None, (first.part, first.what, kernel)))[:60].replace("|", "/")
    sure = {True: "yes", False: "no", None: "-"}[first.sure]
    return f"{step} | {what} | {first.change_ns / 1e6:+.2f} | {sure}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
