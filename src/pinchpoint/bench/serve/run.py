"""One run of load as ``metrics.json``."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.bench.folders import new_id, utc_now, write_atomic
from pinchpoint.bench.metrics import RunMetrics, Throughput, write_metrics
from pinchpoint.bench.run import Place, params_digest
from pinchpoint.bench.run.validity import FAILED_REQUESTS_LIMIT
from pinchpoint.bench.serve.client import Answer, Endpoint, ask
from pinchpoint.bench.serve.latency import Served, served
from pinchpoint.bench.serve.load import Load, Prompt, Request, body, cycled, run_load

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
            "chat": self.chat,
        }


def serve_run(plan: ServePlan, place: Place) -> RunMetrics:
    """Send the load once; raw times of every request are kept beside the metrics."""
    place.folder.mkdir(parents=True)
    started = utc_now()
    requests = asyncio.run(_send(plan))
    _keep(place.folder / "requests.f64", requests)
    metrics = _metrics(plan, place, started, served(requests, plan.objectives_ms))
    write_metrics(place.folder / "metrics.json", metrics)
    return metrics


async def _send(plan: ServePlan) -> list[Request]:
    prompts = cycled(plan.prompts, plan.warmup_requests + plan.load.requests)
    warm, timed = prompts[: plan.warmup_requests], prompts[plan.warmup_requests :]

    async def one(prompt: Prompt) -> Answer:
        content = body(
            prompt,
            model=plan.model,
            max_tokens=plan.max_tokens,
            chat=plan.chat,
            extra=dict(plan.extra),
        )
        return await ask(plan.where, content, plan.timeout_s)

    for prompt in warm:
        await one(prompt)
    return await run_load(plan.load, lambda i: one(timed[i]))


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
