"""The report as GitHub-flavoured Markdown: pull requests, issues, job summaries."""

import re
from collections.abc import Iterable, Iterator

from pinchpoint.report import wording
from pinchpoint.report.clean import clean
from pinchpoint.report.closing import closing_sentence
from pinchpoint.report.document import FindingItem, Report, ResultTable
from pinchpoint.report.mean_words import mean_sentences
from pinchpoint.report.quantity import in_unit, percent, quantity, time_unit

_TABLE_ROWS = 20
_BAR_WIDTH = 20
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@&#8203;"}  # @: no mention of a person


def render(report: Report) -> str:
    """The report as Markdown that ends with a newline."""
    safe = clean(report)
    lines = list(_head(safe))
    if safe.health.verdict == wording.CANNOT_CONCLUDE:
        lines += _no_conclusion(safe)
    else:
        lines += _answer(safe)
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in a sentence or a table cell."""
    text = _MARKUP.sub(r"\\\1", text)
    for character, entity in _ENTITIES.items():
        text = text.replace(character, entity)
    return text


def code(text: str) -> str:
    """Text in a code span, whatever backticks it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _head(report: Report) -> Iterator[str]:
    first, *others = wording.source_line(report)
    yield f"## Pinchpoint: {escape(first)}"
    yield ""
    yield escape(" · ".join(others))
    timed = (wording.step_sentence(report), wording.spread_sentence(report))
    for sentence in (*timed, *mean_sentences(report)):
        if sentence:
            yield ""
            yield escape(sentence)


def _no_conclusion(report: Report) -> Iterator[str]:
    yield ""
    yield "**Cannot conclude:** this recording forbids statements about time."
    yield ""
    for detail in wording.fatal_facts(report):
        yield f"- {escape(detail)}"
    if report.health.record:
        yield ""
        yield f"Record again: {escape(report.health.record)}"


def _answer(report: Report) -> Iterator[str]:
    for detail in wording.weak_facts(report):
        yield ""
        yield f"> {escape(detail)}"
    yield from _breakdown(report)
    if sentence := wording.device_work(report):
        yield ""
        yield escape(sentence)
    if report.verdict:
        yield ""
        yield f"**{escape(report.verdict)}**"
    for position, finding in enumerate(report.findings, 1):
        yield from _finding(report, finding, position)
    for sentence in (
        wording.order(report),
        wording.together(report),
        closing_sentence(report),
        wording.not_checked_sentence(report),
        wording.crashed_sentence(report.crashed),
    ):
        if sentence:
            yield ""
            yield escape(sentence)
    if report.not_checked:
        yield from _details("What was not checked, and what to record", _not_checked(report))
    for table in report.tables.values():
        yield from _table(table)
    if report.next_command:
        yield ""
        yield f"Next: {code(report.next_command)}"


def _breakdown(report: Report) -> Iterator[str]:
    parts = wording.top_parts(report)
    total = sum(ns for _, ns in parts)
    if not total:
        return
    unit = time_unit(total)
    rows = (
        (
            escape(label),
            in_unit(ns, unit),
            percent(ns / total),
            "█" * round(_BAR_WIDTH * ns / total),
        )
        for label, ns in parts
    )
    yield ""
    yield from _grid(
        (wording.breakdown_title(report), unit, "%", ""), (False, True, True, False), rows
    )


def _finding(report: Report, finding: FindingItem, position: int) -> Iterator[str]:
    gain = wording.gain(report, finding)
    yield ""
    yield f"### {position}. {escape(finding.id)}: {escape(gain)}"
    yield ""
    yield escape(finding.summary)
    yield ""
    if steps := wording.counted_in(report, finding):
        yield f"- counted {escape(steps)}"
    if part := wording.hidden(finding):
        yield f"- hidden: {escape(part)}"
    if where := wording.place_unless_said(finding):
        yield f"- at: {code(where)}"
    for fact in finding.evidence:
        yield f"- {escape(fact.what)}: {escape(quantity(fact.value, fact.unit))}"
    if others := wording.given(finding):
        yield f"- after: {escape(others)}"
    if finding.consequence and finding.consequence != gain:
        yield f"- also: {escape(finding.consequence)}"
    if finding.fix:
        yield f"- **fix**: {escape(finding.fix)}"
    for line in (finding.hint or "").splitlines():
        yield f"  {code(line)}<br>"
    if finding.confirm:
        yield f"- **confirm**: {escape(finding.confirm)}"


def _not_checked(report: Report) -> Iterator[str]:
    items = wording.not_checked_grouped(report)
    rows = ((escape(i.id), escape(i.why), escape(i.record)) for i in items)
    yield from _grid(("cause", "why", "what to record"), (False, False, False), rows)


def _table(table: ResultTable) -> Iterator[str]:
    yield from _details(table.title, _rows(table))


def _rows(table: ResultTable) -> Iterator[str]:
    shown = table.rows[:_TABLE_ROWS]
    left_out = table.rows_left_out + len(table.rows) - len(shown)
    rows = (
        [
            "" if value is None else escape(quantity(value, column.unit))
            for value, column in zip(row, table.columns, strict=True)
        ]
        for row in shown
    )
    labels = [escape(column.label) for column in table.columns]
    yield from _grid(labels, [bool(column.unit) for column in table.columns], rows)
    for remark in (f"and {left_out:,} more rows" if left_out else "", escape(table.note)):
        if remark:
            yield ""
            yield remark


def _details(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines that unfold."""
    yield ""
    yield f"<details><summary>{escape(title)}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _grid(
    labels: Iterable[str], numeric: Iterable[bool], rows: Iterable[Iterable[str]]
) -> Iterator[str]:
    yield f"| {' | '.join(labels)} |"
    yield f"|{'|'.join('---:' if number else '---' for number in numeric)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
