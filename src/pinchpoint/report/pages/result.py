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
from pinchpoint.report.quantity import number, quantity, relative

Outcome = Literal["pass", "fail", "inconclusive", "warn"]


@dataclass(frozen=True)
class Case:
    """One gated measure: what a test report or an annotation shows."""

    name: str
    outcome: Outcome
    message: str
    improved: bool = False  # better, for certain; its outcome is a pass


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


ABSURD = 1000.0  # ratios beyond this say only that nothing is known


def figure(value: float | None, unit: str) -> str:
    """A value in the unit of its measure; ``-`` where there is none."""
    if value is None:
        return "-"
    if unit in ("bytes", "ratio"):
        return quantity(value, unit)
    return f"{number(value)} {unit}".strip()


def change(ratio: float | None) -> str:
    """A worsening as a signed percentage; from twice on as how many times."""
    if ratio is None:
        return "-"
    return relative(1.0, 1 + ratio) if abs(ratio) < ABSURD else f"over {ABSURD:.0f} ×"


def better_or_worse(ratio: float | None) -> str:
    """A worsening in words: ``48.0 % better``, ``3.1 % worse``, from twice on ``2.10 × worse``."""
    if ratio is None:
        return "-"
    return f"{_size(ratio)} {'worse' if ratio > 0 else 'better'}" if round(ratio, 3) else "the same"


def _size(ratio: float) -> str:
    """How much better or worse, without saying which."""
    return change(ratio).removesuffix(" less").lstrip("+-")


def worsening_range(interval: tuple[float, float] | None) -> str:
    """An interval of worsenings: ``9.6 to 44.6 % better``, ``2.1 % better to 3.0 % worse``."""
    if interval is None:
        return "-"
    low, high = sorted(interval)
    if low * high <= 0:
        return f"{better_or_worse(low)} to {better_or_worse(high)}"
    least, most = sorted((low, high), key=abs)
    said, unit = _size(least), _size(most)[-1]
    return f"{said.removesuffix(f' {unit}')} to {better_or_worse(most)}"


def change_range(interval: tuple[float, float] | None) -> str:
    """An interval of worsenings."""
    if interval is None:
        return "-"
    low, high = map(change, interval)
    return f"{low.removesuffix(' %') if high.endswith('%') else low} to {high}"


def range_of(interval: tuple[float | None, float | None] | None, unit: str = "") -> str:
    """An interval of values in the unit of the measure; without one, bare numbers."""
    if interval is None or interval == (None, None):
        return "-"
    if None in interval:
        low = interval[0] is not None
        return f"{'at least' if low else 'at most'} {figure(interval[0 if low else 1], unit)}"
    return f"{figure(interval[0], unit)} to {figure(interval[1], unit)}"
