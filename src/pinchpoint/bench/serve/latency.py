"""From requests to TTFT, TPOT, ITL, end-to-end latency, and goodput.

- TTFT: from the intended send to the first text.
- TPOT: (end - first text) / (tokens - 1), one value a request.
- ITL: gaps between chunks, pooled over requests. With speculative decoding or chunked streaming a
  chunk has several tokens, and ITL is not TPOT; both are given.
- e2e: from the intended send to the last text.
- goodput: requests a second that meet every objective.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.metrics import Summary
from pinchpoint.bench.run.timed import summarize_requests
from pinchpoint.bench.serve.load import Request

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
        errors={e: errors.count(e) for e in sorted(set(errors))},
    )


def tokens_of(request: Request) -> int:
    """As the server counts them, else chunks with text."""
    return request.answer.tokens or len(request.answer.chunk_ns)


def _ttft_ms(r: Request) -> float:
    return (r.answer.chunk_ns[0] - r.meant_ns) / 1e6


def _e2e_ms(r: Request) -> float:
    return (r.answer.chunk_ns[-1] - r.meant_ns) / 1e6


def _tpot_ms(r: Request) -> float | None:
    """None for a single token, which has no time between tokens."""
    count = tokens_of(r)
    if count < 2:
        return None
    return (r.answer.chunk_ns[-1] - r.answer.chunk_ns[0]) / 1e6 / (count - 1)


def _gaps_ms(r: Request) -> Values:
    gaps: Values = np.diff(np.array(r.answer.chunk_ns, np.float64)) / 1e6
    return gaps


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
