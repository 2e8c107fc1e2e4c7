"""Cycles by instruction of one kernel, as rocprofv3's thread trace sums them.

``rocprofv3 --att`` writes a table a dispatch: of each instruction how often the traced waves came
to it, their cycles with it (``Latency``), those of them in which it could not be issued or was
waited for (``Stall``), and those between the instruction before it and it (``Idle``). Cycles are
those of waves that run beside each other, so no time of the kernel follows from their sum.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.importers.program_logs._figures import said_table
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "rocprofv3 instructions"
FILES = ("stats_*.csv", "rocprofv3 --att")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "waves one by one (ui_output folders, .att)"

_NUMBERS = ("Hitcount", "Latency", "Stall", "Idle")
_SIGN = regex(rb'\s*"?CodeObj"?,"?Vaddr"?,"?Instruction"?,"?Hitcount"?,"?Latency"?,')
_NUMBER = regex(r"[0-9]{1,18}$")  # counters have 64 bits
_OPCODE = regex(r"(s_waitcnt|s_barrier|[a-z]+_[a-z]+|[a-z]\w*)")
_MOST_ROWS = 200_000  # instructions: the largest kernels have some ten thousand
_MOST_SHOWN = 200  # more nobody reads
_LONGEST_NAME = 200  # characters: of a kernel that is given as C++ writes it for linkers


class _Row(NamedTuple):
    instruction: str
    hits: int
    latency: int
    stall: int
    idle: int
    source: str


def claims(path: Path, head: bytes) -> bool:
    """The names of its columns."""
    return _SIGN.match(head) is not None


def read(path: Path) -> Trace:
    """Instructions, most cycles first; UnreadableFile where no wave came to any."""
    kernel, rows = "", list[_Row]()
    left_out = 0
    for row in _rows(path):
        if row is None:
            left_out += 1
        elif row.instruction.startswith(";"):
            kernel = kernel or row.instruction.lstrip("; ")[:_LONGEST_NAME]
        elif len(rows) < _MOST_ROWS:
            rows.append(row)
    whole = sum(row.latency for row in rows)
    if not whole:
        raise UnreadableFile(
            f"{path}: instructions of a kernel that no traced wave came to",
            hint="trace a unit that it runs on: rocprofv3 --att --att-target-cu 1 -- PROGRAM",
        )
    names = Names()
    facts = [Fact("rows-cut", left_out)] if left_out else []
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="rocprofv3"),
        summaries=_tables(kernel, rows, whole),
        health=health_table(facts, names),
        names=names.freeze(),
    )


def _rows(path: Path) -> Iterator[_Row | None]:
    """None for a row that is cut off or damaged."""
    columns: list[str] = []
    for line in lines(path):
        row = _cut(line)  # by itself: a quote that nothing closes takes no other row along
        if not columns:
            columns = row
            continue
        cells = dict(zip(columns, row, strict=False))
        numbers = [cells.get(name, "") for name in _NUMBERS]
        if all(_NUMBER.match(number) for number in numbers):
            hits, latency, stall, idle = map(int, numbers)
            said = cells.get("Instruction", "").strip()
            yield _Row(said, hits, latency, stall, idle, cells.get("Source", "").strip())
        elif line.strip():
            yield None


def _cut(line: str) -> list[str]:
    try:
        return next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return []


def _tables(kernel: str, rows: list[_Row], whole: int) -> tuple[SummaryTable, ...]:
    heaviest = sorted(rows, key=lambda row: -row.latency)[:_MOST_SHOWN]
    columns = ("instruction", "%", "cycles", "stalled", "times", "source")
    shown = tuple(
        (row.instruction, _percent(row.latency, whole), f"{row.latency:,}", f"{row.stall:,}",
         f"{row.hits:,}", row.source)
        for row in heaviest if row.latency
    )  # fmt: skip
    by_kind: Counter[str] = Counter()
    for row in rows:
        found = _OPCODE.match(row.instruction)
        by_kind[found[1] if found else "others"] += row.latency
    kinds = tuple(
        (name, _percent(cycles, whole), f"{cycles:,}")
        for name, cycles in by_kind.most_common(_MOST_SHOWN) if cycles
    )  # fmt: skip
    stalled, idle = sum(row.stall for row in rows), sum(row.idle for row in rows)
    said = [
        ("cycles of the traced waves", f"{whole:,}"),
        ("stalled of them", f"{_percent(stalled, whole)} %"),
        ("cycles between instructions", f"{idle:,}"),
        ("instructions", f"{len(rows):,}, {sum(row.hits > 0 for row in rows):,} of them reached"),
    ]
    return (
        *said_table("of one dispatch", said),
        SummaryTable(("kind", "%", "cycles"), kinds, "cycles by kind of instruction"),
        SummaryTable(columns, shown, "cycles by instruction"),
        *said_table("traced", [("kernel", kernel)] if kernel else []),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}"


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]
