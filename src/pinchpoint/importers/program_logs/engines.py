"""What serving engines print every few seconds while they run: vLLM, SGLang, TensorRT-LLM."""

from collections import Counter

from pinchpoint.importers.program_logs._figures import Figure, figures_table, parsed, said_table
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

# A label that a line of the engine has, and what it is of; percent stay percent.
_VLLM = (
    ("Avg prompt throughput", "prompt tokens/s"),
    ("Avg generation throughput", "generated tokens/s"),
    ("Running", "requests running"),
    ("Waiting", "requests waiting"),
    ("Pending", "requests waiting"),
    ("Swapped", "requests swapped out"),
    ("GPU KV cache usage", "KV cache in use (%)"),
    ("Prefix cache hit rate", "found in the prefix cache (%)"),
    ("Mean acceptance length", "tokens accepted a step"),
)
_DECODE = (
    ("gen throughput (token/s)", "generated tokens/s"),
    ("#running-req", "requests running"),
    ("#queue-req", "requests waiting"),
    ("token usage", "KV cache in use (ratio)"),
    ("full token usage", "KV cache in use (ratio)"),
    ("accept len", "tokens accepted a step"),
)
_PREFILL = (
    ("#new-token", "new tokens a prefill"),
    ("#cached-token", "cached tokens a prefill"),
    ("#queue-req", "requests waiting at a prefill"),
    ("input throughput (token/s)", "prompt tokens/s"),
)
_ITERATION = (
    ("host_step_time", "step (ms)"),
    ("prev_device_step_time", "step on the device (ms)"),
    ("num_scheduled_requests", "requests in a step"),
    ("'num_ctx_tokens'", "prompt tokens in a step"),
    ("'num_generation_tokens'", "generated tokens in a step"),
)
# llama.cpp, of each request: eval time = 2957.35 ms / 139 tokens (..., 47.00 tokens per second)
_TIMED = regex(
    r"\b(prompt eval|eval) time\s*=\s*([\d.]+) ms / +(\d+) (?:tokens|runs)\b.{0,80}?"
    r"([\d.]+) tokens per second"
)
_PAIR = regex(r"([#'A-Za-z][\w #'()/.-]{0,40}?) ?[:=] ?(-?[\d.,]*\d)(?=[\s,;%}ms]|$)")
_RANK = regex(r"\b((?:DP|TP|EP|PP)\d+(?: (?:DP|TP|EP|PP)\d+)*)\]")
_GRAPH = regex(r"(?:cuda|npu|cpu|hip) graph: (True|False)")
_MOST_RANKS = 1 << 14  # names that are kept


class Engines:
    """Figures of an engine, over all lines in which it had work."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Figure]] = {}
        self._idle: Counter[str] = Counter()
        self._graph: Counter[str] = Counter()
        self._ranks: set[str] = set()

    def line(self, text: str) -> str:
        """Looks at one line of the log; empty where it is an engine's."""
        if "throughput" in text and ("Running:" in text or "SpecDecoding metrics" in text):
            self._take("vLLM", _VLLM, text, ("Avg prompt throughput", "Avg generation throughput"))
        elif "Decode batch" in text and "throughput" in text:
            if found := _GRAPH.search(text):
                self._graph[found[1]] += 1
            self._ranked(text)
            self._take("SGLang, decode", _DECODE, text, ())
        elif "Prefill batch" in text and "#new-token" in text:
            self._ranked(text)
            self._take("SGLang, prefill", _PREFILL, text, ())
        elif "tokens per second" in text and (found := _TIMED.search(text)):
            of = "prompt" if found[1].startswith("prompt") else "generated"
            table = self._tables.setdefault("llama.cpp", {})
            for label, cell in ((f"{of} tokens/s", found[4]), (f"{of} tokens", found[3])):
                if (value := parsed(cell)) is not None:
                    table.setdefault(label, Figure()).add(value)
        elif "host_step_time" in text and "iter" in text:
            self._take("TensorRT-LLM", _ITERATION, text, ())
        else:
            return text
        return ""

    def _ranked(self, text: str) -> None:
        if (found := _RANK.search(text)) and len(self._ranks) < _MOST_RANKS:
            self._ranks.add(found[1])

    def _take(
        self, engine: str, wanted: tuple[tuple[str, str], ...], text: str, work: tuple[str, ...]
    ) -> None:
        """``work``: labels of which one is above zero where the engine did anything."""
        said = {
            found[1].strip(): value
            for found in _PAIR.finditer(text)
            if (value := parsed(found[2])) is not None
        }
        if work and any(label in said for label in work) and not any(map(said.get, work)):
            self._idle[engine] += 1
            return
        table = self._tables.setdefault(engine, {})
        for label, meaning in wanted:
            if label in said:
                table.setdefault(meaning, Figure()).add(said[label])

    def is_open(self) -> bool:
        """No line belongs to the one before."""
        return False

    def tables(self) -> tuple[SummaryTable, ...]:
        """One of each engine, and what was counted beside."""
        found = tuple(
            table
            for engine, figures in self._tables.items()
            for table in figures_table(
                f"lines of {engine} in which it had work",
                "figure of a line",
                figures.items(),
            )
        )
        return found + (said_table("counted", tuple(self._counted())) if found else ())

    def _counted(self) -> list[tuple[str, str]]:
        rows = [(f"intervals of {e} without work", f"{n:,}") for e, n in self._idle.items()]
        if len(self._ranks) > 1:
            rows.append(("ranks that log, each its own lines", f"{len(self._ranks):,}"))
        if lines := self._graph.total():
            rows.append(
                ("decode batches without a graph", f"{self._graph['False']:,} of {lines:,}")
            )
        return rows
