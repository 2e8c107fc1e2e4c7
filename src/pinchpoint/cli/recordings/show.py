"""One finding of a recording with all its evidence and places in the trace."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.api import diagnose
from pinchpoint.cli.output import reading, show, show_json
from pinchpoint.cli.page import Redact
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.diagnosis.finding import Finding, RowsItem
from pinchpoint.importers import load
from pinchpoint.json_text import indented
from pinchpoint.report import Report
from pinchpoint.report.assemble.findings import chosen
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.quantity import quantity
from pinchpoint.report.words import report as wording

Switch = Parameter(negative="")
_ROWS_SHOWN = 10  # --json names more


def command(
    file: Path,
    finding: str | None = None,
    /,
    *,
    json: Annotated[bool, Switch] = False,
    redact: Redact = False,
) -> int:
    """Show one finding whole: what was measured, where, the fix, and how to confirm it.

    Without FINDING it lists the findings, a line each.

    Parameters
    ----------
    file
        A recording of any known format, or a run folder.
    finding
        Its id, such as sync-in-loop, or its number in the report.
    json
        One JSON object (without FINDING: a list of them) on standard output and nothing else.
    redact
        For passing it on: no folders, arguments or settings.
    """
    with reading(file) as progress:
        trace = load(file, progress)
    report = shared(clean(diagnose(trace)), [file], redact=redact)
    found = report.findings if finding is None else chosen(report, finding)
    if json:
        show_json(indented(found))
        return 0
    lines = _lines(report, found) if isinstance(found, Finding) else _list(report)
    show("".join(f"{line}\n" for line in lines))
    return 0


def _list(report: Report) -> Iterator[str]:
    """Number, id and gain of each finding."""
    for number, found in enumerate(report.findings, 1):
        yield f"{number}  {found.id}: {wording.gain(report, found)}"
    if report.findings:
        yield f"pinchpoint show {quote(report.source.path)} 1 shows the first whole"
    else:
        yield "no findings"


def _lines(report: Report, found: Finding) -> list[str]:
    place = wording.place(found.location)
    lines = [f"{found.id}: {found.summary}", wording.gain(report, found)]
    lines += [f"at: {place}"] if place else []
    for fact in found.evidence:
        where = "" if fact.at_ns is None else f" (at {fact.at_ns} ns: {fact.name or 'event'})"
        lines.append(f"  {fact.what}: {quantity(fact.value, fact.unit)}{where}")
    lines += [_rows(rows) for rows in found.rows]
    lines += [f"fix: {found.fix}"] if found.fix else []
    lines += [f"  {line}" for line in (found.hint or "").splitlines()]
    lines += [f"confirm: {found.confirm}"] if found.confirm else []
    return [line for line in lines if line]


def _rows(rows: RowsItem) -> str:
    named = ", ".join(map(str, rows.rows[:_ROWS_SHOWN]))
    more = f" and {rows.count - _ROWS_SHOWN:,} more" if rows.count > _ROWS_SHOWN else ""
    return f"  rows of {rows.table}: {named}{more}"
