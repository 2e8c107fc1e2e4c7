"""Tables that profilers of Python print: cProfile's functions, line_profiler's lines.

Both know the host alone: how long calls took, not what a device did meanwhile.
"""

from pinchpoint.importers.program_logs._figures import parsed, said_table, shown
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_CALLS = regex(r"\s*(\d+) function calls .{0,60}?in (\d+\.\d+) seconds\s*$")
_FUNCTIONS = regex(
    r"\s*ncalls\s+tottime\s+percall\s+cumtime\s+percall\s+filename:lineno\(function\)"
)
_FUNCTION = regex(r"\s*(\d+(?:/\d+)?)\s+(\d+\.\d+)\s+\S+\s+(\d+\.\d+)\s+\S+\s+(\S.*?)\s*$")
_UNIT = regex(r"Timer unit: (\S+) s\s*$")
_OF_FUNCTION = regex(r"Function: (\S{1,200}) at line \d+\s*$")
_FILE = regex(r"File: (\S.{0,400}?)\s*$")
_LINES = regex(r"Line #\s+Hits\s+Time\s+Per Hit\s+% Time\s+Line Contents")
_LINE = regex(r"\s*(\d+)\s+(\d+)\s+([\d.]+)\s+[\d.]+\s+([\d.]+)\s(.*)$")
_RULE = regex(r"\s*=+\s*$")
_OPTIONS = ("Ordered by:", "List reduced", "Random listing")
_MOST_ROWS = 20_000  # of one table: a program calls some thousand functions
_MOST_TABLES = 100  # a program that prints one an epoch
_DEVICE = ("to see what a device did", "pinchpoint run COMMAND")


class PythonProfiles:
    """Each of cProfile's tables, the heaviest function first; lines of line_profiler as one."""

    def __init__(self) -> None:
        self._functions: list[tuple[float, tuple[str, ...]]] = []
        self._in_functions = self._in_lines = False
        self._whole = 0.0  # seconds of the table that is printed
        self._found: list[SummaryTable] = []
        self._calls: list[tuple[str, str]] = []
        self._unit, self._file, self._function = 0.0, "", ""
        self._lines: list[tuple[float, tuple[str, ...]]] = []

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty within a table and the lines that introduce it."""
        if self._in_functions or self._in_lines:
            if self._row(text):
                return ""
            if text.strip() and not _RULE.match(text):
                self._close()
        if "function calls" in text and (found := _CALLS.match(text)):
            self._close()
            self._whole = parsed(found[2]) or 0.0
            self._calls.append(("function calls", f"{int(found[1]):,} in {found[2]} s"))
            return ""
        if "ncalls" in text and _FUNCTIONS.match(text):
            self._close()
            self._in_functions = True
            return ""
        return "" if self._of_lines(text) or text.lstrip().startswith(_OPTIONS) else text

    def is_open(self) -> bool:
        """Whether the next line may be of a table that has begun."""
        return self._in_functions or self._in_lines

    def _of_lines(self, text: str) -> bool:
        """What line_profiler says before its table of a function."""
        if text.startswith("Timer unit:") and (found := _UNIT.match(text)):
            self._unit = parsed(found[1]) or 0.0
        elif text.startswith("Total time: "):
            return self._unit > 0  # of other programs, it is not this one's
        elif text.startswith("File: ") and (found := _FILE.match(text)):
            self._file = found[1].replace("\\", "/").rpartition("/")[2]
            return False  # other programs say so too
        elif text.startswith("Function: ") and (found := _OF_FUNCTION.match(text)):
            self._function = found[1]
        elif text.startswith("Line #") and _LINES.match(text):
            self._in_lines = True
        else:
            return False
        return True

    def _row(self, text: str) -> bool:
        if self._in_lines:
            if found := _LINE.match(text):
                self._add_line(found[1], found[2], found[3], found[4], found[5].strip())
                return True
            return bool(text[:1].isspace() and text.strip()[:1].isdigit())  # a line that never ran
        if found := _FUNCTION.match(text):
            own = parsed(found[2]) or 0.0
            if len(self._functions) < _MOST_ROWS:
                share = f"{100 * own / self._whole:.1f} %" if self._whole else ""
                row = (found[4], share, found[2], found[3], found[1])
                self._functions.append((own, row))
            return True
        return False

    def _add_line(self, number: str, hits: str, time: str, share: str, code: str) -> None:
        took = (parsed(time) or 0.0) * self._unit
        if took and len(self._lines) < _MOST_ROWS:
            place = f"{self._file}:{number}" if self._file else number
            row = (code, place, f"{share} %", shown(took), self._function, hits)
            self._lines.append((took, row))

    def _close(self) -> None:
        if self._functions and len(self._found) < _MOST_TABLES:
            columns = ("function", "share", "own time (s)", "cumulative (s)", "calls")
            title = "functions, as Python's cProfile sums them"
            self._found.append(SummaryTable(columns, _heaviest_first(self._functions), title))
        self._functions, self._in_functions, self._in_lines = [], False, False

    def tables(self) -> tuple[SummaryTable, ...]:
        """Those of cProfile in the order of the log, then the lines of all functions."""
        self._close()
        found = tuple(self._found)
        if self._lines:
            columns = ("line", "at", "of its function", "time (s)", "in", "hits")
            title = "lines, as line_profiler times them"
            found += (SummaryTable(columns, _heaviest_first(self._lines), title),)
        if not found:
            return ()
        return (*found, *said_table("of the host alone", [*self._calls[:_MOST_TABLES], _DEVICE]))


def _heaviest_first(rows: list[tuple[float, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    return tuple(row for _, row in sorted(rows, key=lambda one: -one[0]))


__all__ = ["PythonProfiles"]
