"""What ncu prints to a terminal: sections with tables, and the rules' paragraphs between them."""

import re
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.importers.ncu.display_names import metric_of
from pinchpoint.importers.ncu.launch import Launch, Launches, RuleResult
from pinchpoint.importers.ncu.values import decimal_sign, is_nothing, number, triple

# "  name (2, 66, 1)x(384, 1, 1), Context 1, Stream 7, Device 0, CC 9.0"; before 2022 the sizes
# were left out: "  name, 2022-Jan-01 12:00:00, Context 1, Stream 7"
_LAUNCH = re.compile(
    r"^  (?P<name>\S.*?)(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?"
    r"(?:, \d{4}-\w+-\d+ [\d:]+)?, Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+), CC (?P<major>\d+)\.(?P<minor>\d+))?\s*$"
)
_SECTION = re.compile(r"^    Section: (.+?)\s*$")
_RULE = re.compile(r"^    (OPT|INF|WRN|ERR)\s+(?:Est\. (Local )?Speedup: ([\d.,]+)%\s*)?(.*?)\s*$")
_DASHES = re.compile(r"^    (-+) (-+) (-+)\s*$")
_LONGEST_LINE = 65536


def looks_like_text(text: str) -> bool:
    """Whether the text has a launch line or a metric table of ncu's terminal output."""
    return any(_LAUNCH.match(line) or _SECTION.match(line) for line in text.splitlines())


def read_text(path: Path) -> Launches:
    """All launches in terminal output, other lines left aside."""
    reader = _Reader()
    with path.open("r", encoding="utf-8", errors="replace", newline=None) as file:
        for line in _short_lines(file):
            reader.take(line)
    return Launches(tuple(reader.finished()))


def _short_lines(file: Iterator[str]) -> Iterator[str]:
    return (line.rstrip("\n") for line in file if len(line) <= _LONGEST_LINE)


class _Reader:
    """Goes through the lines once and remembers where it is."""

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._rows: list[tuple[Launch, str, str, str]] = []
        self._section = ""
        self._columns: tuple[int, int] | None = None
        self._rule: tuple[str, str | None, str | None, list[str]] | None = None

    def take(self, line: str) -> None:
        """Understand one line."""
        if (launch := _LAUNCH.match(line)) is not None:
            self._end_rule()
            self._launches.append(_launch(launch))
        elif (section := _SECTION.match(line)) is not None:
            self._end_rule()
            self._section, self._columns = section[1], None
        elif (dashes := _DASHES.match(line)) is not None:
            self._columns = (5 + len(dashes[1]), 6 + len(dashes[1]) + len(dashes[2]))
        elif (rule := _RULE.match(line)) is not None:
            self._end_rule()
            kind = ("local" if rule[2] else "global") if rule[3] else None
            self._rule = (rule[1], kind, rule[3], [rule[4]])
        elif self._rule is not None and line.startswith("          "):
            self._rule[3].append(line.strip())
        elif line.strip() == "":
            self._end_rule()
        elif self._columns is not None and self._launches and line.startswith("    "):
            self._take_row(line, *self._columns)

    def finished(self) -> list[Launch]:
        """The launches, once all lines are taken."""
        self._end_rule()
        decimal = decimal_sign(value for _, _, _, value in self._rows)
        for launch, metric, unit, text in self._rows:
            if (value := number(text, decimal)) is not None:
                launch.numbers[metric] = (value, unit)
            elif not is_nothing(text):
                launch.texts[metric] = text
        return self._launches

    def _take_row(self, line: str, unit_at: int, value_at: int) -> None:
        name, unit, value = (
            line[4:unit_at].strip(), line[unit_at:value_at].strip(), line[value_at:].strip()
        )  # fmt: skip
        if name and value and name != "Metric Name":
            metric = metric_of(self._section, name)
            self._rows.append((self._launches[-1], metric, unit, value))

    def _end_rule(self) -> None:
        if self._rule is None:
            return
        kind, speedup_kind, speedup, lines = self._rule
        self._rule = None
        if self._launches:
            percent = number(speedup, ".") if speedup else None
            text = " ".join(lines).strip()
            result = RuleResult("", self._section, kind, text, speedup_kind, percent)
            self._launches[-1].rules.append(result)


def _launch(match: re.Match[str]) -> Launch:
    part = match.groupdict()
    return Launch(
        part["name"],
        triple(part["grid"] or ""),
        triple(part["block"] or ""),
        int(part["context"]),
        int(part["stream"]),
        int(part["device"] or 0),
        (int(part["major"]), int(part["minor"])) if part["major"] else None,
    )
