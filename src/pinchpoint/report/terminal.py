"""The report for a terminal or a log: 80 columns, readable without colour."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO

from rich.console import Console
from rich.text import Text

from pinchpoint.report import wording
from pinchpoint.report.clean import clean
from pinchpoint.report.closing import closing_sentence
from pinchpoint.report.columns import numeric, shown_value
from pinchpoint.report.document import FindingItem, Report, ResultTable
from pinchpoint.report.mean_words import mean_sentences
from pinchpoint.report.plain import ascii_only
from pinchpoint.report.quantity import in_unit, percent, quantity, time_unit
from pinchpoint.report.to_copy import GLUE, spaced, unbroken, whole

_LABEL_WIDTH = 49  # the longest label, so that 80 columns also hold a time, a share and a bar
_BAR_WIDTH = 15  # columns of a bar for the whole step
_TABLE_ROWS = 10  # a terminal is for the top of a table; --json and --html have more
_CELL_WIDTH = 20  # what a text column may take before other columns have their place
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµun]?s|[KMGT]?i?B(?:/s)?)(?!\w))")


@dataclass(frozen=True)
class Look:
    """What the place where the text will be shown can do, and how much is wanted."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    verbose: bool = False


@dataclass(frozen=True)
class _Block:
    """A paragraph of styled pieces; its first line begins with ``lead``, the others below it."""

    pieces: tuple[tuple[str, str], ...]
    lead: str = ""


_BLANK = _Block(())
_PLAIN = Look()


def render(report: Report, look: Look = _PLAIN) -> str:
    """The report as text that ends with a newline."""
    safe = clean(report)
    blocks = list(_head(safe))
    if safe.health.verdict == wording.CANNOT_CONCLUDE:
        blocks += _no_conclusion(safe)
    else:
        blocks += _answer(safe, look.verbose)
    if look.verbose:
        for table in safe.tables.values():
            blocks += _table(table, look.width)
    return _drawn(blocks, look)


def _head(report: Report) -> Iterator[_Block]:
    yield _line(" · ".join(wording.source_line(report)), "bold")
    if sentence := wording.step_sentence(report):
        yield _line(sentence)
    if sentence := wording.spread_sentence(report):
        yield _line(sentence)
    for sentence in mean_sentences(report):
        yield _line(sentence)


def _no_conclusion(report: Report) -> Iterator[_Block]:
    yield _BLANK
    yield _line("Cannot conclude: this recording forbids statements about time.", "bold red")
    for detail in wording.fatal_facts(report):
        yield _line(detail, lead="  - ")
    if report.health.record:
        yield _line(report.health.record, lead="Record again: ")


def _answer(report: Report, verbose: bool) -> Iterator[_Block]:
    for detail in wording.weak_facts(report):
        yield _line(detail, "yellow", lead="  ! ")
    yield _BLANK
    yield from _breakdown(report)
    if sentence := wording.device_work(report):
        yield _line(sentence)
    if report.verdict:
        yield _line(report.verdict, "bold")
        yield _BLANK
    for position, finding in enumerate(report.findings, 1):
        yield from _finding(report, finding, position, verbose)
    if sentence := wording.order(report):
        yield _line(sentence)
    if sentence := wording.together(report):
        yield _line(sentence, "green")
    if sentence := closing_sentence(report):
        yield _line(sentence)
    yield from _silent(report, verbose)
    if report.next_command:
        yield _line(report.next_command, "bold", lead="Next: ")


def _breakdown(report: Report) -> Iterator[_Block]:
    parts = wording.top_parts(report)
    total = sum(ns for _, ns in parts)
    if not total:
        return
    unit = time_unit(total)
    title = wording.breakdown_title(report)
    yield _line(f"{title:{_LABEL_WIDTH}}{unit:>7}{'%':>7}", "bold")
    for label, ns in parts:
        short = label if len(label) <= _LABEL_WIDTH - 3 else label[: _LABEL_WIDTH - 4] + "…"
        figures = f"  {short:{_LABEL_WIDTH - 2}}{in_unit(ns, unit):>7}{percent(ns / total):>7}  "
        yield _Block(((figures, ""), ("█" * round(_BAR_WIDTH * ns / total), "cyan")))


def _finding(
    report: Report, finding: FindingItem, position: int, verbose: bool
) -> Iterator[_Block]:
    gain = wording.gain(report, finding)
    yield _Block(((f"{finding.id:<18} ", "bold"), (gain, "green")), f"{position:<2} ")
    yield _line(finding.summary, lead="   ")
    yield from _about_the_cost(report, finding)
    if where := wording.place_unless_said(finding):
        yield _line(where, lead="   at       ")
    if verbose:
        for fact in finding.evidence:
            yield _line(f"{fact.what}: {quantity(fact.value, fact.unit)}", lead="   shows    ")
    if finding.fix:
        yield _line(finding.fix, lead="   fix      ")
    for code in (finding.hint or "").splitlines():
        yield _line(whole(code), "cyan", lead="            ")
    if others := wording.given(finding):
        yield _line(others, lead="   after    ")
    if finding.consequence and finding.consequence != gain:
        yield _line(finding.consequence, lead="   also     ")
    if finding.confirm:
        yield _line(finding.confirm, lead="   confirm  ")


def _about_the_cost(report: Report, finding: FindingItem) -> Iterator[_Block]:
    """Why it does not fit the step or the gain, where it does not."""
    if steps := wording.counted_in(report, finding):
        yield _line(steps, lead="   counted  ")
    if part := wording.hidden(finding):
        yield _line(part, lead="   hidden   ")


def _silent(report: Report, verbose: bool) -> Iterator[_Block]:
    """What was looked for and not found, not looked for, or failed."""
    if verbose:
        for item in wording.not_checked_grouped(report):
            yield _line(f"{item.id}: {item.why}", lead="Not checked: ")
            if item.record:
                yield _line(item.record, lead="     record: ")
        if report.clear:
            yield _line(", ".join(report.clear), lead="Clear: ")
    elif sentence := wording.not_checked_sentence(report):
        yield _line(f"{sentence} --verbose lists them.", "dim")
    if sentence := wording.crashed_sentence(report.crashed):
        yield _line(sentence, "red")


def _table(table: ResultTable, width: int) -> Iterator[_Block]:
    of_numbers = numeric(table)
    labels = [column.label for column in table.columns]
    rows = [
        [shown_value(table, row, i) if value is not None else "-" for i, value in enumerate(row)]
        for row in table.rows[:_TABLE_ROWS]
    ]
    widths = _column_widths([labels, *rows], of_numbers, width)
    yield _BLANK
    yield _line(table.title, "bold")
    for style, row in [("dim", labels), *(("", row) for row in rows)]:
        cells = map(_cell, row[: len(widths)], widths, of_numbers)
        yield _line("  ".join(cells).rstrip(), style, lead="  ")
    left_out = table.rows_left_out + len(table.rows) - len(rows)
    if left_out:
        yield _line(f"and {left_out:,} more rows", "dim", lead="  ")
    if table.note:
        yield _line(table.note, "dim", lead="  ")


def _column_widths(rows: list[list[str]], numeric: list[bool], width: int) -> list[int]:
    """Widths of the leading columns that fit; text columns share what the numbers leave."""
    wanted = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = [w if n else min(w, _CELL_WIDTH) for w, n in zip(wanted, numeric, strict=True)]
    room = width - 2  # for the indent
    while len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > room:
        widths.pop()
    spare = room - sum(widths) - 2 * (len(widths) - 1)
    for i in range(len(widths)):
        more = min(wanted[i] - widths[i], max(spare, 0))
        widths[i], spare = widths[i] + more, spare - more
    return widths


def _cell(text: str, width: int, number: bool) -> str:
    if number:
        return text.rjust(width)
    return (text if len(text) <= width else text[: width - 1] + "…").ljust(width)


def _line(text: str, style: str = "", lead: str = "") -> _Block:
    return _Block(((text, style),), lead)


def _drawn(blocks: list[_Block], look: Look) -> str:
    canvas = StringIO()
    console = Console(
        file=canvas,
        width=look.width,
        force_terminal=look.colour,
        color_system="standard" if look.colour else None,
        legacy_windows=False,
    )
    for block in blocks:
        shown = block if look.unicode else _in_ascii(block)
        for line in _wrapped(console, shown):
            console.print(line, soft_wrap=True)
    return canvas.getvalue()


def _wrapped(console: Console, block: _Block) -> Iterator[Text]:
    room = max(console.width - len(block.lead), 20)
    commands = [(unbroken(text), style) for text, style in block.pieces]
    to_copy = any(GLUE in text for text, _ in commands)  # longer than the line at need
    glued = Text.assemble(*((_BEFORE_UNIT.sub(GLUE, text), style) for text, style in commands))
    lines = glued.wrap(console, room, overflow="ignore" if to_copy else "fold")
    for position, line in enumerate(lines):
        line.rstrip()
        line.plain = spaced(line.plain)
        yield Text(block.lead if position == 0 else " " * len(block.lead)).append_text(line)


def _in_ascii(block: _Block) -> _Block:
    return replace(block, pieces=tuple((_ascii(text), style) for text, style in block.pieces))


def _ascii(text: str) -> str:
    return GLUE.join(ascii_only(part) for part in text.split(GLUE))
