"""Tables of operators as ``key_averages().table()`` of PyTorch prints them, of any version.

Rules of dashes stand above and below the header and below the rows; they tell how wide columns are.
PyTorch before 1.8 says ``Self CPU total`` and ``Number of Calls``, and no device's own time.
"""

from pinchpoint.importers.program_logs._figures import parsed, said_table
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

TABLE = (  # what such a table begins with: three lines and a row
    rb"^ *-{5,}(?:  -{5,})+ *\r?\n *Name +(?:Self CPU|CPU total|CPU time)[^\n]*\n *-{5,}[^\n]*\n"
    rb" *\S[^\n]*\d(?:us|ms|s|%)\b"
)
_RULE = regex(r" *-{5,}(?:  -{5,})+ *$")
_COLUMN = regex(r"-{5,}")
_GAP = regex(r" {2,}")
_TOTAL = regex(r"(Self \w+ time total|\w+ time total): +(\d[\d.]*(?:us|ms|s))\s*$")
# Of columns that are shown first; a device may be CUDA, XPU, NPU or any other.
_FIRST = (
    regex(r"Name"),
    regex(r"Self (?!CPU)\w+(?<!Mem)"),
    regex(r"Self (?!CPU)\w+ %"),
    regex(r"(?!CPU)\w+ total"),
    regex(r"Self CPU(?: total)?"),
    regex(r"CPU total"),
    regex(r"# of Calls|Number of Calls"),
)
_TIME = regex(r"([\d.]+)(us|ms|s)$")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}  # seconds
_MOST_ROWS = 10_000  # of one table; an operator a row
_MOST_TABLES = 100  # a program that prints one a step
_RECORD = 'prof.export_chrome_trace("trace.json")'


class Operators:
    """Each table, its device's time before the host's."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._header: tuple[str, ...] = ()
        self._rows: list[tuple[str, ...]] = []
        self._found: list[SummaryTable] = []
        self._totals: dict[str, str] = {}

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty within a table."""
        if "-----" in text and _RULE.match(text):
            if self._rows:
                self._close()
            elif not self._header:
                self._spans = [found.span() for found in _COLUMN.finditer(text)]
        elif self._header:
            if len(self._rows) < _MOST_ROWS and (cells := self._cut(text)) is not None:
                self._rows.append(cells)
        elif self._spans:
            # old headers are a letter wider than their columns
            cells = tuple(_GAP.split(text.strip()))
            if cells[0] == "Name" and "CPU" in text and len(cells) > 1:
                self._header = cells
            else:
                self._spans = []
        elif "time total: " in text and (found := _TOTAL.search(text)):
            self._totals[found[1]] = found[2]
            return ""
        return "" if self._header else text

    def is_open(self) -> bool:
        """Whether the next line may be of a table that has begun."""
        return bool(self._header or self._spans)

    def _cut(self, text: str) -> tuple[str, ...] | None:
        """By the rule; where somebody has moved what stood below it, by gaps or from the right."""
        count, ends = len(self._header), [end for _, end in self._spans[:-1]]
        if len(ends) == count - 1 and not any(text[end : end + 2].strip() for end in ends):
            begins = [0, *ends]
            return tuple(text[b:e].strip() for b, e in zip(begins, [*ends, None], strict=True))
        for cells in (_GAP.split(text.strip()), text.strip().rsplit(None, count - 1)):
            if len(cells) == count:
                return tuple(cells)
        return None

    def _close(self) -> None:
        order = sorted(range(len(self._header)), key=lambda at: _rank(self._header[at]))
        header, *rows = (tuple(cells[at] for at in order) for cells in (self._header, *self._rows))
        rows = _heaviest_first(header, rows)
        if len(self._found) < _MOST_TABLES:
            self._found.append(SummaryTable(header, tuple(rows), "operators, as PyTorch sums them"))
        self._header, self._rows, self._spans = (), [], []

    def tables(self) -> tuple[SummaryTable, ...]:
        """All, and what they add up to; a log that ends within one has its rows too."""
        if self._rows:
            self._close()
        if not self._found:
            return ()
        rows = [*self._totals.items(), ("to see when each ran", _RECORD)]
        return (*self._found, *said_table("of all operators", rows))


def _heaviest_first(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """By the device's own time, or the host's where no device worked; a program sorts by any."""
    for own in (regex(r"Self (?!CPU)\w+(?<!Mem)"), regex(r"Self CPU(?: total)?")):
        at = next((n for n, name in enumerate(header) if own.fullmatch(name)), None)
        if at is not None and any(_seconds(row[at]) for row in rows):
            return sorted(rows, key=lambda row: -_seconds(row[at]))
    return rows


def _seconds(cell: str) -> float:
    found = _TIME.match(cell)
    return (parsed(found[1]) or 0.0) * _UNITS[found[2]] if found else 0.0


def _rank(column: str) -> int:
    return next((n for n, name in enumerate(_FIRST) if name.fullmatch(column)), len(_FIRST))
