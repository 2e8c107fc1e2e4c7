"""Any page as HTML: a file of its own, or a part of another page. No network, no script."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pinchpoint.frozen import dataclass
from pinchpoint.report.blocks import (
    Block,
    Breakdown,
    ByClock,
    FindingCard,
    Gap,
    Heading,
    Ladder,
    Page,
    Table,
    Title,
)
from pinchpoint.report.plain import plain

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

_LONGEST_TEXT = 1000  # characters of a paragraph; names in it can have megabytes
_CLOCKS = (("unprofiled", "without the profiler"), ("recorded", "as recorded"))
_LONGEST_ANCHOR = 40  # characters
_STYLES = ("blocks.css", "answer.css", "ladder.css", "memory_shapes.css", "ranks_shapes.css")


@dataclass
class _Section:
    """Blocks on one card; a finding has a card of its own."""

    title: str
    blocks: list[Block]
    id: str = ""  # an anchor
    name: str = ""  # for the navigation, where neither title nor blocks say one

    @property
    def label(self) -> str:
        """What the navigation calls it: its title, or that of what it begins with."""
        first = self.blocks[0] if self.blocks else None
        first = first.unprofiled if isinstance(first, ByClock) else first
        match first:
            case Ladder():
                return self.title or "Changes"
            case Breakdown():
                return self.title or "Breakdown"
            case Table():
                return self.title or _capital(first.title or first.heads[0])
            case FindingCard(number=1):
                return self.title or "Findings"
            case _:
                return self.title or getattr(first, "title", "") or self.name


def render(page: Page, home: str | None = None) -> str:
    """One self-contained file; ``home`` is an address to go back to."""
    title = next((block for block in page.blocks if isinstance(block, Title)), Title(""))
    sections = list(_sections(page.blocks))
    if sections and not sections[0].label:
        sections[0].id, sections[0].name = "overview", "Overview"
    return template("document.html").render(
        title=title,
        body=_drawn(sections),
        contents=[(s.id, plain(_short(s.label), 40)) for s in sections if s.id and s.label],
        style=_style(),
        home=home,
        clocks=_CLOCKS if any(isinstance(block, ByClock) for block in page.blocks) else (),
        name=plain(title.name),
    )


def fragment(blocks: Iterable[Block]) -> "Markup":
    """Blocks without page and style; titles and anchors are left to the page around them."""
    sections = list(_sections(blocks))
    for section in sections:  # a ladder inside leads to its findings
        section.id = section.id if section.id.startswith("finding-") else ""
    return _drawn(sections)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _short(label: str) -> str:
    """A title that goes on after its first words is cut there, not in the middle of a word."""
    return label.partition(": ")[0]


def _drawn(sections: list[_Section]) -> "Markup":
    from markupsafe import Markup

    drawn = _environment("pinchpoint.report", cleaning=True).get_template("blocks.html")
    return Markup(drawn.render(sections=sections))


def in_notebook(page: Page) -> str:
    """A page inside a notebook: styles that reach nothing else, no script, no network."""
    title = next((block for block in page.blocks if isinstance(block, Title)), Title(""))
    return template("in_notebook.html").render(
        title=title, body=fragment(page.blocks), style=source("notebook.css")
    )


@cache
def template(name: str, package: str = "pinchpoint.report") -> "Template":
    """A template of a package, which escapes whatever it is given."""
    return _environment(package).get_template(name)


def source(name: str) -> str:
    """The text of a style sheet or script of this package."""
    return (files("pinchpoint.report") / "templates" / name).read_text("utf-8")


def _sections(blocks: Iterable[Block]) -> Iterator[_Section]:
    """Cards; those that a navigation can name get an anchor of their own, findings by their id."""
    taken: set[str] = set()
    for section in _cards(blocks):
        card = section.blocks[0] if section.blocks else None
        words = f"finding-{card.key or card.id}" if isinstance(card, FindingCard) else section.label
        anchor = re.sub(r"[^a-z0-9]+", "-", words.lower())[:_LONGEST_ANCHOR].strip("-")
        section.id = anchor if anchor not in taken else ""
        taken.add(anchor)
        yield section


def _cards(blocks: Iterable[Block]) -> Iterator[_Section]:
    now = _Section("", [])
    for block in blocks:
        if isinstance(block, Title):
            continue
        if isinstance(block, Gap | Heading | FindingCard) and now.blocks:
            yield now
            now = _Section("", [])
        if isinstance(block, FindingCard):
            yield _Section("", [block])
        elif isinstance(block, Heading):
            now.title = block.text
        elif not isinstance(block, Gap):
            now.blocks.append(block)
    if now.blocks:
        yield now


@cache
def _style() -> str:
    return "".join(map(source, _STYLES))


@cache
def _environment(package: str, *, cleaning: bool = False) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned if cleaning else None,
    )


def _cleaned(value: Any) -> Any:
    """Every text that a block shows, as one printable line; markup of our own as it is."""
    return plain(value, _LONGEST_TEXT) if type(value) is str else value
