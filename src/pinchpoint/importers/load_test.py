"""Results of load tests of serving engines: vLLM, SGLang, TensorRT-LLM; latencies, no timeline.

``vllm bench serve`` writes an object, SGLang's ``bench_serving`` a line for each run, and
``trtllm-bench`` a report. What each says of its requests is kept in ``Trace.summaries``, in
milliseconds; where a file has the requests themselves (``ttfts`` and ``itls``, in seconds), their
percentiles are taken from those.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "load test"
FILES = (".json .jsonl", "vllm bench serve, SGLang bench_serving, trtllm-bench")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "texts of requests"

_SIGNS = (b'"request_throughput"', b'"mean_ttft_ms"', b'"streaming_metrics"', b'"output_lens"')
# SGLang says first what was sent, then, longer than what is looked at, how the server was started.
_ASKED = (b'"dataset_name"', b'"request_rate"', b'"max_concurrency"')
_EVENTS = (b'"traceEvents"', b'"ph"')
_LATENCY = regex(r"(?P<of>mean|median|std|p\d{1,2}(?:\.\d+)?)_(?P<what>\w+?)(?:_latency)?_ms")
# Names of latencies; what a file calls otherwise stays as it is.
_LABELS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "between tokens",
    "e2el": "whole request",
    "e2e": "whole request",
    "queue": "queue",
}
_RATES = {
    "request_throughput": "requests/s",
    "output_throughput": "output tokens/s",
    "total_token_throughput": "tokens/s",
    "total_throughput": "tokens/s",
    "completed": "requests completed",
    "failed": "requests failed",
    "duration": "duration (s)",
    "max_concurrency": "most at once",
    "accept_length": "tokens accepted a step",
    "request_throughput_req_s": "requests/s",
    "system_output_throughput_tok_s": "output tokens/s",
    "system_total_throughput_tok_s": "tokens/s",
}
_SHORT = {"e2e_latency": "e2e", "e2el": "e2e"}  # names of the measures of bench serve
_COLUMNS = ("median", "mean", "p90", "p95", "p99")
_PERCENTILES = (90, 95, 99)  # of these columns
_SPELT = {"p50": "median", "average": "mean"}  # of TensorRT-LLM
_RISING = ("min", "p25", "median", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
_ROUNDED = 1.001  # figures that were rounded to print may pass each other by so much
_LARGEST = 1e15  # milliseconds of 30,000 years; sums and squares of such numbers are still finite
_MOST_RUNS = 1000  # lines of one file; a sweep has dozens
# What a load is: two results of other loads say nothing about the server. Numbers of requests may
# differ, as those of a sweep do.
_LOAD = (
    "request_rate",
    "max_concurrency",
    "burstiness",
    "dataset_name",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "sharegpt_output_len",
)
_SERVED = ("backend", "endpoint_type", "model_id", "tokenizer_id")  # what may be meant to differ


@dataclass(frozen=True)
class Latency:
    """One kind of latency of a load, in milliseconds; ``values`` where the file has them all."""

    name: str  # ttft, tpot, itl, e2e, as far as it is one of these
    label: str
    said: dict[str, float]  # median, mean, std, p99 and what else the file says
    values: NDArray[np.float64]


@dataclass(frozen=True)
class LoadTest:
    """One load on a server."""

    load: dict[str, str]  # rate, concurrency, lengths: what was sent
    served: dict[str, str]  # model, backend: what answered
    latencies: tuple[Latency, ...]
    rates: dict[str, float]  # by label
    completed: int | None
    failed: int | None
    tokens_in: int | None  # of all requests
    tokens_out: int | None


def claims(path: Path, head: bytes) -> bool:
    """JSON with a load test's own words, and no events."""
    start = head.lstrip()[:1] == b"{" and not any(sign in head for sign in _EVENTS)
    return start and (any(s in head for s in _SIGNS) or all(a in head for a in _ASKED))


def read(path: Path) -> Trace:
    """Latencies and rates of each run; UnreadableFile where there are none."""
    runs = load_tests(path)
    titles = _titles(runs)
    tables = [
        table
        for run, title in zip(runs, titles, strict=True)
        for table in (_latency_table(run, title), _rate_table(run, title))
        if table.rows
    ]
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size),
        summaries=tuple(tables),
        health=health_table(_failures(runs), names),
        names=names.freeze(),
    )


def _failures(runs: Sequence[LoadTest]) -> list[Fact]:
    """Requests that failed; of a run in which all did, there is no latency."""
    failed = sum(run.failed or 0 for run in runs)
    if all(run.completed == 0 for run in runs):
        return [Fact("requests-all-failed", failed or 1)]
    return [Fact("requests-failed", failed)] if failed else []


def load_tests(path: Path) -> tuple[LoadTest, ...]:
    """Each run of a file; UnreadableFile where none says anything, or one the impossible."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        runs = [_load_test(run) for run in _runs(path, plain.read_bytes())]
    found = tuple(run for run in runs if run.latencies or run.rates)
    if not found:
        raise UnreadableFile(
            f"{path}: a load test without latencies or rates",
            hint="run it again and let it end: vllm bench serve --save-result",
        )
    for number, run in enumerate(found, 1):
        if fault := _fault(run):
            which = f"run {number}: " if len(found) > 1 else ""
            raise UnreadableFile(
                f"{path}: {which}{fault}", hint="edited or damaged: run the load test again"
            )
    return found


def _fault(run: LoadTest) -> str | None:
    """What cannot be, of a clock that runs forward and of numbers in order."""
    for latency in run.latencies:
        below = [of for of, value in latency.said.items() if value < 0]
        if below or (len(latency.values) and latency.values.min() < 0):
            return f"{latency.label}: {(below or ['one'])[0]} is below zero"
        known = [(of, latency.said[of]) for of in _RISING if of in latency.said]
        for (low, a), (high, b) in pairwise(known):
            if a > b * _ROUNDED:
                return f"{latency.label}: {low} {_shown(a)} ms is above {high} {_shown(b)} ms"
    negative = [label for label, value in run.rates.items() if value < 0]
    return f"{negative[0]} is below zero" if negative else None


def _titles(runs: Sequence[LoadTest]) -> list[str]:
    """Of several runs: the number of each, and in what it differs from others."""
    if len(runs) == 1:
        return [""]
    said = [run.load | run.served for run in runs]
    names = dict.fromkeys(name for one in said for name in one)
    differ = [name for name in names if len({one.get(name) for one in said}) > 1]
    return [
        ", ".join((f"run {i}", *(f"{name} {one[name]}" for name in differ if name in one)))
        for i, one in enumerate(said, 1)
    ]


def _load_test(run: dict[str, Any]) -> LoadTest:
    inside = run.get("performance")
    said = {**run, **inside} if isinstance(inside, dict) else run

    def count(*names: str) -> int | None:
        values = [_number(said.get(name)) for name in names]
        return next((int(v) for v in values if v is not None and v >= 0), None)

    return LoadTest(
        load={k: _word(said[k]) for k in _LOAD if said.get(k) is not None},
        served={k: _word(said[k]) for k in _SERVED if said.get(k) is not None},
        # what programs write of no request at all are zeros
        latencies=() if count("completed") == 0 else tuple(_latencies(run)),
        rates={
            label: value
            for key, label in _RATES.items()
            if (value := _number(said.get(key))) is not None
        },
        completed=count("completed"),
        failed=count("failed"),
        tokens_in=count("total_input_tokens"),
        tokens_out=count("total_output_tokens"),
    )


def _number(value: Any) -> float | None:
    """A number that can be one of a load; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -_LARGEST <= value <= _LARGEST else None


def _word(value: Any) -> str:
    return str(value)[:_LONGEST_WORD]


_LONGEST_WORD = 120  # of a name of a model; longer is a text


def _runs(path: Path, text: bytes) -> Iterator[dict[str, Any]]:
    try:
        lines = [text] if _is_one(text) else text.splitlines()
        for line in lines[:_MOST_RUNS]:
            run = _decoded(line) if line.strip() else None
            if isinstance(run, dict):
                yield run
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: cut off or broken JSON ({error})", hint="copy it again, or run it again"
        ) from None


def _decoded(text: bytes) -> Any:
    """The document; ``Infinity`` and ``NaN``, which Python writes and JSON has not, are unknown."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text, parse_constant=lambda _: None)


def _is_one(text: bytes) -> bool:
    try:
        _decoded(text)
    except (ValueError, RecursionError):
        return False
    return True


def _latencies(run: dict[str, Any]) -> Iterator[Latency]:
    found: dict[str, dict[str, float]] = {}
    for key, value in run.items():
        match, number = _LATENCY.fullmatch(str(key)), _number(value)
        if match and number is not None:
            found.setdefault(match["what"], {})[match["of"]] = number
    found |= _of_tensorrt(run)
    measured = {"ttft": _measured(run.get("ttfts")), "itl": _measured(run.get("itls"))}
    for what in dict.fromkeys((*found, *(name for name, v in measured.items() if len(v)))):
        values = measured.get(what, np.zeros(0))
        yield Latency(
            _SHORT.get(what, what),
            _LABELS.get(what, what),
            found.get(what) or _summary(values),
            values,
        )


def _measured(seconds: Any) -> NDArray[np.float64]:
    """Milliseconds of single requests, or of lists of them."""
    if not isinstance(seconds, list):
        return np.zeros(0)
    flat = [x for s in seconds for x in (s if isinstance(s, list) else [s])]
    known = [number for x in flat if (number := _number(x)) is not None]
    return np.array(known, np.float64) * 1e3


def _summary(values: NDArray[np.float64]) -> dict[str, float]:
    known = {f"p{p}": float(np.percentile(values, p)) for p in _PERCENTILES}
    return {"median": float(np.median(values)), "mean": float(values.mean()), **known}


def _of_tensorrt(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    places = (
        ("e2e", "performance", "request_latency_percentiles_ms"),
        ("ttft", "streaming_metrics", "ttft_percentiles"),
        ("tpot", "streaming_metrics", "tpot_percentiles"),
    )
    for what, part, key in places:
        said = (run.get(part) or {}).get(key) if isinstance(run.get(part), dict) else None
        if isinstance(said, dict):
            numbers = {
                _SPELT.get(str(k), str(k)): n
                for k, v in said.items()
                if (n := _number(v)) is not None
            }
            found |= {what: numbers} if numbers else {}
    return found


def _latency_table(run: LoadTest, title: str) -> SummaryTable:
    rows = tuple(
        (one.label, *(_shown(one.said.get(column)) for column in _COLUMNS)) for one in run.latencies
    )
    return SummaryTable(("latency (ms)", *_COLUMNS), rows, title)


def _rate_table(run: LoadTest, title: str) -> SummaryTable:
    rows = tuple((label, _shown(value)) for label, value in run.rates.items())
    return SummaryTable(("load", "value"), rows, title)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
