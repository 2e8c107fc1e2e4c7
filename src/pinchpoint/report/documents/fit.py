"""The document cut to a size, for readers that take only so much: assistants, chat, logs.

What goes first is what can be asked for again: roofline points, the critical path, rows of tables,
then what to record for causes that were not checked, rules that found nothing, causes that were not
checked, places of the whole run, evidence, and parts of the step below one percent. For the least
budgets (a run folder took 5,267 characters without that) what is known of the whole run goes, too,
then parts of the step but the five largest, then all findings but the first three, then but the
first, which keeps its fix and how to confirm it. Verdict and the other parts stay. What was cut
from a table is counted in its ``rows_left_out``, all else in ``left_out``; ``pinchpoint show FILE
FINDING`` gives a finding whole.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from pinchpoint.errors import UsageError
from pinchpoint.json_text import encoded
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report, ResultTable

_ROWS = (20, 5, 1)  # of each table, one after the other until it fits


def fitted(report: Report, most_chars: int) -> str:
    """Compact JSON of at most ``most_chars`` characters; UsageError where that is too few."""
    text = ""
    whole = clean(report)
    for smaller in _ever_smaller(whole):
        cut = msgspec.structs.replace(smaller, left_out=_left_out(whole, smaller))
        text = encoded(cut).decode()
        if len(text) <= most_chars:
            return text
    raise UsageError(
        f"the least that can be said takes {len(text):,} characters",
        hint=f"--max-chars {len(text)}",
    )


def _ever_smaller(report: Report) -> Iterator[Report]:
    yield report
    report = msgspec.structs.replace(report, roofline=None, critical_path=None, queue=None)
    yield report
    for rows in _ROWS:
        tables = {id_: _shortened(table, rows) for id_, table in report.tables.items()}
        report = msgspec.structs.replace(report, tables=tables)
        yield report
    cuts: tuple[Callable[[Report], Report], ...] = (
        *(_no_tables, _short_answers, _no_clear, _fewer_places, _no_reasons, _no_answers),
        *(_no_places, _no_evidence, _no_crumbs, _no_run, _largest_parts, *_fewer_findings()),
    )
    for cut in cuts:
        report = cut(report)
        yield report


_COUNTED = ("not_checked", "not_shown", "clear", "not_applicable", "tables", "ladder", "breakdown")


def _left_out(whole: Report, smaller: Report) -> dict[str, int]:
    """Entries of each field that were cut; of findings, pieces of evidence."""
    found = {name: len(getattr(whole, name)) - len(getattr(smaller, name)) for name in _COUNTED} | {
        "evidence": _pieces_of_evidence(whole) - _pieces_of_evidence(smaller),
        "places_of_the_run": 0 if smaller.run is None else _places(whole) - _places(smaller),
        "run": int(whole.run is not None and smaller.run is None),
        "findings": len(whole.findings) - len(smaller.findings),
    }
    return {name: count for name, count in found.items() if count}


def _places(report: Report) -> int:
    run = report.run
    if run is None:
        return 0
    return len(run.places) + len(run.crew_places) + sum(len(p.places) for p in run.phases)


def _fewer_places(report: Report) -> Report:
    return _with_places(report, 1)


def _no_places(report: Report) -> Report:
    return _with_places(report, 0)


def _with_places(report: Report, most: int) -> Report:
    """With so many of each list of places in the whole run."""
    run = report.run
    if run is None:
        return report
    phases = tuple(msgspec.structs.replace(p, places=p.places[:most]) for p in run.phases)
    shorter = msgspec.structs.replace(
        run, places=run.places[:most], crew_places=run.crew_places[:most], phases=phases
    )
    return msgspec.structs.replace(report, run=shorter)


def _pieces_of_evidence(report: Report) -> int:
    return sum(len(finding.evidence) for finding in report.findings)


def _shortened(table: ResultTable, most: int) -> ResultTable:
    left_out = table.rows_left_out + max(len(table.rows) - most, 0)
    return msgspec.structs.replace(table, rows=table.rows[:most], rows_left_out=left_out)


def _no_tables(report: Report) -> Report:
    return msgspec.structs.replace(report, tables={}, ladder=())


def _short_answers(report: Report) -> Report:
    not_checked = tuple(msgspec.structs.replace(i, record="") for i in report.not_checked)
    steps = msgspec.structs.replace(
        report.steps, duration_ns=(), outliers=(), exceptional=(), kinds=(), numbers=(), kind_of=()
    )
    return msgspec.structs.replace(report, not_checked=not_checked, steps=steps)


def _no_clear(report: Report) -> Report:
    return msgspec.structs.replace(report, clear=(), not_applicable=())


def _no_reasons(report: Report) -> Report:
    not_checked = tuple(msgspec.structs.replace(i, why="") for i in report.not_checked)
    return msgspec.structs.replace(report, not_checked=not_checked)


def _no_evidence(report: Report) -> Report:
    findings = tuple(
        msgspec.structs.replace(f, evidence=(), rows=(), code=None) for f in report.findings
    )
    return msgspec.structs.replace(report, findings=findings)


CRUMB_RATIO = 0.01  # of the step: no cause is worth telling there


def _no_crumbs(report: Report) -> Report:
    whole_ns = sum(part.ns_per_step for part in report.breakdown)
    kept = tuple(p for p in report.breakdown if p.ns_per_step >= CRUMB_RATIO * whole_ns)
    return msgspec.structs.replace(report, breakdown=kept)


def _no_answers(report: Report) -> Report:
    return msgspec.structs.replace(report, not_checked=(), not_shown=(), fix_ladder=None)


def _no_run(report: Report) -> Report:
    return msgspec.structs.replace(report, run=None)


_FEWEST_PARTS = 5  # of the step: of recordings of programs these hold most of it


def _largest_parts(report: Report) -> Report:
    largest = sorted(report.breakdown, key=lambda part: -part.ns_per_step)[:_FEWEST_PARTS]
    kept = tuple(part for part in report.breakdown if part in largest)[:_FEWEST_PARTS]
    return msgspec.structs.replace(report, breakdown=kept)


_FEWEST_FINDINGS = (3, 1)  # the ones to fix first; the others can be asked for with more room


def _fewer_findings() -> Iterator[Callable[[Report], Report]]:
    for most in _FEWEST_FINDINGS:
        yield partial(_first_findings, most=most)


def _first_findings(report: Report, *, most: int) -> Report:
    return msgspec.structs.replace(report, findings=report.findings[:most])
