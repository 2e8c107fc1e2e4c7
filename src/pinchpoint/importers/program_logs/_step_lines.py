"""How long steps took by the stamps of lines that count them, and what stood between them.

The pace is the typical time between two such lines, for each step that they are apart. What takes
longer is counted apart: an evaluation, a checkpoint, the end of an epoch. Stamps of whole seconds
give no pace of shorter steps line by line; over all lines they do.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.program_logs._figures import MOST_VALUES, shown
from pinchpoint.importers.program_logs._quantities import OF, Quantity
from pinchpoint.importers.program_logs._stamps import Stamp
from pinchpoint.regex import regex

# What is called so counts, if it rises, the finest first. Anything else that rises may be a loss.
_COUNTERS = (
    regex(
        r"^(?:\w+[ _/:.])*(?:steps?|iters?|iterations?|batch|batches|updates?|it|itr)"
        r"(?: ?#|[ _](?:id|idx|index|num|number))?$",
        2,
    ),
    regex(r"^(?:\w+[ _/:.])*(?:epochs?|episodes?|rounds?|trials?|runs?|generation)(?: ?#)?$", 2),
    regex(r"^(?:\w+[ _/:.])*(?:images?|frames?|samples?|requests?|tokens?|timesteps?)(?: ?#)?$", 2),
)
_LEAST_LINES = 4  # three times between them: fewer have no typical one
_RISING = 0.9  # of the lines: a counter starts again now and then (epochs), and is printed twice
_LEAP = 10  # times further than from line to line, and as many times faster: nothing ran there
_FINE = 5  # resolutions of a stamp that a time must have to be one by itself
_LONGER = (
    2.0  # than the typical time: what is printed with a step, at most, not a step's own spread
)
_MOST_COUNTERS = 200  # names of counters; a log has some
_MOST_WORDS = 2000  # beginnings of lines that are kept apart; programs print some hundred
_BEGINNING = regex(r"[^\W\d_]{2,}(?:[ _][^\W\d_]{2,}){0,3}")


class _Count:
    def __init__(self) -> None:
        self.values, self.at = array("d"), array("q")
        self.seconds = array("d")
        self.ends = set[int]()  # how many values there were where a part of the log ended
        self.of: float | None = None
        self.form: int | None = None


class StepLines:
    """Lines that count, with their stamps, and the lines between them."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._words: dict[str, int] = {}
        self._word, self._when = array("i"), array("q")
        self._resolution = 0.0
        self._span: dict[int, tuple[float, float]] = {}  # first and last, by form of the stamp
        self._lines = 0

    def line(self, stamp: Stamp | None, text: str, found: Sequence[Quantity]) -> None:
        """One line, what it says, and when."""
        counters = [one for one in found if is_counter(one)]
        self.seen(stamp, [(one, one.value) for one in counters], words_of(text, counters))

    def seen(
        self, stamp: Stamp | None, counters: Sequence[tuple[Quantity, float]], words: str
    ) -> None:
        """One line by what counts in it; ``words``: how it begins, where nothing does."""
        self._lines += 1
        if stamp is not None:
            self._resolution = max(self._resolution, stamp.resolution_s)
            first, last = self._span.get(stamp.form, (stamp.seconds, stamp.seconds))
            self._span[stamp.form] = (first, max(last, stamp.seconds))
        for one, value in counters:
            self._count(one, value, stamp)
        if words:
            self._other_line(words)

    def part_ended(self) -> None:
        """The next line is of another run, such as that of a notebook's next cell."""
        for count in self._counts.values():
            if count.values:
                count.ends.add(len(count.values))

    def _count(self, one: Quantity, value: float, stamp: Stamp | None) -> None:
        if one.key not in self._counts and len(self._counts) >= _MOST_COUNTERS:
            return
        count = self._counts.setdefault(one.key, _Count())
        if len(count.values) < MOST_VALUES:
            if stamp and count.form is None:
                count.form = stamp.form
            same = stamp is not None and stamp.form == count.form
            count.values.append(value)
            count.at.append(self._lines)
            count.seconds.append(stamp.seconds if stamp and same else np.nan)
            count.of = one.of or count.of

    def _other_line(self, words: str) -> None:
        known = words in self._words or len(self._words) < _MOST_WORDS
        if known and len(self._when) < MOST_VALUES:
            self._word.append(self._words.setdefault(words, len(self._words)))
            self._when.append(self._lines)

    def found(self) -> bool:
        """Whether any lines count."""
        return self._best() is not None

    def _best(self) -> tuple[str, _Count] | None:
        """The counter that goes on fastest: steps rather than epochs."""
        rising = [
            (name, count) for name, count in self._counts.items()
            if len(count.values) >= _LEAST_LINES and counts(np.asarray(count.values))
        ]  # fmt: skip
        finest = min((_fineness(name) for name, _ in rising), default=0)
        rising = [one for one in rising if _fineness(one[0]) == finest]
        return max(rising, key=lambda one: _forward(np.asarray(one[1].values)), default=None)

    def said(self) -> Iterator[tuple[str, str]]:
        """Rows of what and value; none where nothing counts."""
        best = self._best()
        if best is None:
            return
        name, count = best
        held = np.asarray(count.values)
        label = "n of N" if name == OF else name
        of = f" of {count.of:,.0f}" if count.of else ""
        yield "counted by", f"{label}: {held[0]:,.0f} to {held[-1]:,.0f}{of}"
        yield "lines that count", f"{len(held):,}"
        again = int((np.diff(held) < 0).sum())
        if again:
            yield "begins again", f"{again:,} ×"
        seconds = np.asarray(count.seconds)
        if np.isnan(seconds).any():
            return
        within = ~np.isin(np.arange(1, len(held)), list(count.ends))
        yield from self._times(held, seconds, np.asarray(count.at), within)
        if count.form is not None:
            first, last = self._span[count.form]
            before, after = float(seconds[0]) - first, last - float(seconds[-1])
            if before > 0 or after > 0:
                yield "log before, after them", f"{_time(before)}, {_time(after)}"

    def _times(
        self, held: NDArray[np.float64], seconds: NDArray[np.float64], at: NDArray[np.int64],
        within: NDArray[np.bool_],
    ) -> Iterator[tuple[str, str]]:  # fmt: skip
        first = np.concatenate([[True], (np.diff(held) != 0) | ~within])
        # Where most time passes between lines of one count, as between those of batches of an
        # epoch, one lasts from its first line to the first of the next.
        same = within & (np.diff(held) == 0)
        if np.diff(seconds)[same].sum() > np.diff(seconds)[within & ~same].clip(0).sum():
            held, seconds, at = held[first], seconds[first], at[first]
            within = within[first[1:]]
        apart, taken = np.diff(held), np.diff(seconds)
        known = (apart > 0) & (taken >= 0) & within
        known &= ~_leaps(apart, taken, known)
        if known.sum() < _LEAST_LINES - 1 or taken[known].sum() <= 0:
            return
        whole = float(taken[within].sum())
        yield "time of one by the stamps, mean", self._mean(apart, taken, known)
        line = float(np.median(taken[known]))
        if line < _FINE * self._resolution:
            yield "median", f"not known: stamps of {_time(self._resolution)}, lines {_time(line)}"
        else:
            taken = np.where(within, taken, 0)
            of = int(within.sum())
            yield from self._exceptional(apart, taken, known, at, whole, of)
        parts = int((~within).sum()) + 1
        of_each = f", {parts} runs" if parts > 1 else ""
        yield f"first to last of these lines{of_each}", _time(whole)

    def _mean(
        self, apart: NDArray[np.float64], taken: NDArray[np.float64], known: NDArray[np.bool_]
    ) -> str:
        """Each stretch between two beginnings is known to one resolution of the stamps."""
        count, whole = float(apart[known].sum()), float(taken[known].sum())
        stretches = int(known[0]) + int((known[1:] & ~known[:-1]).sum())
        unsure = stretches * self._resolution
        if whole >= _FINE * unsure:
            return _time(whole / count)
        return (
            f"not known: stamps of {_time(self._resolution)}; at most"
            f" {_time((whole + unsure) / count)}"
        )

    def _exceptional(
        self, apart: NDArray[np.float64], taken: NDArray[np.float64], known: NDArray[np.bool_],
        at: NDArray[np.int64], whole: float, of: int,
    ) -> Iterator[tuple[str, str]]:  # fmt: skip
        per = taken[known] / apart[known]
        typical = float(np.median(per))
        yield "median", _time(typical)
        yield "p95", _time(float(np.percentile(per, 95)))
        forward = np.maximum(apart, 0)
        longer = (taken > _LONGER * typical * forward) & (taken > _LONGER * typical)
        excess = float((taken - typical * forward)[longer].sum())
        if longer.any() and whole > 0:
            yield "longer than twice the median", f"{int(longer.sum()):,} of {of:,} times"
            yield "their excess", f"{_time(excess)}, {100 * excess / whole:.1f} % of all"
            for text, number in self._between(at, np.flatnonzero(longer)):
                yield "printed within those", f"{text} ({number} ×)"

    def _between(self, at: NDArray[np.int64], longer: NDArray[np.int64]) -> list[tuple[str, int]]:
        when, word = np.asarray(self._when), np.asarray(self._word)
        words = list(self._words)
        found: Counter[str] = Counter()
        for place in longer[:1000]:
            first, last = np.searchsorted(when, [at[place], at[place + 1]])
            found.update(list(dict.fromkeys(words[number] for number in word[first:last])))
        # what is printed as often between the other lines is no sign of anything
        every = Counter(words[number] for number in word[(when > at[0]) & (when < at[-1])])
        told = [(text, n) for text, n in found.most_common() if 2 * n >= every[text]]
        return told[:3]


def _leaps(
    apart: NDArray[np.float64], taken: NDArray[np.float64], known: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Lines that a counter reached without counting, as when a run goes on from a checkpoint."""
    if not known.any():
        return known
    usual = float(np.median(apart[known]))
    typical = float(np.median(taken[known] / apart[known]))
    found: NDArray[np.bool_] = known & (apart > _LEAP * usual) & (_LEAP * taken < typical * apart)
    return found


def words_of(text: str, counters: Sequence[Quantity]) -> str:
    """How a line begins in which nothing counts."""
    found = None if counters else _BEGINNING.search(text[:80])
    return found[0] if found else ""


def is_counter(one: Quantity) -> bool:
    """Whether it is called as what counts is."""
    return one.whole and not one.unit.family and _fineness(one.key) < len(_COUNTERS)


@lru_cache(maxsize=_MOST_WORDS)
def _fineness(name: str) -> int:
    if name == OF:
        return 0
    return next((n for n, each in enumerate(_COUNTERS) if each.match(name)), len(_COUNTERS))


def counts(held: NDArray[np.float64]) -> bool:
    """Whether whole numbers rise as a counter does, that may begin again."""
    if len(held) < _LEAST_LINES or not (held == np.floor(held)).all():
        return False
    apart = np.diff(held)
    rises = apart[apart != 0]
    return bool(len(rises) >= 2 and (rises > 0).mean() >= _RISING)


def _forward(held: NDArray[np.float64]) -> float:
    apart = np.diff(held)
    return float(apart[apart > 0].sum())


def _time(seconds: float) -> str:
    if 0 < abs(seconds) < 1:
        return f"{shown(seconds * 1e3)} ms"
    return f"{shown(seconds)} s"


__all__ = ["StepLines", "counts", "is_counter", "words_of"]
