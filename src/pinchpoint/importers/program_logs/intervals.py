"""Intervals that a program logs by their two ends, with the time of each: MLPerf's logging."""

import msgspec

from pinchpoint.importers.program_logs._figures import Figure, figures_table, said_table
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_MARK = ":::MLL"  # :::MLLOG {...}; older ones :::MLL 1234.5 key: {...}
_END = regex(r"[_.:]?(?:start|stop|begin|end)$", 2)
_LONGEST = 60  # characters of a result, a number or a word
_MOST = 200  # names of intervals; the rules of MLPerf have some dozens


class Intervals:
    """How long each kind of interval was."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        self._figures: dict[str, Figure] = {}
        self._results: dict[str, str] = {}

    def line(self, text: str) -> str:
        """Looks at one line; empty where it is such a record."""
        if _MARK not in text or (at := text.find("{")) < 0:
            return text
        try:
            record = msgspec.json.decode(text[at:], type=dict)
        except msgspec.MsgspecError:
            return text
        when, key, kind = (record.get(name) for name in ("time_ms", "key", "event_type"))
        if not isinstance(when, int | float) or not isinstance(key, str):
            return text
        name = _END.sub("", key)
        if kind == "INTERVAL_START" and len(self._open) < _MOST:
            self._open[name] = float(when)
        elif kind == "INTERVAL_END" and name in self._open:
            taken = float(when) - self._open.pop(name)
            self._figures.setdefault(name, Figure()).add(taken)
        elif key.startswith("result") and len(self._results) < _MOST:
            self._results[key] = str(record.get("value"))[:_LONGEST]
        return ""

    def is_open(self) -> bool:
        """No line belongs to the one before."""
        return False

    def tables(self) -> tuple[SummaryTable, ...]:
        """One, where any interval ended."""
        rows = ((f"{name} (ms)", figure) for name, figure in self._figures.items())
        found = figures_table("intervals between their two ends", "interval", rows)
        return found + said_table("result", list(self._results.items()))


__all__ = ["Intervals"]
