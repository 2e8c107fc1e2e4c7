"""NVTX ranges: annotations of people and frameworks, PyTorch's ``emit_nvtx`` operators, steps."""

import json
import re
import struct
from collections.abc import Iterator
from itertools import compress

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.database import Database
from pinchpoint.importers.nsys.database import Strings
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Names
from pinchpoint.trace.arrays import Codes, Ints, Mask, NameIds
from pinchpoint.trace.engine_steps import engine_step

MARK, PUSH_POP, START_END = 34, 59, 60  # eventType of NVTX_EVENTS
NO_NAME = -1  # no position of a name
NO_TIME = -(2**62)  # below all times; differences fit into 64 bits

# PyTorch's emit_nvtx writes "aten::mm, seq = 12, op_id = 9, sizes = [[4, 4], [4, 4]], ..."
_OPERATOR = regex(
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
    regex(r"^ProfilerStep\s*#?\s*(\d+)$"),
    regex(r"^(?:train(?:ing)?|global|optim(?:izer)?|eval|inference|decode)?[\s_:-]*step[\s_:#=-]*(\d*)$",
               re.IGNORECASE),
    regex(r"^(?:train(?:ing)?)?[\s_:-]*iter(?:ation)?[\s_:#=-]*(\d*)$", re.IGNORECASE),
    regex(r"^(?:train(?:ing)?|mini)?[\s_:-]*batch[\s_:#=-]*(\d*)$", re.IGNORECASE),
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
    rounds = [name for name in distinct.tolist() if engine_step(names[name])]
    rows = np.flatnonzero(np.isin(ranges.name, rounds) & (ranges.end > ranges.start))
    if len(rows) >= _LEAST_MARKERS:
        return StepMarkers(rows, np.full(len(rows), -1))
    for pattern in _STEP_WORDS:
        numbers = {}
        for name in distinct.tolist():
            if (match := pattern.match(names[name].strip())) is not None:
                numbers[name] = int(match[1]) if match[1] and len(match[1]) < 18 else -1
        rows = np.flatnonzero(np.isin(ranges.name, list(numbers)) & (ranges.end > ranges.start))
        if len(rows) >= _LEAST_MARKERS:
            return StepMarkers(rows, np.array([numbers[n] for n in ranges.name[rows].tolist()]))
    return None


# ------------------------------------------------------------------------------------------------
# What NCCL says about its calls in NVTX payloads: communicator, ranks, message sizes.


_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, payload bytes, all bytes


def read_payloads(database: Database, strings: Strings) -> dict[int, str]:
    """Payloads of NVTX ranges as JSON text, by the row of NVTX_EVENTS that carries them.

    Older exports have JSON; newer ones the raw bytes, 32 bytes of header and then fields that
    ``NVTX_PAYLOAD_SCHEMA_ENTRIES`` describes.
    """
    if database.has("NVTX_EVENTS", "binaryData"):
        schemas = _schemas(database)
        blobs = enumerate(database.rows("NVTX_EVENTS", ("binaryData",))) if schemas else ()
        decoded = {
            row: json.dumps(fields, separators=(",", ":"))
            for row, (blob,) in blobs
            if isinstance(blob, bytes) and (fields := _decode(blob, schemas))
        }
        if decoded:
            return decoded
    return {row: text for row, text in _json_texts(database, strings) if text}


def _json_texts(database: Database, strings: Strings) -> Iterator[tuple[int, str]]:
    columns = [c for c in ("jsonText", "jsonTextId") if database.has("NVTX_EVENTS", c)]
    for row, values in enumerate(database.rows("NVTX_EVENTS", columns)):
        value = next((v for v in values if v is not None), None)
        yield row, strings.get(value, "") if isinstance(value, int) else str(value or "")


_FORMATS = {5: "<i", 18: "<Q", 22: "<Q"}  # type codes of nvToolsExtPayload.h that NCCL uses
_FIELDS = {
    "NCCL communicator ID": "communicator",
    "Message size [bytes]": "message_bytes",
    "No. of ranks": "ranks",
    "Rank": "rank",
    "CUDA device": "device",
    "Root": "root",
    "Peer rank": "peer",
}
Schemas = dict[tuple[int, int], list[tuple[str, str, int]]]


def _schemas(database: Database) -> Schemas:
    schemas: Schemas = {}
    rows = database.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("domainId", "schemaId", "type", "name", "offset")
    )
    for domain, schema, code, name, offset in rows:
        if code in _FORMATS and isinstance(offset, int) and 0 <= offset < 4096:
            field = _FIELDS.get(str(name), str(name))
            entry = (field, _FORMATS[code], offset)
            fields = schemas.setdefault((domain, schema), [])
            if entry not in fields:  # the schemas are repeated for every process
                fields.append(entry)
    return schemas


def _decode(blob: bytes, schemas: Schemas) -> dict[str, int]:
    if len(blob) < _HEADER.size:
        return {}
    domain, _, schema, _, _, _ = _HEADER.unpack_from(blob)
    payload = blob[_HEADER.size :]
    return {
        field: struct.unpack_from(form, payload, offset)[0]
        for field, form, offset in schemas.get((domain, schema), ())
        if offset + struct.calcsize(form) <= len(payload)
    }
