"""What a page for people is made of: a small closed set of blocks.

For each kind of document a module of ``pages`` turns it into blocks: its words are there. Each
renderer (terminal, Markdown, HTML) draws every block: layout, escaping and nothing else.
"""

from collections.abc import Callable
from typing import Literal

from pinchpoint.frozen import dataclass

Role = Literal["plain", "strong", "step", "good", "bad", "warning", "soft"]


@dataclass(frozen=True)
class Title:
    """What the page is about, and facts about that."""

    name: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heading:
    """The name of a part of the page."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; a label stands before it, as in ``Not checked: …``."""

    text: str
    role: Role = "plain"
    label: str = ""
    figure: str = ""  # the part of the text that the eye looks for
    answers: str = ""  # which questions of a reader, as ``how slow, why``


@dataclass(frozen=True)
class Items:
    """Short texts, one a line: remarks, or warnings."""

    texts: tuple[str, ...]
    role: Role = "plain"


@dataclass(frozen=True)
class Command:
    """A command to copy."""

    text: str
    label: str = "Next"


@dataclass(frozen=True)
class Bar:
    """A part of a whole: its figure in words and its share, 0 to 1."""

    label: str
    figure: str
    ratio: float
    group: str = ""  # colour: device, exposed, idle, host, …
    id: str = ""


@dataclass(frozen=True)
class Breakdown:
    """Parts that add up to a whole, largest first."""

    title: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Rung:
    """A step after a change, as shares of today's step; ``low`` and ``high`` are its range."""

    label: str
    figure: str
    ratio: float
    low: float
    high: float
    between: str = ""  # the range in words
    takes: str = ""  # what the change takes, in words
    role: Literal["today", "finding", "piece", "together"] = "finding"
    id: str = ""  # of the finding
    number: int | None = None


@dataclass(frozen=True)
class Ladder:
    """Today's step first, then the step after each change, the one to make first first."""

    title: str
    unit: str
    rungs: tuple[Rung, ...]
    note: str = ""  # why in this order
    answers: str = "what first, how sure"


@dataclass(frozen=True)
class Fact:
    """A labelled text, drawn as what it is."""

    label: str
    text: str
    kind: Literal["plain", "shown", "place", "strong"] = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of short texts, most important first.

    Without a title the first head names the table. What does not fit into a line loses columns from
    the right, and text is cut; ``whole`` tables keep all columns and go on below.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...] = ()  # which columns are figures; empty: all but the first
    title: str = ""
    note: str = ""
    most: int | None = None  # rows that an overview shows
    left_out: int = 0  # rows that not even the document has
    more: str = "rows"  # what those that are not shown are, and where they are
    below: tuple[tuple[Fact, ...], ...] = ()  # what is said below each row
    spaced: bool = False  # room below each row
    whole: bool = False
    says_cut: bool = False  # names the columns that found no room
    dense: bool = False  # one space between columns
    least: int = 20  # characters of the first column that are kept whatever the others need


@dataclass(frozen=True)
class Records:
    """Things with a few sentences each: a table where there is room, else one below the other."""

    label: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class FindingCard:
    """One cause: what it is worth, its facts, and the lines of code that show the fix."""

    number: int
    id: str
    gain: str
    summary: str
    facts: tuple[Fact, ...] = ()
    code: tuple[str, ...] = ()  # belongs to the fact that is labelled ``fix``
    gain_recorded: str = ""  # the gain on the other clock, where a page has a switch
    key: str = ""  # what tells it from others of the same id

    def fact(self, label: str) -> str:
        """The fact with a label; empty where there is none."""
        return next((fact.text for fact in self.facts if fact.label == label), "")


@dataclass(frozen=True)
class First:
    """What to change first, beside the ladder; findings that follow at once say it themselves."""

    card: FindingCard
    ladder: Ladder | None


@dataclass(frozen=True)
class ByClock:
    """The same without the profiler and as recorded; formats without a switch show the first."""

    unprofiled: "Block"
    recorded: "Block"


@dataclass(frozen=True)
class Details:
    """Blocks that only unfold when wanted, where a format can do that."""

    title: str
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True)
class Figure:
    """A picture: SVG where that can be shown, lines of text elsewhere."""

    title: str
    lines: tuple[str, ...] = ()
    svg: Callable[[], str] | None = None  # escapes what it draws
    note: str = ""  # how to read the picture
    legend: tuple[tuple[str, str], ...] = ()  # class of a colour, what it is


@dataclass(frozen=True)
class Gap:
    """Room between two parts, where a format does not make it by itself."""


Block = (
    Title
    | Heading
    | Text
    | Items
    | Command
    | Breakdown
    | Ladder
    | Table
    | Records
    | FindingCard
    | First
    | ByClock
    | Details
    | Figure
    | Gap
)


@dataclass(frozen=True)
class Page:
    """Blocks in order; a title comes first."""

    blocks: tuple[Block, ...]

    @property
    def title(self) -> str:
        """The name of the first title."""
        return next((block.name for block in self.blocks if isinstance(block, Title)), "")
