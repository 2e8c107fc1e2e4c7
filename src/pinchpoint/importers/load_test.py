"""Results of load tests of serving engines: vLLM, SGLang, TensorRT-LLM; latencies, no timeline.

``vllm bench serve`` writes an object, SGLang's ``bench_serving`` a line for each run, and
``trtllm-bench`` a report. What each says of its requests is kept in ``Trace.summaries``, in
milliseconds; where a file has the requests themselves (``ttfts`` and ``itls``, in seconds), their
percentiles are taken from those.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers._memory import TABLE_TIMES, must_fit
from pinchpoint.importers._packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "load test"
FILES = (".json .jsonl", "vllm bench serve, SGLang bench_serving, trtllm-bench")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "texts of requests"

_SIGNS = (b'"request_throughput"', b'"mean_ttft_ms"', b'"streaming_metrics"', b'"output_lens"')
_EVENTS = (b'"traceEvents"', b'"ph"')
_LATENCY = re.compile(r"(?P<of>mean|median|std|p\d{1,2}(?:\.\d+)?)_(?P<what>\w+?)(?:_latency)?_ms")
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
_COLUMNS = ("median", "mean", "p90", "p95", "p99")
_PERCENTILES = (90, 95, 99)  # of these columns
_MOST_RUNS = 1000  # lines of one file; a sweep has dozens


def claims(path: Path, head: bytes) -> bool:
    """JSON with a load test's own words, and no events."""
    start = head.lstrip()[:1] == b"{" and not any(sign in head for sign in _EVENTS)
    return start and any(sign in head for sign in _SIGNS)


def read(path: Path) -> Trace:
    """Latencies and rates of each run; UnreadableFile where there are none."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        runs = list(_runs(path, plain.read_bytes()))
    tables = [table for run in runs for table in (_latencies(run), _rates(run)) if table.rows]
    if not tables:
        raise UnreadableFile(
            f"{path}: a load test without latencies or rates",
            hint="run it again and let it end: vllm bench serve --save-result",
        )
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size),
        summaries=tuple(tables),
        health=health_table([], names),
        names=names.freeze(),
    )


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


def _latencies(run: dict[str, Any]) -> SummaryTable:
    found: dict[str, dict[str, float]] = {}
    for key, value in run.items():
        match = _LATENCY.fullmatch(str(key))
        if match and isinstance(value, int | float):
            found.setdefault(match["what"], {})[match["of"]] = float(value)
    for what, seconds in (("ttft", run.get("ttfts")), ("itl", run.get("itls"))):
        if what not in found and (known := _measured(seconds)):
            found[what] = known
    found |= _of_tensorrt(run)
    rows = tuple(
        (_LABELS.get(what, what), *(_shown(said.get(column)) for column in _COLUMNS))
        for what, said in found.items()
    )
    return SummaryTable(("latency (ms)", *_COLUMNS), rows)


def _measured(seconds: Any) -> dict[str, float]:
    """Of single requests, or of lists of them."""
    if not isinstance(seconds, list):
        return {}
    flat = [x for s in seconds for x in (s if isinstance(s, list) else [s])]
    ms = np.array([x * 1e3 for x in flat if isinstance(x, int | float)], np.float64)
    values = ms[np.isfinite(ms)]
    if not len(values):
        return {}
    known = {f"p{p}": float(np.percentile(values, p)) for p in _PERCENTILES}
    return {"median": float(np.median(values)), "mean": float(values.mean()), **known}


def _of_tensorrt(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    found = {}
    places = (
        ("e2e", "performance", "request_latency_percentiles_ms"),
        ("ttft", "streaming_metrics", "ttft_percentiles"),
        ("tpot", "streaming_metrics", "tpot_percentiles"),
    )
    for what, part, key in places:
        said = (run.get(part) or {}).get(key) if isinstance(run.get(part), dict) else None
        if isinstance(said, dict):
            numbers = {k: float(v) for k, v in said.items() if isinstance(v, int | float)}
            spelt = {"p50": "median", "average": "mean"}
            found[what] = {spelt.get(k, k): v for k, v in numbers.items()}
    return found


def _rates(run: dict[str, Any]) -> SummaryTable:
    performance = run.get("performance")
    said = {**run, **performance} if isinstance(performance, dict) else run
    rows = tuple(
        (label, _shown(float(value)))
        for key, label in _RATES.items()
        if isinstance(value := said.get(key), int | float) and not isinstance(value, bool)
    )
    return SummaryTable(("load", "value"), rows)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
