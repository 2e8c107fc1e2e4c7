"""Recordings of ``benchmarks/programs`` in a folder, with what is true of the programs.

Run folders are named ``i01-slow`` (or ``l01``), files ``c03.slow.pt.trace.json.gz``. Nothing of the
truth reaches the product.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
_RUN = re.compile(r"([a-z]\d\d)(?:-|\.)(?:slow|planted)(?:\.|$)|^(l\d\d)$")


def slow_programs(folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Case (``i01 live``, or ``c03`` of a file), recording, and its row of the truth."""
    truth = {False: _rows(PROGRAMS / "truth.jsonl"), True: _rows(PROGRAMS / "live/truth.jsonl")}
    for path in sorted(folder.iterdir()):
        match, live = _RUN.search(path.name), path.is_dir()
        if match is None or not (live or path.suffix == ".gz"):
            continue
        case = match[1] or match[2]
        if (told := truth[live].get(case)) is not None:
            yield f"{case} live" if live else case, path, told


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return {row["case"]: row for row in rows}


def measured_ms(told: dict[str, Any]) -> tuple[float | None, float | None]:
    """A step before and after the fix, without a profiler: the lower of two windows."""
    steps = told.get("step_ms_h200") or told.get("measured_ms") or {}
    both = (steps.get(told["variant_with_cause"]), steps.get("fixed"))
    before, after = (min(ms) if isinstance(ms, list) else ms for ms in both)
    return before, after
