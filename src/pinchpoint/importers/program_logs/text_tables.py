"""Tables that programs print among other lines: between pipes, in boxes, in aligned columns."""

from pinchpoint.importers.files.units import UNKNOWN, unit_of, unit_of_key
from pinchpoint.importers.program_logs._figures import parsed
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_PIPES = str.maketrans("│┃║", "|||")
_RULE = regex(r"[\s|+:=_\-─━═┄┼╪╋┿╇┡┩├┤┝┥╞╡┏┓┗┛┌┐└┘┬┴┳┻╒╕╘╛╤╧╔╗╚╝╠╣╦╩╟╢╫]+$")
_GAP = regex(r"\t+| {2,}")
_NUMBER = regex(
    r"[~<>≈+-]{0,2}\$?(\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)\s?(?:±.{0,20}|[%×A-Za-zµ°/]{0,12}|\(.{0,20}\))?$"
)
_NOTHING = ("-", "--", "none", "nan", "n/a", "null", "true", "false")  # values, not names
_VALUE = regex(r"[~<>≈+-]{0,2}\d[\d,.]*\s?([%A-Za-zµ°][\w/µ°]{0,15})$")
_LEAST_COLUMNS, _LEAST_ROWS = 2, 2  # one line below another may stand alike by chance
_MOST_COLUMNS, _MOST_ROWS, _MOST_TABLES = 40, 1000, 40  # more nobody reads on one page
_LONGEST_CELL = 100  # characters; longer than a page is wide


class TextTables:
    """Each table with a header and numbers below it."""

    def __init__(self) -> None:
        self._header: tuple[str, ...] = ()
        self._rows: list[tuple[str, ...]] = []
        self._piped = False
        self._line_before, self._title, self._ruled = "", "", False
        self._passed = ""
        self._found: dict[tuple[str, tuple[str, ...]], list[tuple[str, ...]]] = {}

    def line(self, text: str) -> str:
        """Looks at one line; empty where it is a row of a table."""
        if self._passed:
            bare = self._passed.strip().translate(_PIPES)
            self._line_before, self._passed = bare[:_LONGEST_CELL] or self._line_before, ""
        bare = text.strip().translate(_PIPES)
        if bare and _RULE.match(bare):
            self._ruled = True
            if self._rows and not self._piped:
                self._close()
            return ""
        piped = bare.count("|") >= 2 and (bare[0] == "|" or bare[-1] == "|")
        if piped != self._piped and (self._header or piped):
            self._close()
            self._piped = piped
        cells = self._cells(bare, piped)
        if self._header and len(cells) != len(self._header) and not piped:
            cells = tuple(bare.split()) if len(bare.split()) == len(self._header) else cells
        taken = self._take(cells, piped)
        if not taken:
            if self._header:
                self._close()
            if self._is_header(cells, piped):
                self._header, self._title, self._piped = cells, self._line_before, piped
                taken = piped
        if bare:
            self._line_before = bare[:_LONGEST_CELL]
        self._ruled = False
        return "" if taken else text

    def is_open(self) -> bool:
        """Whether the next line may be of a table that has begun."""
        return bool(self._header or self._rows) or self._piped

    def passed(self, text: str) -> None:
        """A line that is of no table."""
        self._passed, self._ruled = text, False

    def _cells(self, bare: str, piped: bool) -> tuple[str, ...]:
        parts = bare.strip("|").split("|") if piped else _GAP.split(bare) if bare else []
        return tuple(part.strip().strip("*`")[:_LONGEST_CELL] for part in parts)

    def _take(self, cells: tuple[str, ...], piped: bool) -> bool:
        if not self._header or len(cells) != len(self._header):
            return False
        numbers = sum(_NUMBER.match(cell) is not None for cell in cells)
        if not piped and 2 * numbers < len(cells) - 1:
            return False
        if len(self._rows) < _MOST_ROWS:
            self._rows.append(cells)
        return True

    def _is_header(self, cells: tuple[str, ...], piped: bool) -> bool:
        with_unit = len(cells) == 2 and any(unit_of_key(cell).family for cell in cells)
        least = _LEAST_COLUMNS if piped or with_unit else 3
        if not least <= len(cells) <= _MOST_COLUMNS:
            return False
        if not piped and any(cell.lower() in _NOTHING for cell in cells):
            return False
        if any(_unit(cell) for cell in cells[1:]):
            return False  # a value with its unit
        named = [cell for cell in cells if cell and parsed(cell) is None]
        if piped and any(_GAP.search(cell) for cell in cells):
            return False  # heads over several columns, as nvidia-smi draws them
        return len(named) >= len(cells) - 1 and not any(":" in c or "=" in c for c in cells[:1])

    def _close(self) -> None:
        number = [
            any(_NUMBER.match(row[at]) for row in self._rows) for at in range(len(self._header))
        ]
        if len(self._rows) >= (1 if self._piped else _LEAST_ROWS) and any(number):
            name = (self._title if self._title.endswith(":") else "", self._header)
            if name in self._found or len(self._found) < _MOST_TABLES:
                rows = self._found.setdefault(name, [])
                rows += self._rows[: _MOST_ROWS - len(rows)]
        self._header, self._rows, self._piped = (), [], False

    def measured(self) -> bool:
        """Whether a table has a column or cells with a unit."""
        self._close()
        return any(
            unit_of_key(name).family or any(_unit(row[at]) for row in rows[:5])
            for (_, header), rows in self._found.items()
            for at, name in enumerate(header)
        )

    def tables(self) -> tuple[SummaryTable, ...]:
        """In the order of the log; one header is one table, however often it is printed."""
        self._close()
        return tuple(
            SummaryTable(
                header, tuple(rows), title.rstrip(":").strip("# *") or "a table of the log"
            )
            for (title, header), rows in self._found.items()
        )


def _unit(cell: str) -> bool:
    found = _VALUE.match(cell)
    return found is not None and unit_of(found[1]) is not UNKNOWN


__all__ = ["TextTables"]
