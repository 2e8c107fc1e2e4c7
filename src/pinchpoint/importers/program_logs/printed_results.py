"""Results that benchmarks print at their end: load tests, llama-bench, trtexec, Lightning."""

from collections.abc import Sequence

from pinchpoint.importers.program_logs._figures import said_table
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_BLOCK = regex(
    r"=+ (Serving Benchmark Result|Benchmark Result) =+\s*$"
    r"|= (PERFORMANCE OVERVIEW|REQUEST LATENCY STATISTICS|WORLD \+ RUNTIME INFORMATION"
    r"|DATASET DETAILS|REQUEST DETAILS|STATISTICS)\s*$"
)
_RULE = regex(r"=+\s*$")
_SECTION = regex(r"-+[\w ()./-]+-+\s*$")  # Time to First Token, within a load test
_SAID = regex(r"(?:\[[^\]]*\]\s*)?(\S[^:]{0,80}):\s+(\S.{0,80})$")
# Mean TTFT (ms): of each latency a row, of each figure a column
_OF_LATENCY = regex(r"(Mean|Median|Std|Min|Max|P\d{1,2}(?:\.\d+)?) (\S.{0,60} \((?:ms|s|us)\))$", 2)
_FIRST_FIGURES = ("mean", "median", "p90", "p95", "p99", "max")
_MOST_FIGURES = 16  # of latencies: mean, median, deviation, ends and percentiles; others stay rows
# [date] [I] Latency: min = 1.2 ms, max = 3 ms, ..., percentile(99%) = 3 ms
_TRTEXEC = "=== Performance summary ==="
_TRT_LINE = regex(r"\[I\] ([\w ]{1,40}): (.{1,300})$")
_TRT_VALUE = regex(r"([\w ()%]{1,24}?) ?= ?([\d.]+) ?(ms|us|s)?")
_TRT_COLUMNS = (
    "min",
    "max",
    "mean",
    "median",
    "percentile(90%)",
    "percentile(95%)",
    "percentile(99%)",
)
_PIPES = (("model", "t/s"), ("Action", "Num calls"))  # columns of llama-bench, of Lightning
_LEFT_OPEN = regex(r"Action\s{1,80}\|.{0,300}\|\s*Num calls\b")
_FIRST = ("model", "test", "t/s")  # of llama-bench: what is asked, before what was set
_DEVICES = regex(r"\b(\d{1,3})\s?[:=] ([A-Z][^|,]{2,60})")
# What a line says at the end of a run: vLLM's bench throughput and latency, SGLang's tests, the
# Trainer of transformers.
_ENDINGS = (
    ("Throughput: ", regex(r"\bThroughput: (?P<requests_s>[\d.]+) requests/s, (?P<tokens_s>[\d.]+)"
     r" (?:total )?tokens/s(?:, (?P<output_tokens_s>[\d.]+) output tokens/s)?")),
    ("Avg latency: ", regex(r"\bAvg latency: (?P<mean_latency_s>[\d.]+) seconds")),
    ("Output throughput: ", regex(r"^Output throughput: (?P<output_tokens_s>[\d.]+) token/s")),
    ("'train_loss'", regex(r"'train_loss': '?(?P<train_loss>[\d.]+(?:e[-+]?\d+)?)'?")),
    ("'train_runtime'", regex(r"'train_runtime': '?(?P<train_runtime_s>[\d.]+)'?"
     r"(?:, 'train_samples_per_second': '?(?P<train_samples_s>[\d.]+)'?)?"
     r"(?:, 'train_steps_per_second': '?(?P<train_steps_s>[\d.]+)'?)?")),
)  # fmt: skip
_BANDWIDTH = regex(r"([\d.]+)ms\s+([\d.]+) GB\s+([\d.]+)GB/s\s+([\d.]+)%\s+(\S{1,200})\s*$")
# ### GPU 0 ONLY ###, == batch 8 ==, ## Results: of what the tables below it are
_HEADING = regex(
    r"\s*(?:#{1,6} (?P<a>\S.{0,60}?)(?: #{1,6})?|={2,} ?(?P<b>[^=\s].{0,60}?) ?={2,}"
    r"|-{2,} ?(?P<c>[^-\s].{0,60}?) ?-{2,})\s*$"
)
_MOST_ROWS = 1000  # of one table; llama-bench over all that it can vary has hundreds
_MOST_DEVICES = 64  # more no machine has
_MOST_TABLES = 200  # sweeps print one a run


class PrintedResults:
    """Tables and blocks of ``name: value`` as benchmarks print them."""

    def __init__(self) -> None:
        self._found: list[SummaryTable] = []
        self._title, self._pairs = "", list[tuple[str, str]]()
        self._heading = ""
        self._in_trtexec = False
        self._trtexec: list[tuple[str, ...]] = []
        self._trt_said: list[tuple[str, str]] = []
        self._columns: tuple[str, ...] = ()
        self._open_left = False  # no pipe before the first column
        self._rows: list[tuple[str, ...]] = []
        self._devices: dict[str, str] = {}
        self._bandwidths: dict[str, tuple[str, ...]] = {}
        self._endings: list[tuple[str, str]] = []

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty where it is of a table or block."""
        if "|" in text and (text.lstrip()[:1] == "|" or (self._columns and self._open_left)):
            return "" if self._pipe(text) else text
        if _LEFT_OPEN.match(text) and self._pipe(text):  # Lightning, until 2022
            self._open_left = True
            return ""
        if self._columns:
            self._close_pipe(text)
        if text.lstrip()[:1] in ("#", "=", "-") and (found := _HEADING.match(text)):
            self._heading = (found["a"] or found["b"] or found["c"]).strip()
        if self._single(text):
            return ""
        if (self._title or text.startswith("=")) and self._block(text):
            return ""
        if _TRTEXEC in text:
            self._in_trtexec = True
        elif self._in_trtexec and (found := _TRT_LINE.search(text)):
            self._of_trtexec(found[1].strip(), found[2])
            return ""
        return text

    def is_open(self) -> bool:
        """Whether the next line may be of a table or block that has begun."""
        return bool(self._columns or self._title) or self._in_trtexec

    def _single(self, text: str) -> bool:
        """What one line says by itself; whether it says anything."""
        taken = False
        for words, pattern in _ENDINGS:
            if (
                words in text
                and (found := pattern.search(text))
                and len(self._endings) < _MOST_ROWS
            ):
                said = found.groupdict().items()
                self._endings += [(_said(name), value) for name, value in said if value]
                taken = True
        if "ggml_" in text or text.startswith("  Device "):
            if (found := _DEVICES.search(text)) and len(self._devices) < _MOST_DEVICES:
                self._devices[found[1]] = found[2].strip().partition(" (")[0]
        elif "GB/s" in text and (found := _BANDWIDTH.search(text)):
            ms, size, rate, share, name = found.groups()
            if len(self._bandwidths) < _MOST_ROWS:
                self._bandwidths[name] = (name, ms, size, rate, share)
            taken = True
        return taken

    def _block(self, text: str) -> bool:
        """Lines of ``name: value`` behind a title between double rules; whether it is one."""
        line = text.strip()
        if found := _BLOCK.match(line):
            self._close_block()
            self._title = (found[1] or found[2]).lower()
        elif not self._title or not line or _RULE.match(line) or _SECTION.match(line):
            if self._pairs and _RULE.match(line) and self._title.endswith("result"):
                self._close_block()
        elif (found := _SAID.match(line)) and len(self._pairs) < _MOST_ROWS:
            self._pairs.append((found[1].strip(), found[2].strip()))
            return True
        elif self._pairs:
            self._close_block()
        return False

    def _close_block(self) -> None:
        if self._pairs and len(self._found) < _MOST_TABLES:
            said, latencies = _apart(self._pairs)
            self._found += said_table(self._title, said)
            self._found += _latencies(self._title, latencies)
        self._title, self._pairs = "", []

    def _of_trtexec(self, what: str, text: str) -> None:
        values = {found[1].strip(): found[2] for found in _TRT_VALUE.finditer(text)}
        if "min" in values:
            unit = (_TRT_VALUE.search(text) or ("", "", "", ""))[3] or ""
            cells = (values.get(column, "") for column in _TRT_COLUMNS)
            self._trtexec.append((f"{what} ({unit})" if unit else what, *cells))
        elif text[:1].isdigit() and len(self._trt_said) < _MOST_ROWS:
            self._trt_said.append((what, text.strip()))

    def _pipe(self, text: str) -> bool:
        """Whether it is a line of one of the tables."""
        cells = tuple(cell.strip() for cell in text.strip().strip("|").split("|"))
        if any(all(name in cells for name in names) for names in _PIPES):
            self._flush_pipe()
            self._columns = cells
        elif (
            self._columns
            and len(cells) == len(self._columns)
            and set("".join(cells)) - set(":- ")  # the rule below a header is none
            and len(self._rows) < _MOST_ROWS
        ):
            self._rows.append(cells)
        return bool(self._columns)

    def _close_pipe(self, text: str) -> None:
        if text.strip() and set(text.strip()) - set("-+="):
            self._flush_pipe()

    def _flush_pipe(self) -> None:
        if self._rows and len(self._found) < _MOST_TABLES:
            order = sorted(range(len(self._columns)), key=lambda at: _rank(self._columns[at]))
            columns, *rows = (
                tuple(cells[at] for at in order) for cells in (self._columns, *self._rows)
            )
            on = " and ".join(self._devices.values()) if _FIRST[-1] in columns else ""
            title = [self._heading] if self._heading else []
            title += [f"on {on}"] if on else []
            self._found.append(SummaryTable(columns, tuple(rows), ", ".join(title)))
            self._devices = {}
        self._columns, self._rows, self._open_left = (), [], False

    def tables(self) -> tuple[SummaryTable, ...]:
        """Each in the order of the log."""
        self._close_block()
        self._flush_pipe()
        found = tuple(self._found)
        if self._trtexec:
            title = "trtexec, performance summary"
            columns = (
                "what",
                *(c.replace("percentile(", "p").replace("%)", "") for c in _TRT_COLUMNS),
            )
            found += (SummaryTable(columns, tuple(self._trtexec), title),)
        found += said_table("trtexec", self._trt_said)
        found += said_table("at the end of a run", self._endings)
        if self._bandwidths:
            columns = ("kernel", "ms", "GB", "GB/s", "share (%)")
            rows = tuple(self._bandwidths.values())
            found += (SummaryTable(columns, rows, "bandwidth of Inductor's kernels"),)
        return found


def _apart(
    pairs: Sequence[tuple[str, str]],
) -> tuple[list[tuple[str, str]], dict[str, dict[str, str]]]:
    """Rates first, then the rest; and of each latency its figures, where it has several."""
    held: dict[str, dict[str, str]] = {}
    matches = [found for name, _ in pairs if (found := _OF_LATENCY.match(name))]
    columns = list(dict.fromkeys(found[1].lower() for found in matches))[:_MOST_FIGURES]
    for name, value in pairs:
        if (found := _OF_LATENCY.match(name)) and found[1].lower() in columns:
            held.setdefault(found[2], {})[found[1].lower()] = value
    several = {name: figures for name, figures in held.items() if len(figures) > 1}
    said = [
        (name, value) for name, value in pairs
        if not (
            (found := _OF_LATENCY.match(name))
            and found[1].lower() in several.get(found[2], ())
        )
    ]  # fmt: skip
    return sorted(said, key=lambda one: not one[0].endswith(("/s)", "/sec)"))), several


def _latencies(title: str, held: dict[str, dict[str, str]]) -> tuple[SummaryTable, ...]:
    if not held:
        return ()
    order = (*_FIRST_FIGURES, *sorted({f for each in held.values() for f in each}))
    columns = [f for f in dict.fromkeys(order) if any(f in each for each in held.values())]
    rows = tuple(
        (name, *(each.get(column, "") for column in columns)) for name, each in held.items()
    )
    return (SummaryTable(("latency", *columns), rows, title),)


def _said(name: str) -> str:
    """``output_tokens_s``: output tokens/s; times keep their unit in brackets."""
    if name == "train_loss":
        return "train loss"
    words, _, unit = name.rpartition("_")
    shown = words.replace("_", " ")
    timed = unit == "ms" or words.endswith(("latency", "runtime"))
    return f"{shown} ({unit})" if timed else f"{shown}/{unit}"


def _rank(column: str) -> int:
    return _FIRST.index(column) if column in _FIRST else len(_FIRST)
