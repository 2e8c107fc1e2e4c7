"""Benchmarks of devices and engines: nvbandwidth, ncnn's benchncnn, trtexec of TensorRT 7 and 8.0.

Each is told by a line that only it prints, and its figures have the unit that its source prints or
says: nvbandwidth GB/s or ns in the heading of each test, benchncnn milliseconds.
"""

from pinchpoint.importers.program_logs._figures import parsed
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_NVBANDWIDTH = "nvbandwidth Version"
_UNIT = regex(r".{1,80}\((GB/s|ns)\)\s*$")  # memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
_SUM = regex(r"SUM (\w{1,80}) ([\d.]+)\s*$")
# loop_count = 4, then names with their least, greatest and mean time
_NCNN = regex(r"loop_count = (\d{1,9})\s*$")
_NCNN_ROW = regex(r"\s*(\S.{0,60}?)\s+min = +([\d.]+)\s+max = +([\d.]+)\s+avg = +([\d.]+)\s*$")
_NCNN_SET = regex(r"(?:num_threads|powersave|gpu_device|cooling_down) = -?\d+\s*$")
# [date] [I] Host Latency, then [date] [I] min: 0.6 ms (end to end 1.0 ms)
_OF_TRTEXEC = regex(r"\[I\] (Host [Ll]atency|Enqueue [Tt]ime|GPU [Cc]ompute(?: [Tt]ime)?)\s*$")
_TRT_FIGURE = regex(r"\[I\] (min|max|mean|median|percentile): ([\d.]+) ms(?: at (\d{1,3}%))?")
_TRT_COLUMNS = ("min", "max", "mean", "median", "percentile")
_MOST_ROWS = 1000  # of one table; nvbandwidth has some forty tests, benchncnn some forty models


class DeviceBenchmarks:
    """What a device moves a second, what a network or an engine takes."""

    def __init__(self) -> None:
        self._moves, self._unit = False, ""
        self._sums: list[tuple[str, str, str]] = []
        self._loops, self._networks = "", list[tuple[str, ...]]()
        self._part = ""
        self._parts: dict[str, dict[str, str]] = {}

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty where it is of one of these."""
        if self._moves:
            return self._of_nvbandwidth(text)
        if self._loops:
            return self._of_ncnn(text)
        if _NVBANDWIDTH in text:
            self._moves = True
        elif text.startswith("loop_count") and (found := _NCNN.match(text)):
            self._loops = found[1]
        elif "[I]" in text:
            return self._of_trtexec(text)
        return text

    def is_open(self) -> bool:
        """Whether the next line may be of a block that has begun."""
        return self._moves or bool(self._loops) or bool(self._part)

    def _of_nvbandwidth(self, text: str) -> str:
        if found := _UNIT.match(text):
            self._unit = found[1]
        elif found := _SUM.match(text):
            if len(self._sums) < _MOST_ROWS:
                self._sums.append((found[1], found[2], self._unit))
            return ""
        return text

    def _of_ncnn(self, text: str) -> str:
        if found := _NCNN_ROW.match(text):
            if len(self._networks) < _MOST_ROWS:
                name, least, most, mean = found.groups()
                self._networks.append((name, mean, least, most))
            return ""
        if text.strip() and not _NCNN_SET.match(text):
            self._loops = ""
        return text

    def _of_trtexec(self, text: str) -> str:
        if found := _OF_TRTEXEC.search(text):
            self._part = found[1]
            return ""
        if not self._part:
            return text
        found = _TRT_FIGURE.search(text)
        if found is None:
            self._part = self._part if ": " in text.partition("[I]")[2] else ""
            return text
        name = found[1] if found[3] is None else f"{found[1]} ({found[3]})"
        self._parts.setdefault(self._part, {})[name] = found[2]
        return ""

    def tables(self) -> tuple[SummaryTable, ...]:
        """One table of each benchmark that the log holds."""
        found: tuple[SummaryTable, ...] = ()
        if self._sums:
            rows = tuple(sorted(self._sums, key=lambda row: (row[2], -(parsed(row[1]) or 0.0))))
            title = "nvbandwidth, summed over pairs"
            found += (SummaryTable(("test", "sum", "unit"), rows, title),)
        if self._networks:
            columns = ("network", "mean (ms)", "least (ms)", "most (ms)")
            found += (SummaryTable(columns, tuple(self._networks), "benchncnn"),)
        if self._parts:
            names = list(dict.fromkeys(name for held in self._parts.values() for name in held))
            names.sort(key=lambda name: _TRT_COLUMNS.index(name.partition(" ")[0]))
            parts = tuple(
                (f"{part} (ms)", *(held.get(name, "") for name in names))
                for part, held in self._parts.items()
            )
            found += (SummaryTable(("what", *names), parts, "trtexec"),)
        return found


__all__ = ["DeviceBenchmarks"]
