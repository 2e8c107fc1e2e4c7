"""The classic mistakes of timing: which of them would have misled here, and which explain a claim.

Ids are those of the taxonomy: ``bench-no-sync``, ``bench-no-warmup``, ``bench-hot-cache``.
"""

from collections.abc import Iterator
from dataclasses import replace

from pinchpoint.bench.micro.timing import Remark, Samples, Timing, nanoseconds

MATTERS = 1.25  # a simpler timing off by this factor is worth a remark
FIRST_CALL_MATTERS = 10.0  # a first call is always slower; ten times misleads a loop of ten
DISTURBED_LIMIT = 0.10  # of the samples; more, and the result is marked, never thrown away
SLOWS_DOWN = 1.03  # sustained over burst
CLAIM_WITHIN = 0.30  # a claim this near to a wrong figure is explained by it
NAIVE_LOOP = 10  # calls of the loop that a claim without warm-up is compared with


def judged(
    timing: Timing, *, peak_bytes_per_s: float | None, peak_flop_per_s: float | None
) -> Timing:
    """The timing with its remarks and reasons to doubt it."""
    remarks = [*_would_mislead(timing), *_doubts(timing)]
    remarks += _above_ceiling(timing, peak_bytes_per_s, peak_flop_per_s)
    return replace(
        timing, remarks=tuple(remarks), invalid_reasons=tuple(_invalid(timing, peak_flop_per_s))
    )


def _would_mislead(timing: Timing) -> Iterator[Remark]:
    issue, call = timing.batched.issue_ns, timing.batched.median_ns
    if timing.clock != "host monotonic clock" and issue * MATTERS < call:
        yield Remark(
            "bench-no-sync",
            f"a host clock without synchronisation would have said {nanoseconds(issue)} "
            f"for {nanoseconds(call)}: it times the launch",
        )
    if timing.first_call_ns > FIRST_CALL_MATTERS * call:
        yield Remark(
            "bench-no-warmup",
            f"the first call took {nanoseconds(timing.first_call_ns)}: compiling, loading, "
            "allocating, tuning; it is not in the result",
        )
    if timing.cold and timing.cold.median_ns > MATTERS * timing.hot.median_ns:
        yield Remark(
            "bench-hot-cache",
            f"with inputs in the cache a call takes {nanoseconds(timing.hot.median_ns)}, without "
            f"{nanoseconds(timing.cold.median_ns)}: use the one that your program sees",
        )


def _doubts(timing: Timing) -> Iterator[Remark]:
    if timing.host_bound:
        yield Remark(
            "launch-bound",
            f"a call costs the host {nanoseconds(timing.batched.issue_ns)} and the device "
            f"{nanoseconds(timing.median_ns)}: in a loop the host sets the pace",
        )
    full = timing.batched.queue_full_ratio
    if full is not None and full < 0.5:
        yield Remark(
            "host-in-the-way",
            "the device could not be kept ahead of the host: the function waits for the device "
            "inside, or launches more than the queue holds",
        )
    yield from _limited_by_power(timing)
    for samples in timing.every_mode:
        yield from _doubts_of(samples, timing.resolution_ns)


def _limited_by_power(timing: Timing) -> Iterator[Remark]:
    sustained = timing.sustained
    if sustained is None or sustained.median_ns < SLOWS_DOWN * timing.median_ns:
        return
    clocks = (timing.batched.sm_clock_mhz, sustained.sm_clock_mhz)
    said = f" (SM clock {clocks[0]:.0f}, then {clocks[1]:.0f} MHz)" if all(clocks) else ""
    yield Remark(
        "slows-down",
        f"without a pause a call takes {nanoseconds(sustained.median_ns)}, after one "
        f"{nanoseconds(timing.median_ns)}{said}: heat or power",
    )


def _doubts_of(samples: Samples, resolution_ns: float) -> Iterator[Remark]:
    if samples.calls == 1 and samples.median_ns < 20 * resolution_ns:
        yield Remark(
            "near-resolution",
            f"{samples.mode}: {nanoseconds(samples.median_ns)} is near the clock's resolution of "
            f"{nanoseconds(resolution_ns)}",
        )
    if samples.modes:
        gap = f"{samples.modes.gap_ratio:.0%}"
        yield Remark("two-speeds", f"{samples.mode}: samples fall into two groups, {gap} apart")
    burst, sustained = samples.burst_and_sustained_ns
    if samples.mode == "batched" and sustained > SLOWS_DOWN * burst:
        yield Remark(
            "slows-down",
            f"{nanoseconds(burst)} at first, {nanoseconds(sustained)} at the end: heat or power",
        )


def _above_ceiling(
    timing: Timing, peak_bytes_per_s: float | None, peak_flop_per_s: float | None
) -> Iterator[Remark]:
    if peak_bytes_per_s and timing.moved_bytes:
        hot = timing.moved_bytes / (timing.hot.median_ns * 1e-9)
        if hot > peak_bytes_per_s and timing.cold is None:
            yield Remark(
                "bench-hot-cache",
                f"{hot / 1e12:.2f} TB/s is above the memory's {peak_bytes_per_s / 1e12:.2f} TB/s: "
                "inputs come from the cache",
            )
    rate = timing.flop_per_s()
    if peak_flop_per_s and rate and rate > peak_flop_per_s:
        yield Remark(
            "above-ceiling",
            f"{rate / 1e12:.1f} TFLOP/s is above the device's {peak_flop_per_s / 1e12:.1f}",
        )


def _invalid(timing: Timing, peak_flop_per_s: float | None) -> Iterator[str]:
    if not timing.warmup_converged:
        yield "the function never became steady during the warm-up"
    if timing.compilations:
        yield f"code was compiled {timing.compilations} times while timed"
    for samples in (timing.batched, timing.hot, timing.cold):
        share = samples.disturbed_ratio if samples else None
        if samples and share is not None and share > DISTURBED_LIMIT:
            yield f"{samples.mode}: the clock was lowered in {share:.0%} of the samples"
    rate = timing.flop_per_s()
    if peak_flop_per_s and rate and rate > peak_flop_per_s:
        yield "faster than the device can be: the work was not done, or not waited for"


def explain_claim(timing: Timing, claimed_ns: float) -> Remark:
    """Which mistake a claimed time comes from, if any."""
    good = [s.median_ns for s in (timing.batched, timing.hot, timing.cold) if s]
    if min(good) * (1 - CLAIM_WITHIN) <= claimed_ns <= max(good) * (1 + CLAIM_WITHIN):
        if (
            timing.cold
            and _near(claimed_ns, timing.hot.median_ns)
            and not _near(claimed_ns, timing.cold.median_ns)
        ):
            return Remark(
                "bench-hot-cache", f"{nanoseconds(claimed_ns)} holds with inputs in the cache"
            )
        return Remark("plausible", f"{nanoseconds(claimed_ns)} agrees with what is measured here")
    if claimed_ns < min(good) and _near(claimed_ns, timing.batched.issue_ns):
        return Remark(
            "bench-no-sync", f"{nanoseconds(claimed_ns)} is the time to launch, not to compute"
        )
    with_first = (timing.first_call_ns + (NAIVE_LOOP - 1) * timing.median_ns) / NAIVE_LOOP
    if claimed_ns > max(good) and claimed_ns <= with_first * (1 + CLAIM_WITHIN):
        return Remark("bench-no-warmup", f"{nanoseconds(claimed_ns)} has first calls in it")
    return Remark(
        "unexplained", f"{nanoseconds(claimed_ns)} agrees with nothing that is measured here"
    )


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= CLAIM_WITHIN * b
