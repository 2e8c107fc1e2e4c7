"""Cycles by instruction of one kernel, as rocprofv3's thread trace sums them.

``rocprofv3 --att`` writes a table a dispatch: of each instruction how often the traced waves came
to it, their cycles with it (``Latency``), those of them in which it could not be issued or was
waited for (``Stall``), and those between the instruction before it and it (``Idle``). Cycles are
those of waves that run beside each other, so no time of the kernel follows from their sum.
"""

import csv
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
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
_OTHERS = "others"
_OPCODE = regex(r"(s_waitcnt|s_barrier|[a-z]+_[a-z]+|[a-z]\w*)")
_MOST_ROWS = 200_000  # instructions: the largest kernels have some ten thousand
_MOST_KINDS = 5_000  # an instruction set has some thousand opcodes; two words of each are told
_MOST_SHOWN = 200  # more nobody reads
_LONGEST_NAME = 200  # characters: of a kernel that is given as C++ writes it for linkers


class _Row(NamedTuple):
    instruction: str
    hits: int
    latency: int
    stall: int
    idle: int
    source: str


@dataclass
class _Sums:
    """What is told of all rows: memory does not grow with them."""

    kernel: str = ""
    count: int = 0
    reached: int = 0  # instructions that a wave came to
    latency: int = 0
    stall: int = 0
    idle: int = 0
    left_out: int = 0  # rows that are cut off or damaged
    by_kind: Counter[str] = field(default_factory=Counter)  # cycles

    def instructions(self, path: Path) -> Iterator[_Row]:
        """The instructions of the file, each counted."""
        for row in _rows(path):
            if row is None:
                self.left_out += 1
            elif row.instruction.startswith(";"):
                self.kernel = self.kernel or row.instruction.lstrip("; ")[:_LONGEST_NAME]
            elif self.count < _MOST_ROWS:
                self._count(row)
                yield row

    def _count(self, row: _Row) -> None:
        self.count += 1
        self.reached += row.hits > 0
        self.latency += row.latency
        self.stall += row.stall
        self.idle += row.idle
        found = _OPCODE.match(row.instruction)
        kind = found[1] if found else _OTHERS
        known = kind in self.by_kind or len(self.by_kind) < _MOST_KINDS
        self.by_kind[kind if known else _OTHERS] += row.latency


def claims(path: Path, head: bytes) -> bool:
    """The names of its columns."""
    return _SIGN.match(head) is not None


def read(path: Path) -> Trace:
    """Instructions, most cycles first; UnreadableFile where no wave came to any."""
    sums = _Sums()
    heaviest = heapq.nlargest(_MOST_SHOWN, sums.instructions(path), key=_cycles)
    if not sums.latency:
        raise UnreadableFile(
            f"{path}: instructions of a kernel that no traced wave came to",
            hint="trace a unit that it runs on: rocprofv3 --att --att-target-cu 1 -- PROGRAM",
        )
    names = Names()
    facts = [Fact("rows-cut", sums.left_out)] if sums.left_out else []
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="rocprofv3"),
        summaries=_tables(sums, heaviest),
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


def _cycles(row: _Row) -> int:
    return row.latency


def _tables(sums: _Sums, heaviest: list[_Row]) -> tuple[SummaryTable, ...]:
    whole = sums.latency
    columns = ("instruction", "%", "cycles", "stalled", "times", "source")
    shown = tuple(
        (row.instruction, _percent(row.latency, whole), f"{row.latency:,}", f"{row.stall:,}",
         f"{row.hits:,}", row.source)
        for row in heaviest if row.latency
    )  # fmt: skip
    kinds = tuple(
        (name, _percent(cycles, whole), f"{cycles:,}")
        for name, cycles in sums.by_kind.most_common(_MOST_SHOWN) if cycles
    )  # fmt: skip
    said = [
        ("cycles of the traced waves", f"{whole:,}"),
        ("stalled of them", f"{_percent(sums.stall, whole)} %"),
        ("cycles between instructions", f"{sums.idle:,}"),
        ("instructions", f"{sums.count:,}, {sums.reached:,} of them reached"),
    ]
    return (
        *said_table("of one dispatch", said),
        SummaryTable(("kind", "%", "cycles"), kinds, "cycles by kind of instruction"),
        SummaryTable(columns, shown, "cycles by instruction"),
        *said_table("traced", [("kernel", sums.kernel)] if sums.kernel else []),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}"


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]
