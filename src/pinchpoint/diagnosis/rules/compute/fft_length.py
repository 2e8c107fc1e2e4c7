"""Fourier transforms on a device have a length with a large prime factor.

## What it looks for
Transforms whose length, by the shapes and arguments of their operators, has a prime factor above
127, and their device time against what they have to move. The next length of factors 2, 3 and 5 is
told. Where lengths are not recorded, nothing is. Programs that XLA compiled have theirs in the
recording of `jax.profiler`.

## Why it matters
Libraries have passes of their own for small factors, and general ones for primes up to 127. A
larger one is computed by transforms of more than twice the length (Bluestein's method), several
times the work and the memory traffic for a signal that may be one point shorter.

## How to fix it
Pad to the next fast length (`scipy.fft.next_fast_len`) and cut the result; for a linear convolution
any length from the sum of both minus one on will do. What is said is a transform that takes 1.5
times what its passes over memory need, as those of fast lengths were seen to.

## When to ignore it
Where the length is what is asked for: a spectrum with exactly these frequencies.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.costs import fourier
from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.replay import DropDeviceOps, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.compiled_work import compiled_work, needing, place_told
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES, parent="slow-operator", advice=NO_HINT)

LARGEST_PRIME_WITH_A_PASS = 127  # cuFFT documentation, "Accuracy and Performance"
# What transforms of fast lengths take, of the passes over memory that they need: in three programs
# whose fix was measured on H200s 1.4 (gh01), 1.5 (o13) and 2.1 times (ge08); without any one of
# them 1.4 to 1.8 in the middle.
REACHED_RATIO = 1.5


def check(trace: Trace) -> Iterator[Found]:
    """Transforms of slow lengths, all together."""
    yield from _of_compiled(trace)
    calls = launched_calls(trace)
    transforms = calls.where(lambda of: of.call.name in fourier.NAMES)
    if not transforms.any():
        return
    lengths = calls.numbers(_slow_length)
    known = calls.where(_length_is_known)
    if not known.any():
        raise NotChecked("the lengths of the transforms are not recorded")
    mine = (lengths > 0) & device_ops_in_steps(trace)
    work = device_work(trace, mine, "transforms of a slow length")
    limits = needed_limits(trace)
    rows = np.flatnonzero(mine & ~np.isnan(limits.limit_ns))
    if work is None or not len(rows):
        return
    ops = trace.device_ops
    assert ops is not None
    took = np.bincount(lengths[rows].astype(np.int64), ops["duration_ns"][rows])
    length = int(took.argmax())
    again = limits.repeated[rows]
    yield Found(
        **_said(length, work.ns_per_step, work.place),
        evidence=(*work.evidence, *_of_length(length)),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            DropDeviceOps(rows[again]),
            LimitDeviceOps(rows[~again], _reached_ns(trace, limits.at_limit_ns, rows[~again])),
        ),
    )


def _said(length: int, ns_per_step: int, place: Location | None) -> dict[str, Any]:
    prime, fast = fourier.largest_prime_factor(length), fourier.next_fast_length(length)
    where = f" in {place}" if place else ""
    why = "a prime" if prime == length else f"a multiple of the prime {prime}"
    return {
        "summary": (
            f"Fourier transforms of length {length}, {why}, take {duration(ns_per_step)} of"
            f" the device's time a step{where}; {fast} is a fast length"
        ),
        "location": place,
        "fix": "Pad to the next length of factors 2, 3 and 5, and cut the result",
        "hint": f"n = scipy.fft.next_fast_len({length}, real=True)  # {fast}",
    }


def _of_length(length: int) -> tuple[Evidence, ...]:
    return (
        Evidence("length that takes most", length, "points"),
        Evidence("its largest prime factor", fourier.largest_prime_factor(length), "count"),
        Evidence("next length of factors 2, 3 and 5", fourier.next_fast_length(length), "points"),
    )


def _of_compiled(trace: Trace) -> Iterator[Found]:
    """The same of programs that XLA compiled, which say the lengths of their transforms."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return
    row = compiled_rows(trace)
    length = np.where(row >= 0, compiled.filled("fft_length", 0)[row], 0)
    slow = [n for n in distinct(length).tolist() if _is_slow(n)]
    work = compiled_work(trace, np.isin(length, slow))
    if work is None:
        return
    limit = needed_limits(trace).at_limit_ns[work.rows]
    mine = length[work.rows]
    passes = np.where(mine > fourier.LONGEST_IN_A_PASS, 3.0, 1.0)  # the third: of a real one
    least = np.where(np.isnan(limit), 1.0, passes * limit / np.maximum(work.took_ns, 1))
    most = int(np.bincount(mine, work.took_ns).argmax())
    longest = int(row[work.rows][work.took_ns.argmax()])
    yield Found(
        **_said(most, work.ns_per_step, place_told(trace.text(compiled, "source", longest))),
        evidence=(
            Evidence("transforms of a slow length", work.ns_per_step, "ns per step"),
            *_of_length(most),
        ),
        cost_ns_per_step=work.ns_per_step,
        **needing(trace, work, np.minimum(REACHED_RATIO * least, 1), np.minimum(least, 1)),
    )


def _reached_ns(trace: Trace, limit_ns: Floats, rows: Rows) -> Floats:
    """What good kernels take for these, and no longer than they take now."""
    assert trace.device_ops is not None
    took = trace.device_ops["duration_ns"][rows]
    return np.minimum(REACHED_RATIO * limit_ns[rows], took)


def _length_is_known(of: LaunchedCall) -> bool:
    return of.call.name in fourier.NAMES and fourier.transform_lengths(of.call) is not None


def _slow_length(of: LaunchedCall) -> float | None:
    """The longest length of a call that has too large a prime factor; None without one."""
    lengths = fourier.transform_lengths(of.call) if of.call.name in fourier.NAMES else None
    return max((n for n in lengths or () if _is_slow(n)), default=None)


def _is_slow(length: int) -> bool:
    return length > 0 and fourier.largest_prime_factor(length) > LARGEST_PRIME_WITH_A_PASS
