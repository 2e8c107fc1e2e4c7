"""Tables that are printed in columns: a line of dashes below the header says how wide each is."""

import re
from collections.abc import Iterable, Iterator

from pinchpoint.regex import regex

_RULE = regex(r" *-{2,}(?: +-{2,}){3,} *$")


def printed_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    """Headers and rows of printed tables; each table ends with an empty line."""
    before = ""
    spans: list[tuple[int, int | None]] = []
    for text in lines:
        line = text.rstrip("\r\n")
        if _RULE.match(line):
            spans = [found.span() for found in re.finditer("-+", line)]
            spans[-1] = spans[-1][0], None  # names are not cut
            yield _cut(before, spans)
        elif not line.strip():
            spans = []
        elif spans:
            yield _cut(line, spans)
        before = line


def _cut(line: str, spans: list[tuple[int, int | None]]) -> list[str]:
    return [line[begin:end].strip() for begin, end in spans]
