"""A timing as JSON: schema ``bench.timing/1``; times in nanoseconds."""

import msgspec

from pinchpoint.bench.micro.timing import Samples, Timing
from pinchpoint.bench.statistics.intervals import WIDEST_METHOD

SCHEMA = "bench.timing/1"


class ModeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: batched, hot or cold."""

    calls_per_sample: int
    count: int
    median_ns: float
    median_ci95_ns: tuple[float, float] | None
    ci_method: str | None
    mad_ns: float
    min_ns: float
    max_ns: float
    issue_ns: float
    lag1_autocorr: float | None
    queue_full_ratio: float | None
    disturbed_ratio: float | None
    sm_clock_mhz: float | None
    precise: bool
    samples_ns: tuple[float, ...] | None = None


class TimingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole timing."""

    schema: str = SCHEMA
    name: str
    backend: str
    device: str
    clock: str
    resolution_ns: float
    modes: dict[str, ModeDocument]
    first_call_ns: float
    warmup: dict[str, float | bool]
    host_bound: bool
    flop: float | None
    moved_bytes: float | None
    flop_per_s: float | None
    bytes_per_s: float | None
    invalid_reasons: tuple[str, ...]
    remarks: tuple[dict[str, str], ...]
    unknown: dict[str, str]


def document(timing: Timing, *, with_samples: bool = False) -> TimingDocument:
    """The document; raw samples only if asked for (up to 5000 numbers a mode)."""
    modes = {s.mode: s for s in timing.every_mode}
    return TimingDocument(
        name=timing.name,
        backend=timing.backend,
        device=timing.device,
        clock=timing.clock,
        resolution_ns=timing.resolution_ns,
        modes={name: _mode(samples, with_samples) for name, samples in modes.items()},
        first_call_ns=timing.first_call_ns,
        warmup={
            "calls": timing.warmup_calls,
            "seconds": timing.warmup_s,
            "converged": timing.warmup_converged,
        },
        host_bound=timing.host_bound,
        flop=timing.flop,
        moved_bytes=timing.moved_bytes,
        flop_per_s=timing.flop_per_s(),
        bytes_per_s=timing.bytes_per_s(),
        invalid_reasons=timing.invalid_reasons,
        remarks=tuple({"id": r.id, "text": r.text} for r in timing.remarks),
        unknown=timing.unknown | _unknown(timing),
    )


def _mode(samples: Samples, with_samples: bool) -> ModeDocument:
    interval = samples.ci95_ns
    return ModeDocument(
        calls_per_sample=samples.calls,
        count=len(samples.call_ns),
        median_ns=samples.median_ns,
        median_ci95_ns=interval,
        ci_method=WIDEST_METHOD if interval else None,
        mad_ns=samples.mad_ns,
        min_ns=float(samples.call_ns.min()),
        max_ns=float(samples.call_ns.max()),
        issue_ns=samples.issue_ns,
        lag1_autocorr=samples.autocorrelation,
        queue_full_ratio=samples.queue_full_ratio,
        disturbed_ratio=samples.disturbed_ratio,
        sm_clock_mhz=samples.sm_clock_mhz,
        precise=samples.precise,
        samples_ns=tuple(samples.call_ns.tolist()) if with_samples else None,
    )


def _unknown(timing: Timing) -> dict[str, str]:
    """Reasons for what is null, by path; ``modes.*`` stands for every mode."""
    reasons: dict[str, str] = {}
    if timing.flop is None:
        reasons |= dict.fromkeys(("flop", "flop_per_s"), "nobody counted; give flop")
    if timing.moved_bytes is None:
        reasons |= dict.fromkeys(("moved_bytes", "bytes_per_s"), "no arrays among the arguments")
    if timing.batched.sm_clock_mhz is None:
        reasons["modes.*.sm_clock_mhz"] = "no NVML device behind this backend"
    if timing.batched.disturbed_ratio is None:
        reasons["modes.*.disturbed_ratio"] = "no NVML device behind this backend"
    if timing.batched.queue_full_ratio is None:
        reasons["modes.*.queue_full_ratio"] = "this backend has no events"
    few = "needs 20 samples"
    return reasons | {
        f"modes.{s.mode}.{field}": few
        for s in timing.every_mode
        if s.ci95_ns is None
        for field in ("median_ci95_ns", "ci_method", "lag1_autocorr")
    }
