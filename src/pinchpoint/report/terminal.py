"""Any page as text for a terminal or a log: 80 columns, readable without colour."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

from pinchpoint.report.blocks import (
    Block,
    Breakdown,
    Command,
    Details,
    Fact,
    Figure,
    FindingCard,
    Gap,
    Heading,
    Items,
    Page,
    Records,
    Role,
    Table,
    Text,
    Title,
)
from pinchpoint.report.copyable import GLUE, spaced, unbroken, units_kept, whole
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.quantity import percent
from pinchpoint.report.terminal_table import columns_of, table_lines

_LABEL_AND_FIGURE = 56  # columns, so that 80 also hold a share and a bar
_LEAST_FIGURE = 7  # columns of a figure
_BAR_WIDTH = 15  # columns of a bar for the whole
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
        case Gap():
            yield _BLANK
        case _:
            yield from _drawn_large(block, look)


def _drawn_large(
    block: Breakdown | Table | Records | FindingCard | Figure, look: Look
) -> Iterator[_Line]:
    match block:
        case Breakdown():
            yield from _breakdown(block)
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


def _breakdown(block: Breakdown) -> Iterator[_Line]:
    figure = max(_LEAST_FIGURE, *(len(bar.figure) + 2 for bar in block.bars))
    label = _LABEL_AND_FIGURE - figure
    yield _Line(f"{block.title:{label}}{block.unit:>{figure}}{'%':>7}", "1", fixed=True)
    for bar in block.bars:
        cut = plain(bar.label, label - 3)
        text = f"  {cut:{label - 2}}{bar.figure:>{figure}}{percent(bar.ratio):>7}"
        yield _Line(text, fixed=True, bar="█" * round(_BAR_WIDTH * bar.ratio))


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
    room = max(look.width - len(lead), _LEAST_ROOM)
    parts = wrap(glued, room, break_on_hyphens=False, break_long_words=not command) or [""]
    for position, part in enumerate(parts):
        before = _styled(lead, line.lead_style, look) if position == 0 else " " * len(lead)
        yield (before + _styled(spaced(part), line.style, look)).rstrip()


def _styled(text: str, style: str, look: Look) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if look.colour and style and text else text
