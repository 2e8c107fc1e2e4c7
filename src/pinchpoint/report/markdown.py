"""Any page as GitHub-flavoured Markdown: pull requests, issues, job summaries."""

import re
from collections.abc import Iterable, Iterator, Sequence

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
    Table,
    Text,
    Title,
)
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import percent

LIMIT_BYTES = 1_000_000  # GitHub takes 1 MiB a step
_TABLE_ROWS = 20  # of a table that has an overview
_BAR_WIDTH = 20  # characters: a bar beside three columns on a page of 80
_LONGEST_TEXT = 1000  # characters: a long sentence stays whole, a hostile name does not
_MARKUP = regex(r"([\\`*_{}\[\]|~#])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@&#8203;"}  # @: no mention of a person


def render(page: Page) -> str:
    """Markdown that ends with a newline; what is beyond GitHub's limit is cut."""
    text = "\n".join(line for block in page.blocks for line in _drawn(block)).lstrip("\n") + "\n"
    if len(text.encode()) <= LIMIT_BYTES:
        return text
    kept = text.encode()[: LIMIT_BYTES - 100].decode("utf-8", "ignore")
    return kept.rpartition("\n")[0] + "\n\n(cut: the JSON document has the whole)\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in a sentence or a table cell."""
    text = _MARKUP.sub(r"\\\1", plain(text, _LONGEST_TEXT))
    for character, entity in _ENTITIES.items():
        text = text.replace(character, entity)
    return text


def code(text: str) -> str:
    """Text in a code span, whatever backticks it holds."""
    text = plain(text, _LONGEST_TEXT)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _drawn(block: Block) -> Iterator[str]:
    """The lines of a block, which begins with an empty one."""
    if not isinstance(block, Gap | Figure):
        yield ""
    match block:
        case Title():
            yield f"## Pinchpoint: {escape(block.name)}"
            yield from ("", escape(" · ".join(block.about))) if block.about else ()
        case Heading():
            yield f"### {escape(block.text)}"
        case Text():
            yield from _paragraph(block)
        case Items():
            mark = ">" if block.role == "warning" else "-"
            yield from (f"{mark} {escape(text)}" for text in block.texts)
        case Command():
            yield f"{escape(block.label)}: {code(block.text)}"
        case Details():
            yield from _details(block)
        case ByClock():
            yield from _drawn(block.unprofiled)
        case First():
            yield from () if block.ladder is None else _drawn_large(block.ladder)
        case _:
            yield from _drawn_large(block)


def _drawn_large(
    block: Breakdown | Ladder | Table | Records | FindingCard | Figure | Gap,
) -> Iterator[str]:
    match block:
        case Breakdown():
            yield from _breakdown(block)
        case Ladder():
            yield from _ladder(block)
        case Table():
            yield from _table(block)
        case Records():
            yield from _grid(block.heads, (False,) * len(block.heads), block.rows)
        case FindingCard():
            yield from _finding(block)
        case Figure() if block.lines:
            yield from ("", escape(block.title), "", "```text", *block.lines, "```")


def _paragraph(block: Text) -> Iterator[str]:
    text, label = escape(block.text), escape(block.label)
    if block.role in ("strong", "bad") and label:
        yield f"**{label}:** {text}"
    elif block.role == "strong":
        yield f"**{text}**"
    else:
        mark = "> " if block.role == "warning" else ""
        yield f"{mark}{label}: {text}" if label else f"{mark}{text}"


def _details(block: Details) -> Iterator[str]:
    yield f"<details><summary>{escape(block.title)}</summary>"
    for inner in block.blocks:
        yield from _drawn(inner)
    yield ""
    yield "</details>"


def _breakdown(block: Breakdown) -> Iterator[str]:
    rows = (
        (bar.label, bar.figure, percent(bar.ratio), "█" * round(_BAR_WIDTH * bar.ratio))
        for bar in block.bars
    )
    yield from _grid((block.title, block.unit, "%", ""), (False, True, True, False), rows)


def _ladder(block: Ladder) -> Iterator[str]:
    rows = (
        (
            f"{rung.number}. {rung.label}" if rung.number else rung.label,
            rung.figure,
            rung.between,
            rung.takes,
            "█" * round(_BAR_WIDTH * rung.ratio),
        )
        for rung in block.rungs
    )
    heads = (block.title, block.unit, "range", "takes", "")
    yield from _grid(heads, (False, True, True, False, False), rows)
    yield from ("", escape(block.note)) if block.note else ()


def _finding(block: FindingCard) -> Iterator[str]:
    yield f"### {block.number}. {escape(block.id)}: {escape(block.gain)}"
    yield ""
    yield escape(block.summary)
    yield ""
    for fact in block.facts:
        label = f"**{escape(fact.label)}**" if fact.kind == "strong" else escape(fact.label)
        yield f"- {label}: {code(fact.text) if fact.kind == 'place' else escape(fact.text)}"
        if fact.label == "fix":
            yield from (f"  {code(line)}<br>" for line in block.code)


def _table(block: Table) -> Iterator[str]:
    if block.title:
        yield f"**{escape(block.title)}**"
        yield ""
    shown = block.rows if block.most is None else block.rows[:_TABLE_ROWS]
    numeric = block.numeric or (False, *[True] * (len(block.heads) - 1))
    yield from _grid(block.heads, numeric, shown, block.below)
    left_out = block.left_out + len(block.rows) - len(shown)
    for remark in (f"and {left_out:,} more {block.more}" if left_out else "", block.note):
        if remark:
            yield ""
            yield escape(remark)


def _grid(
    heads: Iterable[str],
    numeric: Iterable[bool],
    rows: Iterable[Iterable[str]],
    below: Sequence[tuple[Fact, ...]] = (),
) -> Iterator[str]:
    yield f"| {' | '.join(map(escape, heads))} |"
    yield f"|{'|'.join('---:' if number else '---' for number in numeric)}|"
    for i, row in enumerate(rows):
        first, *others = map(escape, row)
        for fact in below[i] if below else ():
            first += f"<br>{escape(fact.label)} {escape(fact.text)}"
        yield f"| {' | '.join((first, *others))} |"
