"""NCCL's own words (``NCCL_DEBUG=INFO``) and the tables of nccl-tests and rccl-tests."""

from collections import Counter
from typing import NamedTuple

from pinchpoint.importers.program_logs._figures import parsed, said_table, shown
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_TEST = regex(r"# Collective test starting: (\w+)|\b(\w+_perf)\b(?= +-)")
_RANK = regex(r"#?\s+Rank\s+(\d{1,7})\s+(?:Group|Pid)")
# size, elements, type, operation, root, then time, two rates and errors, out of place and in place
_ROW = regex(r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(\w+)\s+(-?\d+)(.*)")
_FOUR = regex(r"\s*(\d[\d.]*)\s+(\d[\d.]*)\s+(\d[\d.]*)\s+(\d+|N/A)(?=\D|$)")
_AVERAGE = regex(r"# Avg bus bandwidth\s*:\s*([\d.]+)")
_WRONG = regex(r"# Out of bounds values\s*:\s*(\d+)")
_HEADER = "busbw"
_MOST_ROWS = 1000  # a sweep over sizes has 30
_COLUMNS = (
    "bytes",
    "type",
    "time (µs)",
    "GB/s",
    "on the bus",
    "in place (µs)",
    "in place, on the bus",
)
_WHO = regex(r"^(\S+?):\d+:\d+ ")
_VERSION = regex(r"NCCL version (\d[\w.+-]*)")
_RANKS = regex(r"\bnranks (\d{1,7})\b")
_NETWORK = regex(r"Using network (\S+)")
_VIA = regex(r"Channel \S+ .*\bvia (\S+)")
_DIRECT = regex(r"GPU Direct RDMA (Enabled|Disabled)")
_WARNING = regex(r"NCCL WARN (.{1,200})")
_CALL = regex(r"NCCL INFO (\w+): opCount ")
_MOST_NAMES = 1000  # of hosts and transports; more are not kept apart


class _Sizes(NamedTuple):
    """The row that is being filled: other lines may stand within it."""

    size: str
    type: str
    found: list[tuple[str, ...]]


class Collectives:
    """Bandwidths by size, and how NCCL said that it is set up."""

    def __init__(self) -> None:
        self._test, self._ranks, self._of_nccl = "", 0, False
        self._open: _Sizes | None = None
        self._header = False
        self._rows: list[tuple[str, ...]] = []
        self._closing: list[tuple[str, str]] = []
        self._once: dict[str, str] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._nranks = 0

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty where it is NCCL's."""
        if "#" in text[:3]:  # in a document it may be quoted
            self._comment(text.lstrip("> "))
        elif "NCCL" in text:
            self._words(text)
            if self._header:
                self._row(text.partition("NCCL INFO")[0])
        elif self._header:
            self._row(text)
        if not self._test and "_perf" in text and (found := _TEST.search(text)):
            self._test = found[1] or found[2]
        return "" if self._header or "NCCL INFO" in text else text

    def is_open(self) -> bool:
        """Whether the next line may be of a table that has begun."""
        return self._header

    def _comment(self, text: str) -> None:
        self._header = self._header or _HEADER in text
        if rank := _RANK.match(text):
            self._ranks = max(self._ranks, int(rank[1]) + 1)
        for pattern, label in ((_AVERAGE, "mean GB/s on the bus"), (_WRONG, "wrong values")):
            if found := pattern.match(text):
                self._closing.append((label, found[1]))

    def _row(self, text: str) -> None:
        if (row := _ROW.match(text)) and len(self._rows) < _MOST_ROWS:
            self._open, text = _Sizes(row[1], row[3], []), row[6]
        if self._open is None:
            return
        while (found := _FOUR.match(text)) and len(self._open.found) < 2:
            self._open.found.append(found.groups())
            text = text[found.end() :]
        if len(self._open.found) == 2:
            (time, rate, bus, _), (in_time, _, in_bus, _) = self._open.found
            size = parsed(self._open.size) or 0
            self._rows.append((f"{size:,.0f}", self._open.type, time, rate, bus, in_time, in_bus))
            self._open = None

    def _words(self, text: str) -> None:
        self._of_nccl = self._of_nccl or "NCCL INFO" in text
        if found := _VERSION.search(text):
            self._once.setdefault("version", found[1])
        if found := _RANKS.search(text):
            self._nranks = max(self._nranks, int(found[1]))
        for what, pattern in (
            ("hosts", _WHO),
            ("network", _NETWORK),
            ("channels go through", _VIA),
            ("GPU Direct RDMA", _DIRECT),
            ("calls", _CALL),
            ("warnings", _WARNING),
        ):
            if found := pattern.search(text):
                counts = self._counts.setdefault(what, Counter())
                if found[1] in counts or len(counts) < _MOST_NAMES:
                    counts[found[1]] += 1

    def tables(self) -> tuple[SummaryTable, ...]:
        """The sweep over sizes, and what NCCL says of itself."""
        found: tuple[SummaryTable, ...] = ()
        if self._rows:
            of = f" of {self._ranks:,} ranks" if self._ranks else ""
            rows = tuple(reversed(self._rows))  # the largest first: they show what the link gives
            found += (SummaryTable(_COLUMNS, rows, f"sizes of {self._test or 'nccl-tests'}{of}"),)
            found += said_table("of all sizes", self._closing)
        return found + (said_table("NCCL", self._said()) if self._of_nccl else ())

    def _said(self) -> list[tuple[str, str]]:
        rows = [*self._once.items()]
        if self._nranks:
            rows.append(("ranks of the largest communicator", f"{self._nranks:,}"))
        for what, counts in self._counts.items():
            if what == "hosts":
                rows.append((what, f"{len(counts):,}"))
            else:
                rows += [(what, f"{name} ({shown(n)} ×)") for name, n in counts.most_common(4)]
        return rows
