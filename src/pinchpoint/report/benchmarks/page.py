"""What there is to say about a benchmark, without a format."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["pass", "fail", "inconclusive", "warn"]


@dataclass(frozen=True)
class Table:
    """Rows of short texts under a header; the first column is text, the others are figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Case:
    """One gated measure: what a test report or an annotation shows."""

    name: str
    outcome: Outcome
    message: str


@dataclass(frozen=True)
class Page:
    """A title, the verdict, what it rests on, and what to do next."""

    title: str
    headline: str
    verdict: str | None = None
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    next_command: str | None = None
