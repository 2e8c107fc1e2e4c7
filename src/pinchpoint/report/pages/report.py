"""The page of one recording: where a step goes, what to change, what that gives."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import dedent

from pinchpoint.diagnosis.finding import Evidence, Finding
from pinchpoint.report.blocks import (
    Bar,
    Block,
    Breakdown,
    Command,
    Details,
    Fact,
    FindingCard,
    Gap,
    Items,
    Page,
    Records,
    Table,
    Text,
    Title,
)
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.clock import Clock, on_clock
from pinchpoint.report.documents.report import Report, ResultTable, finding_key
from pinchpoint.report.pages.ladder import ladder_block
from pinchpoint.report.quantity import in_unit, quantity, time_unit
from pinchpoint.report.words import breakdown as breakdown_words
from pinchpoint.report.words import report as wording
from pinchpoint.report.words import steps as steps_words
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.mean import mean_sentences

_TABLE_ROWS = 10  # a terminal is for the top of a table; --json and --html have more


def report_page(
    report: Report,
    *,
    verbose: bool = False,
    clock: Clock = "unprofiled",
    listed_by: str = "--verbose",
) -> Page:
    """The page; ``verbose`` with evidence, tables and what was not checked.

    ``listed_by``: what lists it where this page does not.
    """
    safe = clean(on_clock(report, clock))
    concludes = safe.health.verdict != wording.CANNOT_CONCLUDE
    answer = _answer(safe, verbose, listed_by) if concludes else _no_conclusion(safe)
    return Page((*_head(safe), *answer, *_end(safe, verbose, concludes)))


def _head(report: Report) -> Iterator[Block]:
    """What was read, then the answer in one sentence, then how slow it is."""
    first, *others = wording.source_line(report)
    yield Title(first, tuple(others))
    if report.health.verdict == wording.CANNOT_CONCLUDE:
        return
    if report.verdict:
        lead, more = wording.headline(report.verdict)
        yield Text(lead, "strong", answers="why")
        if more:
            yield Text(more)
    timed = (
        steps_words.step_sentence(report),
        steps_words.spread_sentence(report),
        steps_words.serving_sentence(report),
        steps_words.kv_cache_sentence(report),
    )
    for sentence in (*timed, *mean_sentences(report)):
        if sentence:
            yield Text(sentence)


def _no_conclusion(report: Report) -> Iterator[Block]:
    yield Gap()
    yield Text("this recording forbids statements about time.", "bad", "Cannot conclude")
    yield Items(wording.fatal_facts(report))
    if report.health.record:
        yield Text(report.health.record, label="Record again")


def _answer(report: Report, verbose: bool, listed_by: str) -> Iterator[Block]:
    """What to change first and what it gives, each change, then where the step goes."""
    if doubts := wording.weak_facts(report):
        yield Items(doubts, "warning")
    yield Gap()
    if ladder := ladder_block(report):
        yield ladder
        yield Gap()
    for number, finding in enumerate(report.findings, 1):
        yield finding_block(report, finding, number, verbose=verbose)
    if sentence := wording.to_fill_in(report):
        yield Text(sentence, "soft")
    if sentence := closing_sentence(report):
        yield Text(sentence)
    if report.findings:
        yield Gap()
    yield from _breakdown(report)
    yield from _sums(report)
    if sentence := breakdown_words.device_work(report):
        yield Text(sentence)
    if sentence := wording.not_checked_sentence(report):
        yield Text(sentence if verbose else f"{sentence} {listed_by} lists them.", "soft")
    if sentence := wording.crashed_sentence(report.crashed):
        yield Text(sentence, "bad")


def _end(report: Report, verbose: bool, concludes: bool) -> Iterator[Block]:
    if verbose and concludes:
        items = wording.not_checked_grouped(report)
        if items:
            rows = tuple((item.id, item.why, item.record) for item in items)
            listed = Records("Not checked", ("cause", "why", "record"), rows)
            yield Details("What was not checked, and what to record", (listed,))
        for dropped in report.not_shown:
            yield Text(f"{dropped.id}: {dropped.why}", label="Found, not shown")
        if report.clear:
            yield Text(", ".join(report.clear), label="Clear")
    if verbose and report.queue is not None:
        from pinchpoint.report.pages.causal import queue_curves

        yield Gap()
        yield from queue_curves(report.queue)
    if verbose and report.tables:
        from pinchpoint.report.tables.columns import titled

        for table in report.tables.values():
            yield Details(titled(table), (result_table(table),))
    if report.next_command and concludes:
        if verbose:
            yield Gap()
        yield Command(report.next_command)


def _sums(report: Report) -> Iterator[Block]:
    from pinchpoint.report.tables.names import ROOM, room_of, told_apart  # of few recordings

    sums = [table for name, table in report.tables.items() if name.startswith("sums-")]
    for title, tables in groupby(sums, lambda table: table.title):
        if any(table.title != title for table in sums):
            yield Text(f"{title[:1].upper()}{title[1:]}", "strong")
        for table in tables:
            order = _named_first(table)
            rows = [tuple(str(row[at]) for at in order) for row in table.rows]
            names = [row[0] for row in rows[:_MOST_SUMS]]
            # a table of one column is text, such as what went wrong: none of it is cut
            apart = told_apart(names, ROOM) if len(order) > 1 else names
            yield Table(
                heads=tuple(table.columns[at].label for at in order),
                rows=tuple((n, *row[1:]) for n, row in zip(apart, rows, strict=False))
                + tuple(rows[_MOST_SUMS:]),
                numeric=(False, *(True,) * (len(table.columns) - 1)),
                most=_MOST_SUMS,
                more="rows (--json)",
                says_cut=True,
                least=room_of(names),
            )
            yield Gap()


_MOST_SUMS = 12  # rows on a screen


def _named_first(table: ResultTable) -> list[int]:
    """Positions of columns, what a row is about before its figures: a screen cuts on the right,
    where nsys has its names."""
    order = list(range(len(table.columns)))
    last = order[-1:]
    figures = [_is_figure(row[0]) for row in table.rows[:_MOST_SUMS] if row]
    names = [not _is_figure(row[-1]) for row in table.rows[:_MOST_SUMS] if row]
    return last + order[:-1] if all(figures) and any(names) else order


def _is_figure(cell: object) -> bool:
    return str(cell).strip().replace(",", "").replace(".", "", 1).isdigit()


def _breakdown(report: Report) -> Iterator[Block]:
    parts = breakdown_words.top_parts(report)
    total = sum(ns for _, ns in parts)
    if total:
        unit = time_unit(total)
        group = {part.label: part.group for part in report.breakdown}
        bars = tuple(
            Bar(label, in_unit(ns, unit), ns / total, group.get(label, "")) for label, ns in parts
        )
        yield Breakdown(breakdown_words.breakdown_title(report), unit, bars)


def finding_block(report: Report, finding: Finding, number: int, *, verbose: bool) -> FindingCard:
    """A finding; ``verbose`` with its evidence, and its place even where the summary has it."""
    where = wording.place(finding.location) if verbose else wording.place_unless_said(finding)
    gain = wording.gain(report, finding)
    consequence = None if finding.consequence == gain else finding.consequence
    said = (
        Fact("counted", wording.counted_in(report, finding) or ""),
        Fact("hidden", wording.hidden(finding) or ""),
        Fact("at", where or "", "place"),
        *(evidence(finding.evidence) if verbose else ()),
        Fact("after", wording.given(finding) or ""),
        Fact("also", consequence or ""),
        *fix_facts(finding),
    )
    facts = tuple(fact for fact in said if fact.text)
    code = code_lines(finding) or tuple((finding.hint or "").splitlines())
    key = finding_key((*report.findings[: number - 1], finding))
    return FindingCard(number, finding.id, gain, finding.summary, facts, code, key=key)


def code_lines(finding: Finding) -> tuple[str, ...]:
    """The program's own lines as a change of them, or with the rule's example below.

    Empty where the source is not at hand.
    """
    code, hint = finding.code, (finding.hint or "").splitlines()
    if code is None:
        return ()
    where = f"# {code.file}:{code.first_line}{_NEWER * code.newer}"
    if code.edited is None:
        as_it_is = tuple(f"  {line}".rstrip() for line in _trimmed(code.lines))
        return (where, *as_it_is, *(("# for example:", *hint) if hint else ()))
    from difflib import ndiff  # imported for the few pages that show an edited line

    changed = ndiff(code.lines, code.edited)
    return (where, *(line.rstrip() for line in changed if not line.startswith("?")))


_NEWER = " as it is now: the file is newer than the recording"


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the indentation that all have, and without empty lines at the end."""
    return dedent("\n".join(lines)).rstrip().splitlines()


def evidence(items: tuple[Evidence, ...]) -> tuple[Fact, ...]:
    """What a finding rests on."""
    return tuple(Fact(e.what, quantity(e.value, e.unit), "shown") for e in items)


def fix_facts(finding: Finding) -> tuple[Fact, ...]:
    """What to change, and how to see that it helped; empty where that is not said."""
    return (Fact("fix", finding.fix, "strong"), Fact("confirm", finding.confirm, "strong"))


def result_table(table: ResultTable) -> Table:
    """A table of the document as texts; what first names are short for is left to the document."""
    from pinchpoint.report.tables.columns import FULL_NAME, numeric, shown_value

    kept = [i for i, column in enumerate(table.columns) if column.id != FULL_NAME]
    of_numbers = numeric(table)
    return Table(
        heads=tuple(table.columns[i].label for i in kept),
        rows=tuple(
            tuple("-" if row[i] is None else shown_value(table, row, i) for i in kept)
            for row in table.rows
        ),
        numeric=tuple(of_numbers[i] for i in kept),
        note=table.note,
        most=_TABLE_ROWS,
        left_out=table.rows_left_out,
    )
