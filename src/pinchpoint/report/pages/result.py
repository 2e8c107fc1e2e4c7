"""What there is to say about a benchmark or a comparison: the same parts for each kind of it."""

from typing import Literal

from pinchpoint.frozen import dataclass
from pinchpoint.report.blocks import (
    Block,
    Command,
    Figure,
    Gap,
    Heading,
    Ladder,
    Page,
    Role,
    Table,
    Text,
    Title,
)
from pinchpoint.report.quantity import number, quantity

Outcome = Literal["pass", "fail", "inconclusive", "warn"]


@dataclass(frozen=True)
class Case:
    """One gated measure: what a test report or an annotation shows."""

    name: str
    outcome: Outcome
    message: str
    improved: bool = False  # better, for certain; its outcome is a pass


@dataclass(frozen=True)
class Place:
    """A source line that a result names: where annotations stand."""

    file: str  # below the top of the repository
    line: int
    function: str  # empty outside of functions
    said: str  # a sentence about it


@dataclass(frozen=True)
class ResultPage:
    """A title, the verdict, what it rests on, and what to do next."""

    title: str
    headline: str
    verdict: str | None = None
    reasons: tuple[Text, ...] = ()  # said before the figures
    to_tell: str = ""  # what would tell, where this does not
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    next_command: str | None = None
    answer: str = ""  # whether a fix worked, before everything else
    ladder: Ladder | None = None  # the picture of that
    headline_answers: str = ""  # which questions of a reader; empty: that of its verdict
    place: Place | None = None  # of what failed


def table(title: str, header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Table:
    """Short texts under a header that begins with the title; the other columns are figures."""
    return Table((title, *header[1:]), rows, whole=True)


def blocks(result: ResultPage) -> Page:
    """The same as blocks."""
    judged = bool(result.verdict and not result.answer)
    role: Role = "strong" if judged else "plain"
    answers = result.headline_answers or "did it work" * judged
    said: list[Block] = [Title(result.title)]
    if result.answer:
        said.append(Text(f"{result.answer}.", "strong", answers="did it work"))
    if result.ladder is not None:
        said.append(result.ladder)
    said.append(Text(result.headline, role, result.verdict or "", answers=answers))
    if result.to_tell:
        said.append(Text(result.to_tell, label="To tell", answers="what first"))
    if result.reasons:
        said += [Gap(), Heading("What changed"), *result.reasons]
    said += result.figures
    for shown in result.tables:
        said += [Gap(), shown]
    if result.warnings or result.notes:
        said += [Gap(), Heading("How far to trust this")]
    said += [Text(text, "warning", "warning") for text in result.warnings]
    said += [Text(text, label="note") for text in result.notes]
    if result.next_command:
        said += [Gap(), Command(result.next_command)]
    return Page(tuple(said))


# ------------------------------------------------------------------------------------------------
# Figures of benchmarks as people read them.


def figure(value: float | None, unit: str) -> str:
    """A value in the unit of its measure; ``-`` where there is none."""
    if value is None:
        return "-"
    if unit in ("bytes", "ratio"):
        return quantity(value, unit)
    return f"{number(value)} {unit}".strip()


def range_of(interval: tuple[float | None, float | None] | None, unit: str = "") -> str:
    """An interval of values in the unit of the measure; without one, bare numbers."""
    if interval is None or interval == (None, None):
        return "-"
    if None in interval:
        low = interval[0] is not None
        return f"{'at least' if low else 'at most'} {figure(interval[0 if low else 1], unit)}"
    return f"{figure(interval[0], unit)} to {figure(interval[1], unit)}"
