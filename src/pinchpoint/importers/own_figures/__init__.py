"""Figures that programs and benchmarks write in a shape of their own: JSON, JSON lines, CSV.

Records become a table under the names that the file gives, with the units that these names, their
neighbours or the manual of a known tool say; a unit that nothing says stays unknown. No record
says when an operation ran, so no question about a timeline can be asked of it.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import NotThisFormat, UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.units import Unit, unit_of
from pinchpoint.importers.health import health_table
from pinchpoint.importers.own_figures.documents import Found, keys_of
from pinchpoint.importers.own_figures.lists import are_lists, lists_table
from pinchpoint.importers.own_figures.records import Records, flat
from pinchpoint.importers.own_figures.rows import layout_of, read_rows
from pinchpoint.importers.own_figures.scrapes import SIGN, scrape_tables
from pinchpoint.importers.own_figures.shapes import LOCUST, LOCUST_TIMES, shape_of
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "table of figures"
FILES = (
    ".json .jsonl .csv .tsv .prom",
    "hyperfine, pytest-benchmark, Google Benchmark, k6, Locust, Prometheus, trainer_state.json,"
    " Lightning's metrics.csv, and any program that writes records with named figures",
)
READS: tuple[str, ...] = ("sums",)
NOT_READ = "when anything ran; texts"

_OTHERS = (b'"traceEvents"', b'"ph"', b"DCGM_FI_")  # of traces, of counters that have a reader
_HEAD_BYTES = 1 << 16  # documents of tools begin with the machine, which may be long
_SPACE = regex(r"\s*")
_RECORD = "record one: pinchpoint run python train.py; pinchpoint formats lists what is read"


def claims(path: Path, head: bytes) -> bool:
    """Words of a tool that is known; the rest is read where no other reader claims it."""
    if any(sign in head for sign in _OTHERS):
        return False
    if head.lstrip()[:1] == b"{":
        return shape_of(head) is not None
    return head.startswith(LOCUST) or SIGN.search(head[:2000]) is not None


def read(path: Path) -> Trace:
    """The figures; UnreadableFile, with what it is instead, where there are none."""
    with unpacked(path) as plain, plain.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size = plain.stat().st_size
    if SIGN.search(head[:2000]):
        tables = scrape_tables(path)
        if not tables:
            raise UnreadableFile(f"{path}: counters of a server, all of them zero", hint=_RECORD)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[", b'"{')):
        must_fit(path, size, TABLE_TIMES)
        tables = _of_json(path, head)
    else:
        tables = _of_rows(path, head)
    names = Names()
    shape = shape_of(head)
    return Trace(
        source=Source(
            str(path), FORMAT, path.stat().st_size, recorder=shape.tool if shape else None
        ),
        summaries=tables,
        health=health_table([], names),
        names=names.freeze(),
    )


def _of_json(path: Path, head: bytes) -> tuple[SummaryTable, ...]:
    shape = shape_of(head)
    units = shape.units if shape else {}
    found = Found(units)
    raw = _raw_records(path, head)
    by_line = _records_by_line(path, units) if raw is None else None
    document, broken = ([], 0) if raw is not None or by_line else _document(path)
    if by_line is not None:
        records, document, broken = by_line
        found.take(records, "lines")
    elif raw is not None:
        document = list(islice(_decoded(raw), 1))
        found.rows(_decoded(raw))
    elif isinstance(document, _Lines):
        records = Records(units)
        for row in document:
            records.add(dict(flat(row)))
        found.take(records, "lines")
    else:
        found.look(document)
    if not found.measured or not (tables := found.all()):
        keys = ", ".join(keys_of(document))
        what = f"JSON of a program's own, without a figure of what ran (it begins with: {keys})"
        raise UnreadableFile(
            f"{path}: {what if keys else 'JSON without a figure'}, not a recording that"
            " Pinchpoint reads",
            hint=_RECORD,
        )
    note = (SummaryTable(("left out", ""), (("lines that are no JSON", f"{broken:,}"),)),)
    return tables + (note if broken else ())


def _raw_records(path: Path, head: bytes) -> list[msgspec.Raw] | None:
    """Records of a document that is a list of them and nothing else, still as text: as values of
    Python they would take several times its size."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return None
    with unpacked(path) as plain:
        text = plain.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found and all(bytes(memoryview(one)[:1]) == b"{" for one in found) else None


def _decoded(raw: list[msgspec.Raw]) -> Iterator[dict[str, Any]]:
    for one in raw:
        try:
            yield msgspec.json.decode(one, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # a text that is none: what stands beside it is read


def _records_by_line(
    path: Path, units: Mapping[str, Unit]
) -> tuple[Records, list[dict[str, Any]], int] | None:
    """Records of which each stands on its line, the first of them, and how many lines are none;
    None where the first two lines are no records. They are never all held as values of Python."""
    begins = list(islice(_json_lines(path), 2))
    if len(begins) < 2 or None in begins:
        return None
    records, broken = Records(units), 0
    for row in _json_lines(path):
        if row is None:
            broken += 1
        else:
            records.add(dict(flat(row)))
    return (
        (records, [row for row in begins if row][:1], broken) if broken <= records.count else None
    )


class _Lines(list[dict[str, Any]]):
    """Records of which each stood on its line."""


def _document(path: Path) -> tuple[Any, int]:
    """The document, or its lines; and how many of those are none."""
    with unpacked(path) as plain:
        text = plain.read_bytes().lstrip(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(text)
        return (msgspec.json.decode(found) if isinstance(found, str) else found), 0
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(text.decode("utf-8", "replace"), parse_constant=lambda _: None), 0
    except (ValueError, RecursionError) as error:
        problem = error
    del text
    rows, broken = _Lines(), 0
    for row in _json_lines(path):
        if row is None:
            broken += 1
        else:
            rows.append(row)
    if not rows or broken > len(rows):
        several = _one_after_the_other(path)
        if len(several) > 1:
            return several, 0
        raise NotThisFormat(
            f"{path}: JSON that is cut off or broken ({problem})",
            hint="copy it again, or write it again; a record a line can be read as far as it goes",
        )
    return rows, broken


def _one_after_the_other(path: Path) -> list[Any]:
    """Documents that were appended to one file, as far as they go."""
    with unpacked(path) as plain:
        text = plain.read_text("utf-8-sig", "replace")
    decoder, at = json.JSONDecoder(parse_constant=lambda _: None), 0
    found: list[Any] = []
    while True:
        if blank := _SPACE.match(text, at):
            at = blank.end()
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found
        found.append(document)


def _json_lines(path: Path) -> Iterator[dict[str, Any] | None]:
    for line in lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            row = None
        yield row if isinstance(row, dict) else None


def _of_rows(path: Path, head: bytes) -> tuple[SummaryTable, ...]:
    if are_lists(path):
        if tables := lists_table(path):
            return tables
        raise UnreadableFile(
            f"{path}: lists of numbers, in each of which all are the same", hint=_RECORD
        )
    layout = layout_of(path)
    if layout is None:
        raise UnreadableFile(
            f"{path}: no table, not a recording that Pinchpoint reads", hint=_RECORD
        )
    records = Records(_units_of_rows(layout.names, head))
    others, times = read_rows(path, layout, records)
    title = "the table" if layout.said else "a table whose columns have no names"
    tables = records.tables(title)
    if not tables:
        raise UnreadableFile(
            f"{path}: a table without a column of numbers that differ, not a recording that"
            " Pinchpoint reads",
            hint=_RECORD,
        )
    said = [
        *records.in_all(),
        *times,
        *([("lines that are no row", f"{others:,}")] if others else []),
    ]
    return tables + ((SummaryTable(("of the table", "value"), tuple(said)),) if said else ())


def _units_of_rows(names: tuple[str, ...], head: bytes) -> dict[str, Unit]:
    if not head.startswith(LOCUST):
        return {}
    return {name: unit_of("ms") for name in names if LOCUST_TIMES.fullmatch(name)}


def is_table(path: Path) -> bool:
    """Whether a text is rows below names or lists of numbers, so that it is read here."""
    return are_lists(path) or layout_of(path) is not None


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "is_table", "read"]
