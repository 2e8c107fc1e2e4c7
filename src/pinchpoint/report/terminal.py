"""Any page as text for a terminal or a log: 80 columns, readable without colour."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.report.blocks import (
    Block,
    Breakdown,
    ByClock,
    Command,
    Details,
    Fact,
    Figure,
    FindingCard,
    First,
    Gap,
    Heading,
    Items,
    Ladder,
    Page,
    Records,
    Role,
    Rung,
    Table,
    Text,
    Title,
)
from pinchpoint.report.plain import ascii_only, middle_cut, plain
from pinchpoint.report.quantity import percent

# ------------------------------------------------------------------------------------------------
# What stays on one line: commands, however long, so that they can be copied, and 3 ms.


# Stands for a space at which a line may not end; no text has it, see clean.py.
GLUE = "\ue000"
_PROGRAMS = ("pinchpoint", "python", "torchrun", "pip", "env", "taskset", "ncu", "nsys", "py-spy")
_BEFORE_UNIT = regex(r"(?<=\d) (?=(?:%|[mµun]?s|[KMGT]?i?B(?:/s)?)(?!\w))")
_COMMAND = regex(rf"(?:^|(?<=: ))(?:{'|'.join(_PROGRAMS)}) .*$")


def unbroken(text: str) -> str:
    """The text with ``GLUE`` for the spaces of the command that it is or ends with."""
    return _COMMAND.sub(lambda match: whole(match[0]), text)


def whole(code: str) -> str:
    """A line of code with ``GLUE`` for all its spaces."""
    return code.replace(" ", GLUE)


def spaced(text: str) -> str:
    """The same with spaces again."""
    return text.replace(GLUE, " ")


def units_kept(text: str) -> str:
    """The text with ``GLUE`` between numbers and their units."""
    return _BEFORE_UNIT.sub(GLUE, text)


_SHELL_WORD = regex(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")


def continued(command: str, room: int) -> list[str]:
    """A command in lines of at most so many columns where its words allow it, each but the last
    ending in a backslash: pasted into a shell, they are the same command."""
    words = _SHELL_WORD.findall(command)
    if " ".join(words) != command:  # a quote without its other, say
        return [command]
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) + len(" \\") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


# ------------------------------------------------------------------------------------------------
# Columns of a table in a terminal: what fits, how wide, and what becomes of longer texts.


_CELL_WIDTH = 20  # what a text column may take before other columns have their place
_LONGEST_CELL = 120  # of a first column that goes on below
_LEAST_FIRST = 18  # columns of a first cell that goes on below, whatever the others need


def columns_of(table: Table, rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, bool]]:
    """Width of each leading column that fits, and whether its cells are figures."""
    heads = table.heads
    numeric = table.numeric or (False, *[True] * (len(heads) - 1))
    wanted = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    between = 1 if table.dense else 2
    if table.whole:
        room = width - sum(wanted[1:]) - between * (len(wanted) - 1)
        widths = [min(wanted[0], _LONGEST_CELL, max(room, _LEAST_FIRST)), *wanted[1:]]
    else:
        widths = _that_fit(wanted, numeric, table.least, width, between)
    return list(zip(widths, numeric, strict=False))


def _that_fit(
    wanted: list[int], numeric: Sequence[bool], least: int, width: int, between: int
) -> list[int]:
    """Text columns share what the figures leave; columns that find no room go, but for a second.

    Names without what is said of them tell nothing: its longest texts are cut instead.
    """
    widths = [w if n else min(w, _CELL_WIDTH) for w, n in zip(wanted, numeric, strict=True)]
    widths[0] = min(wanted[0], least)
    while len(widths) > 2 and sum(widths) + between * (len(widths) - 1) > width:
        widths.pop()
    if sum(widths) + between * (len(widths) - 1) > width:
        widths[1:] = [max(width - widths[0] - between, 1)] * len(widths[1:])
    spare = width - sum(widths) - between * (len(widths) - 1)
    for i in range(len(widths)):
        more = min(wanted[i] - widths[i], max(spare, 0))
        widths[i], spare = widths[i] + more, spare - more
    return widths


def table_lines(
    row: Sequence[str], columns: Sequence[tuple[int, bool]], table: Table
) -> Iterator[str]:
    """A row, in several lines where its first cell goes on below."""
    first, more = row[0], []
    if table.whole:
        text = middle_cut(plain(row[0], 1000), _LONGEST_CELL)
        first, *more = wrap(
            text, columns[0][0], subsequent_indent="  ", break_on_hyphens=False
        ) or [""]
    between = " " if table.dense else "  "
    cells = zip((first, *row[1:]), columns, strict=False)
    yield between.join(_cell(text, *column, table.dense) for text, column in cells).rstrip()
    yield from more


def _cell(text: str, width: int, number: bool, dense: bool) -> str:
    """Names differ at both ends, so their middles go; dense ones end in their shapes."""
    if number:
        return plain(text, width).rjust(width)
    return (plain(text, width) if dense else middle_cut(plain(text), width)).ljust(width)


# ------------------------------------------------------------------------------------------------
# Any page as text for a terminal or a log: 80 columns, readable without colour.


_LABEL_AND_FIGURE = 56  # columns, so that 80 also hold a share and a bar
_LEAST_FIGURE = 7  # columns of a figure
_SHARE = 9  # columns of a share, and of the space before a bar
_BAR_WIDTH = 15  # columns of a bar for the whole
_LEAST_BAR = 12  # the same beside a long label
_LEAST_RUNG = 10  # columns of a bar of the ladder
_MOST_RUNG = 60  # columns; longer bars tell no more and leave the words behind
_WIDEST_TEXT = 200  # columns of a paragraph, as tables beside it have; no eye follows longer lines
_LONGEST_TEXT = 1000  # characters of a paragraph; names in it can have megabytes
_WIDEST_LABEL = 24  # columns; a longer one pushes its text to the right
_LEAST_ROOM = 20  # columns of a paragraph, however long the words before it
_STYLES: dict[Role, str] = {"strong": "1", "good": "32", "bad": "31", "warning": "33", "soft": "2"}


@dataclass(frozen=True)
class Look:
    """What the place where the text will be shown can do."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    continues: bool = False  # commands that are too long go on below; else they stay whole


@dataclass(frozen=True)
class _Line:
    """A paragraph, or with ``fixed`` a line as it is; styles are numbers of ANSI's SGR."""

    text: str
    style: str = ""
    lead: str = ""  # before the first line; the others are indented as much
    lead_style: str = ""
    fixed: bool = False
    bar: str = ""
    to_copy: bool = False


_BLANK = _Line("", fixed=True)
_PLAIN = Look()


def render(page: Page, look: Look = _PLAIN) -> str:
    """The page as text that ends with a newline."""
    lines = (line for block in page.blocks for line in _drawn(block, look))
    text = "".join(f"{row}\n" for line in lines for row in _rows(line, look))
    return text if look.unicode else ascii_only(text)


def _drawn(block: Block, look: Look) -> Iterator[_Line]:
    match block:
        case Title():
            yield _Line(" · ".join((block.name, *block.about)), "1")
        case Heading():
            yield _Line(block.text, "1")
        case Text():
            yield _Line(
                block.text, _STYLES.get(block.role, ""), f"{block.label}: " * bool(block.label)
            )
        case Items():
            lead = "  ! " if block.role == "warning" else "  - "
            yield from (_Line(text, _STYLES.get(block.role, ""), lead) for text in block.texts)
        case Command():
            lead = f"{block.label}: " if block.label else "  "
            yield _Line(block.text, "1", lead, to_copy=True)
        case Details():
            yield from (line for inner in _unfolded(block) for line in _drawn(inner, look))
        case ByClock():
            yield from _drawn(block.unprofiled, look)
        case First():
            yield from () if block.ladder is None else _drawn(block.ladder, look)
        case Gap():
            yield _BLANK
        case _:
            yield from _drawn_large(block, look)


def _drawn_large(
    block: Breakdown | Ladder | Table | Records | FindingCard | Figure, look: Look
) -> Iterator[_Line]:
    match block:
        case Breakdown():
            yield from _breakdown(block, look.width)
        case Ladder():
            yield from _ladder(block, look.width)
        case Table():
            yield from _table(block, look.width)
        case Records():
            yield from _records(block)
        case FindingCard():
            yield from _finding(block)
        case Figure() if block.lines:
            yield _Line(block.title, "1")
            yield from (_Line(line, fixed=True) for line in block.lines)


def _unfolded(block: Details) -> Iterator[Block]:
    """All of it, under its title where what is inside has none."""
    first, *others = block.blocks
    if isinstance(first, Table):
        yield Gap()
        yield replace(first, title=block.title)
    elif isinstance(first, Records):
        yield first
    else:
        yield from (Heading(block.title), first)
    yield from others


def _breakdown(block: Breakdown, width: int) -> Iterator[_Line]:
    figure = max(_LEAST_FIGURE, *(len(bar.figure) + 2 for bar in block.bars))
    wanted = max(len(block.title), *(len(bar.label) + 5 for bar in block.bars)) + figure
    label = max(_LABEL_AND_FIGURE, min(wanted, width - _SHARE - _LEAST_BAR)) - figure
    whole = min(_BAR_WIDTH, max(width - label - figure - _SHARE, _LEAST_BAR))
    yield _Line(f"{block.title:{label}}{block.unit:>{figure}}{'%':>7}", "1", fixed=True)
    for bar in block.bars:
        cut = plain(bar.label, label - 3)
        text = f"  {cut:{label - 2}}{bar.figure:>{figure}}{percent(bar.ratio):>7}"
        yield _Line(text, fixed=True, bar="█" * round(whole * bar.ratio))


def _ladder(block: Ladder, width: int) -> Iterator[_Line]:
    """Columns as wide as their texts, and a bar in what is left: ``▒`` is the range."""
    yield _Line(f"{block.title} ({block.unit})", "1", fixed=True)
    rows = [
        (f"{rung.number or '':<2}{rung.label}", rung.figure, rung.between, rung.takes)
        for rung in block.rungs
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    wide[0] = min(wide[0], max(width - sum(wide[1:]) - _LEAST_RUNG - 8, _LEAST_ROOM))
    room = width - sum(wide) - 8
    for row, rung in zip(rows, block.rungs, strict=True):
        label, figure, between, takes = row
        name = middle_cut(plain(label), wide[0])
        text = f"{name:{wide[0]}}  {figure:>{wide[1]}}  {between:{wide[2]}}  {takes:{wide[3]}}"
        bar = _rung_bar(rung, min(room, _MOST_RUNG)) if room >= _LEAST_RUNG else ""
        yield _Line(text, "32" if rung.role == "together" else "", fixed=True, bar=bar)
    if block.note:
        yield _Line(block.note)


def _rung_bar(rung: Rung, room: int) -> str:
    low, high = round(room * rung.low), round(room * rung.high)
    return "█" * max(low, 1) + "▒" * max(high - max(low, 1), 0)


def _finding(block: FindingCard) -> Iterator[_Line]:
    yield _Line(block.gain, "32", f"{block.number:<2} {block.id:<18} ", "1")
    yield _Line(block.summary, lead="   ")
    for fact in block.facts:
        label = "shows" if fact.kind == "shown" else fact.label
        text = f"{fact.label}: {fact.text}" if fact.kind == "shown" else fact.text
        yield _Line(text, lead=f"   {label:<8} ")
        if fact.label == "fix":
            yield from (_Line(line, "36", " " * 12, to_copy=True) for line in block.code)


def _records(block: Records) -> Iterator[_Line]:
    lead = f"{block.label}: "
    for name, what, *others in block.rows:
        yield _Line(f"{name}: {what}", lead=lead)
        for head, text in zip(block.heads[2:], others, strict=True):
            if text:
                yield _Line(text, lead=f"{head}: ".rjust(len(lead)))


def _table(block: Table, width: int) -> Iterator[_Line]:
    indent = "  " if block.title else ""
    if block.title:
        yield _Line(block.title, "1")
    shown = block.rows if block.most is None else block.rows[: block.most]
    columns = columns_of(block, shown, width - len(indent))
    for i, row in enumerate((block.heads, *shown)):
        style = ("2" if block.title else "1") if i == 0 else ""
        yield from (
            _Line(indent + line, style, fixed=True) for line in table_lines(row, columns, block)
        )
        if i and block.below:
            yield from _below(block.below[i - 1])
        if i and block.spaced:
            yield _BLANK
    left_out = block.left_out + len(block.rows) - len(shown)
    if left_out:
        yield _Line(f"and {left_out:,} more {block.more}", "2", indent)
    if block.says_cut and (cut := block.heads[len(columns) :]):
        yield _Line(f"no room for: {', '.join(cut)} (--json)", "2", indent)
    if block.note:
        yield _Line(block.note, "2", indent)


def _below(facts: tuple[Fact, ...]) -> Iterator[_Line]:
    width = min(max((len(fact.label) for fact in facts), default=0), _WIDEST_LABEL)
    for fact in facts:
        yield _Line(fact.text, lead=f"    {fact.label:<{width}} " if fact.label else "    ")


def _rows(line: _Line, look: Look) -> Iterator[str]:
    if line.fixed:
        text = plain(line.text.rstrip() if not line.bar else line.text, _LONGEST_TEXT)
        bar = "  " + _styled(line.bar, "36", look) if line.bar else ""
        yield _styled(text, line.style, look) + bar
        return
    safe = plain(line.text, _LONGEST_TEXT)
    glued = whole(safe) if line.to_copy else units_kept(unbroken(safe))
    command = line.to_copy or GLUE in unbroken(safe)  # longer than the line at need
    lead = plain(line.lead)
    room = max(min(look.width, _WIDEST_TEXT) - len(lead), _LEAST_ROOM)
    parts = wrap(glued, room, break_on_hyphens=False, break_long_words=not command) or [""]
    if look.continues and _COMMAND.match(spaced(parts[-1])):
        parts[-1:] = continued(spaced(parts[-1]), room)
    for position, part in enumerate(parts):
        before = _styled(lead, line.lead_style, look) if position == 0 else " " * len(lead)
        yield (before + _styled(spaced(part), line.style, look)).rstrip()


def _styled(text: str, style: str, look: Look) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if look.colour and style and text else text
