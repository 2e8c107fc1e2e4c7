"""When a line of a log was printed, as its beginning says."""

import re
from datetime import datetime
from typing import NamedTuple

from pinchpoint.regex import regex


class Stamp(NamedTuple):
    """Seconds since an origin that is the log's own, and how finely they were printed."""

    seconds: float
    resolution_s: float
    form: int  # of the text; stamps of two forms may have two origins


class StampPlaces(NamedTuple):
    """Where the parts of a stamp stand in a line; none where it has none."""

    form: int
    spans: dict[str, tuple[int, int]]


_NO_CLOCK: dict[str, str | None] = dict.fromkeys(("h", "mi", "s"))
_DATE = r"(?P<y>\d{4})[-/.](?P<mo>\d\d?)[-/.](?P<d>\d\d?)"
_CLOCK = r"(?P<h>\d\d?):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,:](?P<f>\d{1,9}))?"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# At most so far from the beginning: behind a rank, a level, the name of a host.
_FORMS = (
    regex(rf"{_DATE}[T _-]{{1,2}}{_CLOCK} ?(?:Z|UTC|[+-]\d\d:?\d\d)?"),
    regex(rf"(?P<mo>\d\d?)/(?P<d>\d\d?)/(?P<y>\d{{4}})[- ,]{{1,2}}{_CLOCK}(?: [AP]M)?"),
    regex(rf"(?P<mo>\d\d)[-/](?P<d>\d\d)[ -]{_CLOCK}"),
    regex(rf"\b[IWEF](?P<mo>\d\d)(?P<d>\d\d) {_CLOCK}"),  # glog
    regex(rf"(?P<name>{'|'.join(_MONTHS)}) +(?P<d>\d\d?) {_CLOCK}"),
    regex(rf"(?<![\w:.])(?<!\d<){_CLOCK}(?![\w:%])"),
)
_CLOCK_ALONE = len(_FORMS) - 1  # the last form
_EPOCH = regex(r"\s*[\[(]?(?P<s>1[5-9]\d{8})(?:[.,](?P<f>\d{1,9}))?[\])]?(?=[\s:,;])")
_DIGITS = regex(r"\d\d:\d\d")
_NEAR = 60  # characters before a stamp: a rank, a host, a level
_FIRST_YEAR = 2000  # of logs that name none; only differences count
_DAY = 86_400  # seconds


class Stamps:
    """Reads the stamps of one log: the form that its lines have is tried first."""

    def __init__(self) -> None:
        self._form = 0
        self._days: dict[tuple[int, int, int], int] = {}
        self._last_clock = -1.0
        self._past_midnight = 0
        self._last: re.Match[str] | None = None

    def of(self, text: str) -> tuple[Stamp | None, str]:
        """The stamp of a line, and the line without it."""
        self._last = None
        near = text[: _NEAR + 40]
        if _DIGITS.search(near) is None:
            begins = text[:1].isdigit() or text[:2] in ("[1", "(1")
            if begins and (found := _EPOCH.match(text)):
                return _stamp(int(found["s"]), found["f"], -1), text[found.end() :]
            return None, text
        for number in (self._form, *range(len(_FORMS))):
            found = _FORMS[number].search(near)
            if found is None or found.start() > _NEAR:
                continue
            if number == _CLOCK_ALONE and said_by(near[: found.start()]).strip("[( "):
                return None, text  # what took so long, not when
            self._form = number
            seconds = self._seconds(found.groupdict())
            if seconds is None:
                return None, text
            self._last = found
            rest = f"{text[: found.start()].rstrip('[( ')} {text[found.end() :].lstrip('])')}"
            return _stamp(seconds, found["f"], number), rest
        return None, text

    def places(self) -> "StampPlaces":
        """Where the stamp of the last line stands, for lines that differ in their digits only."""
        found = self._last
        spans = {} if found is None else {g: found.span(g) for g in found.groupdict() if found[g]}
        return StampPlaces(self._form, spans)

    def at(self, places: "StampPlaces", text: str) -> Stamp | None:
        """The stamp of a line that has it at these places; None where its digits are no time."""
        if self._form != places.form:
            return None
        said = dict(_NO_CLOCK)
        for group, (begin, end) in places.spans.items():
            said[group] = text[begin:end]
        seconds = self._seconds(said)
        return None if seconds is None else _stamp(seconds, said.get("f"), places.form)

    def _seconds(self, said: dict[str, str | None]) -> float | None:
        clock = int(said["h"] or 0) * 3600 + int(said["mi"] or 0) * 60 + int(said["s"] or 0)
        if clock >= _DAY:
            return None
        if said.get("d") is None:
            if clock < self._last_clock - _DAY / 2:
                self._past_midnight += _DAY
            self._last_clock = clock
            return float(clock + self._past_midnight)
        name = said.get("name")
        month = _MONTHS.index(name) + 1 if name else int(said["mo"] or 0)
        day = (int(said.get("y") or _FIRST_YEAR), month, int(said["d"] or 0))
        if day not in self._days:
            try:
                self._days[day] = datetime(*day).toordinal()
            except ValueError:
                return None
        return float(self._days[day] * _DAY + clock)


def _stamp(seconds: float, fraction: str | None, form: int) -> Stamp:
    if not fraction:
        return Stamp(float(seconds), 1.0, form)
    return Stamp(seconds + int(fraction) / 10 ** len(fraction), 10.0 ** -len(fraction), form)


# Who printed a line: ranks, levels, names of loggers and files. Not [Epoch 3] or [10/100].
_WHO = regex(
    r"\s*(?:[-:|>*]+\s+|(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|TRACE|NOTICE)\b:?"
    r"|[\w./-]+\.(?:py|cc|cpp|cu|rs|go|jl|hpp|h|c)[: (]\d+[\]):]*|[A-Za-z_][\w.]*\s+-\s+"
    r"|\[(?![^\]]*\d\s*/\s*\d)(?![^\]]*[=:] ?[\d.]+\b)"
    r"(?!\s*(?:epoch|step|iter|batch|round|episode)\w*\W)[^\[\]]{0,60}\]:?"
    r"|\((?=[^()]*\b(?:pid|rank|ip|worker)\w*\W?\s?=?\d)[^()]{1,60}\)|rank ?\d+\s*[:|]\s)",
    2,
)
_MOST_WHO = 8  # such words before what a line says; frameworks print three or four


def said_by(text: str) -> str:
    """What a line says, without who says it."""
    at = 0
    for _ in range(_MOST_WHO):
        found = _WHO.match(text, at)
        if found is None or found.end() == at:
            break
        at = found.end()
    return text[at:]


__all__ = ["Stamp", "StampPlaces", "Stamps", "said_by"]
