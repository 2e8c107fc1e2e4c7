"""NVTX ranges: annotations of people and frameworks, PyTorch's ``emit_nvtx`` operators, steps."""

import re
from dataclasses import dataclass
from itertools import compress

import numpy as np

from pinchpoint.importers.nsys.database import Database, Strings
from pinchpoint.trace import HostKind, Names
from pinchpoint.trace.arrays import Codes, Ints, Mask, NameIds

MARK, PUSH_POP, START_END, DOMAIN = 34, 59, 60, 75  # eventType of NVTX_EVENTS
NO_NAME = -1  # no position of a name
NO_TIME = -(2**62)  # below all times; differences fit into 64 bits

# PyTorch's emit_nvtx writes "aten::mm, seq = 12, op_id = 9, sizes = [[4, 4], [4, 4]], ..."
_OPERATOR = re.compile(
    r"^(?P<name>.*?)(?:, seq = (?P<seq>\d+))?(?:, op_id = \d+)?"
    r"(?:, sizes = (?P<sizes>[\[\]\d, ]*?))?(?:, input_op_ids = .*)?$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Ranges:
    """NVTX ranges and marks in the order of the file; times as in the file."""

    start: Ints
    end: Ints
    name: NameIds
    kind: Codes
    tid: Ints
    stacked: Mask  # push/pop ranges nest on their thread; start/end ranges need not
    sequence: Ints  # NO_NAME where there is none
    shapes: NameIds  # NO_NAME where there are none
    row: Ints  # position in NVTX_EVENTS
    unclosed: int

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class _Meaning:
    name: int
    kind: HostKind
    sequence: int = NO_NAME
    shapes: int = NO_NAME


def read_ranges(database: Database, strings: Strings, names: Names, last_ns: int) -> Ranges | None:
    """All ranges and marks; None if NVTX was not recorded. Open ranges end at ``last_ns``."""
    found = database.integers("NVTX_EVENTS", ("start", "end", "eventType", "globalTid"))
    if not {"start", "eventType"} <= set(found):
        return None
    kind = found["eventType"].filled(0)
    wanted = np.isin(kind, (MARK, PUSH_POP, START_END)) & ~found["start"].missing
    table, which = _meanings(database, strings, names, wanted)
    begin, marks = found["start"].values[wanted], kind[wanted] == MARK
    end = found["end"].filled(NO_TIME)[wanted] if "end" in found else np.full(len(begin), NO_TIME)
    unclosed = (end == NO_TIME) & ~marks
    end = np.where(marks, begin, np.where(unclosed, last_ns, end))
    tid = found["globalTid"].filled(0)[wanted] if "globalTid" in found else np.zeros_like(begin)
    return Ranges(
        begin,
        np.maximum(end, begin),
        np.array([m.name for m in table], np.int32)[which],
        np.array([m.kind for m in table], np.uint8)[which],
        tid,
        kind[wanted] == PUSH_POP,
        np.array([m.sequence for m in table], np.int64)[which],
        np.array([m.shapes for m in table], np.int32)[which],
        np.flatnonzero(wanted),
        int(unclosed.sum()),
    )


def _meanings(
    database: Database, strings: Strings, names: Names, wanted: Mask
) -> tuple[list[_Meaning], Ints]:
    """Each distinct text understood once, and which one each wanted row has."""
    columns = [c for c in ("text", "textId") if database.has("NVTX_EVENTS", c)]
    known: dict[object, int] = {None: 0}
    table = [_Meaning(names.id_of("(unnamed)"), HostKind.ANNOTATION)]
    which = np.zeros(int(wanted.sum()), np.int64)
    rows = compress(database.rows("NVTX_EVENTS", columns), wanted.tolist())
    for place, row in enumerate(rows):
        key = next((value for value in row if value is not None), None)
        position = known.get(key)
        if position is None:
            position = known[key] = len(table)
            table.append(_understand(strings.get(key) if isinstance(key, int) else key, names))
        which[place] = position
    return table, which


def _understand(text: object, names: Names) -> _Meaning:
    if not isinstance(text, str) or not text:
        return _Meaning(names.id_of("(unnamed)"), HostKind.ANNOTATION)
    if ", op_id = " not in text and ", seq = " not in text and ", sizes = " not in text:
        kind = HostKind.OPERATOR if text.startswith("aten::") else HostKind.ANNOTATION
        return _Meaning(names.id_of(text), kind)
    match = _OPERATOR.match(text)
    if match is None:
        return _Meaning(names.id_of(text), HostKind.ANNOTATION)
    sizes = match["sizes"]
    return _Meaning(
        names.id_of(match["name"]),
        HostKind.OPERATOR,
        int(match["seq"]) if match["seq"] and len(match["seq"]) < 18 else NO_NAME,
        names.id_of(sizes.replace(" ", "")) if sizes else NO_NAME,
    )


# The words by which loops call their rounds, the most telling first.
_STEP_WORDS = (
    re.compile(r"^ProfilerStep\s*#?\s*(\d+)$"),
    re.compile(r"^(?:train(?:ing)?|global|optim(?:izer)?|eval|inference|decode)?[\s_:-]*step[\s_:#=-]*(\d*)$",
               re.IGNORECASE),
    re.compile(r"^(?:train(?:ing)?)?[\s_:-]*iter(?:ation)?[\s_:#=-]*(\d*)$", re.IGNORECASE),
    re.compile(r"^(?:train(?:ing)?|mini)?[\s_:-]*batch[\s_:#=-]*(\d*)$", re.IGNORECASE),
)  # fmt: skip
_LEAST_MARKERS = 2  # one range says nothing about a repetition


@dataclass(frozen=True)
class StepMarkers:
    """Rows of ``Ranges`` that mark steps, and the number in each name (-1: none)."""

    rows: Ints
    numbers: Ints


def find_steps(ranges: Ranges, names: Names) -> StepMarkers | None:
    """The ranges that mark steps: the most telling word that marks at least two, or None.

    "optimizer step" alone is a part of a step, and is only taken where nothing better is there.
    """
    distinct = np.unique(ranges.name)
    for pattern in _STEP_WORDS:
        numbers = {}
        for name in distinct.tolist():
            if (match := pattern.match(names[name].strip())) is not None:
                numbers[name] = int(match[1]) if match[1] and len(match[1]) < 18 else -1
        rows = np.flatnonzero(np.isin(ranges.name, list(numbers)) & (ranges.end > ranges.start))
        if len(rows) >= _LEAST_MARKERS:
            return StepMarkers(rows, np.array([numbers[n] for n in ranges.name[rows].tolist()]))
    return None
