"""Writes docs/reference/operators.md from the table of operators; a test compares."""

from pathlib import Path

from pinchpoint.diagnosis.evidence.operators import Known, elsewhere, table

PAGE = Path(__file__).parent / "reference/operators.md"

HEAD = """# Operators that are known to be slow

Where an operator of a recording is far from what the machine allows, a finding says why, if its
name or its kernel's is in this table: `src/pinchpoint/diagnosis/evidence/operators.json`, made
into this page by `docs/refresh_operators.py`. An entry is an operator or a kernel as recordings
spell it, what makes it slow, what to do instead, and where that is written. Anyone can add one; a
test finds each entry by its example. Being in the table makes nothing slow: the
[limit](../explanation/causal.md#the-limit) does.

| as recorded | slow because | instead | source |
|---|---|---|---|
"""

RULES = """
## What no name tells

| what | found by | source |
|---|---|---|
"""

NOT_TOLD = """
## What a recording does not tell

| what | why not | source |
|---|---|---|
"""


def text() -> str:
    """The page as it should be."""
    rows = [_row(_names(e), e.why, e.instead, e.source) for e in table()]
    told = [_row(e.what, f"`{e.rule}`", e.source) for e in elsewhere() if e.rule]
    not_told = [_row(e.what, e.why_not or "", e.source) for e in elsewhere() if not e.rule]
    return HEAD + "".join(rows) + RULES + "".join(told) + NOT_TOLD + "".join(not_told)


def _names(entry: Known) -> str:
    return ", ".join(f"`{name}`" for name in entry.example if name)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
