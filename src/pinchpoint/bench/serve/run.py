"""One run of load as ``metrics.json``."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.folders import new_id, utc_now, write_atomic
from pinchpoint.bench.metrics import RunMetrics, Summary, Throughput, write_metrics
from pinchpoint.bench.run import Place, params_digest
from pinchpoint.bench.run.timed import summarize_requests
from pinchpoint.bench.run.validity import FAILED_REQUESTS_LIMIT
from pinchpoint.bench.serve.client import Answer, Endpoint, ask, located
from pinchpoint.bench.serve.connection import STAMPED, own_time
from pinchpoint.bench.serve.load import Lag, Load, Prompt, Request, body, cycled, run_load
from pinchpoint.frozen import dataclass

# ------------------------------------------------------------------------------------------------
# From requests to TTFT, TPOT, ITL, end-to-end latency, and goodput.
#
# - TTFT: from the request's turn (``load.Request.begin_ns``) to the arrival of the first text.
# - TPOT: (end - first text) / (tokens - 1), one value a request.
# - ITL: gaps between chunks, pooled over requests. With speculative decoding or chunked streaming
#   a chunk has several tokens, and ITL is not TPOT; both are given.
# - e2e: from its turn to the last text.
# - goodput: requests a second that meet every objective.


Values = NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """What a load of requests showed."""

    latency_ms: Mapping[str, Summary]
    unknown: Mapping[str, str]
    ok: int
    failed: int
    window_s: float
    output_tokens: int
    counted_by_server: bool
    late_ms: float  # how late the generator sent, 95th percentile
    goodput_req_per_s: float | None
    errors: Mapping[str, int]
    bunched_ratio: float  # of the answers: their first text came in one read with the next
    lag_ms: float = 0.0  # how late the generator was at anything, for want of a CPU, the same


def served(requests: Sequence[Request], objectives_ms: Mapping[str, float]) -> Served:
    """Sum up; ``objectives_ms`` by kind (ttft, tpot, e2e)."""
    good = [r for r in requests if r.answer.error is None]
    values = {
        "ttft": np.array([_ttft_ms(r) for r in good]),
        "tpot": np.array([t for r in good if (t := _tpot_ms(r)) is not None]),
        "itl": np.concatenate([_gaps_ms(r) for r in good]) if good else np.zeros(0),
        "e2e": np.array([_e2e_ms(r) for r in good]),
    }
    summaries: dict[str, Summary] = {}
    unknown: dict[str, str] = {}
    for kind, numbers in values.items():
        summaries[kind], reasons = summarize_requests(numbers)
        unknown |= {f"latency_ms.{kind}" + (f".{k}" if k else ""): v for k, v in reasons.items()}
    window_s = _window_s(requests)
    met = sum(1 for r in good if _meets(r, objectives_ms))
    errors = [r.answer.error for r in requests if r.answer.error]
    return Served(
        latency_ms=summaries,
        unknown=unknown,
        ok=len(good),
        failed=len(errors),
        window_s=window_s,
        output_tokens=sum(tokens_of(r) for r in good),
        counted_by_server=all(r.answer.tokens is not None for r in good),
        late_ms=float(np.percentile([_late_ms(r) for r in requests], 95)) if requests else 0.0,
        goodput_req_per_s=met / window_s if objectives_ms and window_s > 0 else None,
        bunched_ratio=sum(map(_bunched, good)) / max(len(good), 1),
        errors={e: errors.count(e) for e in sorted(set(errors))},
    )


def tokens_of(request: Request) -> int:
    """As the server counts them, else chunks with text."""
    return request.answer.tokens or len(request.answer.chunk_ns)


def _ttft_ms(r: Request) -> float:
    return (r.answer.chunk_ns[0] - r.begin_ns) / 1e6


def _e2e_ms(r: Request) -> float:
    return (r.answer.chunk_ns[-1] - r.begin_ns) / 1e6


def _tpot_ms(r: Request) -> float | None:
    """None for a single token, which has no time between tokens."""
    count = tokens_of(r)
    if count < 2:
        return None
    return (r.answer.chunk_ns[-1] - r.answer.chunk_ns[0]) / 1e6 / (count - 1)


def _gaps_ms(r: Request) -> Values:
    gaps: Values = np.diff(np.array(r.answer.chunk_ns, np.float64)) / 1e6
    return gaps


def _bunched(r: Request) -> bool:
    return len(set(r.answer.chunk_ns[:2])) < len(r.answer.chunk_ns[:2])


def _late_ms(r: Request) -> float:
    return (r.answer.sent_ns - r.meant_ns) / 1e6


def _window_s(requests: Sequence[Request]) -> float:
    if not requests:
        return 0.0
    begin = min(r.meant_ns for r in requests)
    return (max(r.answer.end_ns for r in requests) - begin) / 1e9


def _meets(r: Request, objectives_ms: Mapping[str, float]) -> bool:
    measured = {"ttft": _ttft_ms(r), "e2e": _e2e_ms(r), "tpot": _tpot_ms(r) or 0.0}
    return all(measured[kind] <= limit for kind, limit in objectives_ms.items())


# ------------------------------------------------------------------------------------------------
# One run of load as ``metrics.json``.


LATE_LIMIT_MS = 50.0  # the generator itself was late: its own load is measured
_NOT_FROM_SERVING = dict.fromkeys(
    ("steps", "warmup", "memory", "gpu", "exit_code", "arm", "pair_index"), "a serving run"
)


@dataclass(frozen=True)
class ServePlan:
    """What to ask, how often, and what counts as good."""

    bench_id: str
    where: Endpoint
    model: str
    prompts: Sequence[Prompt]
    load: Load
    max_tokens: int = 128
    chat: bool = False
    shared_prefix: int = 0  # words
    extra: Mapping[str, Any] = field(default_factory=dict)
    objectives_ms: Mapping[str, float] = field(default_factory=dict)
    warmup_requests: int = 5
    timeout_s: float = 120.0
    session_id: str = ""
    env_sha256: str | None = None

    def params(self) -> dict[str, Any]:
        """What identifies the benchmark; comparisons need them equal."""
        return {
            "model": self.model,
            "load_mode": self.load.mode,
            "rate_per_s": self.load.rate_per_s,
            "concurrency": self.load.concurrency,
            "requests": self.load.requests,
            "max_tokens": self.max_tokens,
            **({"shared_prefix": self.shared_prefix} if self.shared_prefix else {}),
            "chat": self.chat,
        }


def serve_run(plan: ServePlan, place: Place) -> RunMetrics:
    """Send the load once; raw times of every request are kept beside the metrics."""
    return serve_requests(plan, place)[0]


def serve_requests(plan: ServePlan, place: Place) -> tuple[RunMetrics, list[Request]]:
    """The same, with the requests."""
    place.folder.mkdir(parents=True)
    started = utc_now()
    requests, lag_ms = asyncio.run(_send(plan))
    _keep(place.folder / "requests.f64", requests)
    found = served(requests, plan.objectives_ms)
    metrics = _metrics(plan, place, started, replace(found, lag_ms=lag_ms))
    write_metrics(place.folder / "metrics.json", metrics)
    return metrics, requests


async def _send(plan: ServePlan) -> tuple[list[Request], float]:
    """The requests, and how late this process was by itself."""
    prompts = cycled(plan.prompts, plan.warmup_requests + plan.load.requests)
    where, own_ns = await located(plan.where), own_time()
    warm, timed = prompts[: plan.warmup_requests], prompts[plan.warmup_requests :]

    async def one(prompt: Prompt) -> Answer:
        content = body(
            prompt,
            model=plan.model,
            max_tokens=plan.max_tokens,
            chat=plan.chat,
            extra=dict(plan.extra),
        )
        return await ask(where, content, plan.timeout_s, own_ns)

    for prompt in warm:
        await one(prompt)
    async with Lag() as lag:
        return await run_load(plan.load, lambda i: one(timed[i]), own_ns), lag.p95_ms


def _keep(path: Path, requests: Sequence[Request]) -> None:
    """Doubles, four a request: intended send, send, first and last text; ms since the first
    intended send; NaN where a request has no text."""
    if not requests:
        return
    begin = min(r.meant_ns for r in requests)
    rows = [
        (
            r.meant_ns,
            r.answer.sent_ns,
            r.answer.chunk_ns[0] if r.answer.chunk_ns else np.nan,
            r.answer.chunk_ns[-1] if r.answer.chunk_ns else np.nan,
        )
        for r in requests
    ]
    write_atomic(path, ((np.array(rows, "<f8") - begin) / 1e6).tobytes())


def _metrics(plan: ServePlan, place: Place, started: str, found: Served) -> RunMetrics:
    total = found.ok + found.failed
    unknown = _NOT_FROM_SERVING | dict(found.unknown)
    if found.goodput_req_per_s is None:
        unknown |= dict.fromkeys(("goodput_req_per_s", "slo"), "no objective was given")
    seconds = found.window_s or 1.0
    return RunMetrics(
        run_id=new_id(),
        bench_id=plan.bench_id,
        params=plan.params(),
        params_sha256=params_digest(plan.params()),
        order_index=place.order_index,
        session_id=plan.session_id,
        started_utc=started,
        duration_s=found.window_s,
        seed=plan.load.seed,
        status="ok" if found.ok else "failed",
        invalid_reasons=tuple(_reasons(found, total)),
        throughput=Throughput(
            value=found.ok / seconds,
            unit="requests/s",
            work=float(found.ok),
            work_unit="requests",
            window_s=found.window_s,
        ),
        latency_ms=dict(found.latency_ms),
        goodput_req_per_s=found.goodput_req_per_s,
        slo=dict(plan.objectives_ms) or None,
        load_mode=plan.load.mode,
        requests_ok=found.ok,
        requests_failed=found.failed,
        counters={
            "output_tokens": float(found.output_tokens),
            "output_tokens_per_s": found.output_tokens / seconds,
            "tokens_counted_by_server": float(found.counted_by_server),
            "generator_late_p95_ms": found.late_ms,
            "generator_lag_p95_ms": found.lag_ms,
            "arrivals_stamped": float(STAMPED and not plan.where.tls),
            "first_texts_with_later_ratio": found.bunched_ratio,
        },
        env_file="env.json" if plan.env_sha256 else None,
        env_sha256=plan.env_sha256,
        artifacts={"requests": "requests.f64"},
        unknown=unknown,
    )


def _reasons(found: Served, total: int) -> list[str]:
    reasons = []
    if total and found.failed / total > FAILED_REQUESTS_LIMIT:
        most = max(found.errors, key=lambda e: found.errors[e])
        reasons.append(f"{found.failed} of {total} requests failed, most with: {most}")
    if found.late_ms > LATE_LIMIT_MS:
        reasons.append(f"the load generator was {found.late_ms:.0f} ms late: use another machine")
    return reasons
