"""Progress bars that a log has kept: tqdm's, whatever counts below them."""

from pinchpoint.importers.files.units import UNKNOWN, unit_of
from pinchpoint.importers.program_logs._figures import parsed, shown
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

# Training:  12%|█▏   | 12/100 [00:10<01:20, 1.09it/s, loss=2.3]; without a total: 12it [00:10, ...
_BAR = regex(
    r"(?<![\d.])(?P<n>\d[\d.]{0,15})(?P<k>[kMGT]?)"
    r"(?:/(?P<of>[\d.]{1,16}[kMGT]?|\?)|(?P<unit>[A-Za-z]{1,12}))?"
    r" ?\[(?P<t>\d+(?::\d\d){1,2})(?:<(?P<left>[\d:?]+(?: days?, [\d:]+)?))?,\s*"
    r"(?P<rate>[\d.]+[kMG]?|\?) ?(?P<per>[A-Za-zµ]+/[A-Za-z]+)(?P<more>[^\]]*)\]"
)
_SHARE = regex(r"\s*\d{1,3}%$")
_FREE = regex(r"(?<![A-Za-z_])\d[\d.,/]*")
_MANY = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_LONGEST = 80  # characters of a name: the width of a page
_MOST = 500  # names of bars; a name that counts is one
_ROUGH_S = 10  # bars print whole seconds: below this the rate that they print is finer


class _Bars:
    """All bars of one name: one after the other, in epochs."""

    def __init__(self, unit: str) -> None:
        self.unit, self.bars, self.done, self.seconds = unit, 1, 0.0, 0.0
        self.n, self.t, self.of = 0.0, 0.0, ""
        self.rate: float | None = None

    def state(self, n: float, seconds: float, of: str, rate: float | None) -> None:
        """One more picture; a bar that went back in both is the next one."""
        if n < self.n and seconds < self.t:
            self.close()
            self.bars += 1
        if n >= self.n:
            self.n, self.t, self.of = n, seconds, of
            self.rate = rate if rate is not None else self.rate

    def close(self) -> None:
        """What the last bar has reached counts."""
        self.done += self.n
        self.seconds += self.t
        self.n, self.t = 0.0, 0.0


class ProgressBars:
    """What bars say of how many, in how long."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bars] = {}

    def line(self, text: str) -> str:
        """Looks at one line; what a bar counts beside, such as a loss, is left of it."""
        if "[" not in text or ("/s" not in text and "s/" not in text):
            return text
        found = _BAR.search(text)
        if found is None:
            return text
        n, per = parsed(found["n"]), found["per"]
        if n is None:
            return text
        name = _FREE.sub("#", _before(text[: found.start()])).strip(" :#\t") or "progress bar"
        unit = per.partition("/")[0] if per.endswith("/s") else per.partition("/")[2]
        if name not in self._bars and len(self._bars) >= _MOST:
            return ""
        bars = self._bars.setdefault(name, _Bars(unit))
        of = found["of"] or ""
        bars.state(n * _MANY[found["k"]], _seconds(found["t"]), of, _pace(found["rate"], per))
        counted = f"{name} {found['n']}/{of}" if of.isdigit() and not found["k"] else ""
        return f"{counted}{found['more']}{text[found.end() :]}" if found["more"] else ""

    def is_open(self) -> bool:
        """No line belongs to the one before."""
        return False

    def tables(self) -> tuple[SummaryTable, ...]:
        """A row a name."""
        rows = []
        for name, bars in self._bars.items():
            last = bars.rate
            bars.close()
            if bars.done <= 0:
                continue
            pace = bars.seconds / bars.done if bars.seconds >= _ROUGH_S else last
            known = unit_of(f"{bars.unit}/s")
            unit = known.name.removesuffix("/s") if known is not UNKNOWN else bars.unit
            rows.append(
                (
                    name, unit, f"{bars.bars:,}", shown(bars.done), f"{bars.seconds:,.0f}",
                    "" if not pace else f"{1e3 * pace:,.4g}", "" if not pace else shown(1 / pace),
                )
            )  # fmt: skip
        if not rows:
            return ()
        columns = ("progress bar", "of", "bars", "done", "seconds", "ms for one", "a second")
        return (SummaryTable(columns, tuple(rows), "progress bars, each until its last picture"),)


def _before(text: str) -> str:
    """What a bar is called: what stands before its share and picture, ``12%|##   |``."""
    what, *picture = text.rsplit("|", 2)
    return _SHARE.sub("", what)[-_LONGEST:] if len(picture) == 2 and _SHARE.search(what) else ""


def _seconds(clock: str) -> float:
    value = 0
    for part in clock.split(":"):
        value = 60 * value + int(part)
    return float(value)


def _pace(rate: str, per: str) -> float | None:
    """Seconds for one, of ``1.2it/s`` or ``3.4s/it``."""
    value = parsed(rate.rstrip("kMG"))
    if not value:
        return None
    value *= _MANY.get(rate[-1], 1.0)
    return 1 / value if per.endswith("/s") else value


__all__ = ["ProgressBars"]
