"""Fourier transforms on a CPU have a length with a large prime factor.

## What it looks for
In a program without a device: transforms of a length with a prime factor of 37 or more, by the
shapes and arguments of their operators. The next length of factors 2, 3 and 5 is told.

## Why it matters
Libraries have passes for small factors. A large prime is computed as a product of all its points
with each other, or by several transforms of more than twice the length (Bluestein's method), and
real transforms as complex ones: half of such lengths take six times as long or more, some fifty
times, for a signal that is a few points shorter.

## How to fix it
Pad to the next fast length (`scipy.fft.next_fast_len`) and cut the result; or choose windows and
filters so that the length of both together is fast.

## When to ignore it
Where the length is what is asked for: a spectrum with exactly these frequencies.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs import fourier
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, named, too_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, distinct_rows
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES)


@dataclass(frozen=True)
class Times:
    """How often as long as the next fast length, of lengths of a kind."""

    least: float
    median: float
    most: float

    def saved_ns(self, took_ns: int) -> list[float]:
        """Of this time: least, likely and most."""
        return [took_ns * (1 - 1 / times) for times in (self.least, self.median, self.most)]


# Measured by `benchmarks/fft_lengths.py` on one thread with MKL, 40 lengths of each kind; of primes
# above 100 with the least of 89 others. With factors up to 31 a length may also be faster.
LEAST_PRIME, LARGE_PRIME = 37, 101
REAL = {LEAST_PRIME: Times(1.3, 6.0, 53.7), LARGE_PRIME: Times(1.7, 11.2, 47.6)}
COMPLEX = {LEAST_PRIME: Times(1.9, 8.0, 26.8), LARGE_PRIME: Times(1.9, 9.3, 27.0)}


def check(trace: Trace) -> Iterator[Found | Small]:
    """Transforms of slow lengths."""
    mine = judged(trace)
    if mine is None:
        return
    wanted = mine & cpu_operators(trace).operator & named(trace, *fourier.NAMES)
    if not wanted.any():
        return
    rows = np.flatnonzero(wanted)
    slow = _slow_length(trace, rows)
    if slow is None:
        raise NotChecked("the lengths of the transforms are not recorded")
    wanted[wanted] = slow > 0
    spans = host_spans(trace, wanted, "transforms of a slow length")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    host = trace.host_ops
    assert host is not None
    took = host["duration_ns"][spans.rows].astype(np.int64)
    length = int(np.bincount(slow[np.searchsorted(rows, spans.rows)], took).argmax())
    fast, prime = fourier.next_fast_length(length), fourier.largest_prime_factor(length)
    whole = named(trace, "aten::_fft_c2c")[spans.rows]
    complex_ns = round(spans.ns_per_step * float(took[whole].sum() / max(took.sum(), 1)))
    kind = LARGE_PRIME if prime >= LARGE_PRIME else LEAST_PRIME
    parts = ((spans.ns_per_step - complex_ns, REAL[kind]), (complex_ns, COMPLEX[kind]))
    saved = [times.saved_ns(ns) for ns, times in parts]
    least, likely, most = (round(sum(ways)) for ways in zip(*saved, strict=True))
    why = "a prime" if prime == length else f"a multiple of the prime {prime}"
    yield Found(
        summary=(
            f"{spans.count:.3g} Fourier transforms a step of length {length}, {why}, take"
            f" {duration(spans.ns_per_step)}{spans.where}; {fast} is a fast length"
        ),
        evidence=(
            *spans.evidence,
            Evidence("length that takes most", length, "points"),
            Evidence("its largest prime factor", prime, "count"),
            Evidence("next length of factors 2, 3 and 5", fast, "points"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        saving_ns_per_step=(least, most),
        likely_saving_ns=likely,
        location=spans.place,
        fix="Pad to the next length of factors 2, 3 and 5, and cut the result",
        hint=f"n = scipy.fft.next_fast_len({length}, real=True)  # {fast}",
    )


def _slow_length(trace: Trace, rows: Ints) -> Ints | None:
    """Of each of these calls the slow length that it transforms, 0 for none; None if no length
    is known."""
    host = trace.host_ops
    assert host is not None
    names = [host["name"][rows].astype(np.int64)]
    names += [host.filled(column, NOT_KNOWN)[rows] for column in ("shapes", "dtypes", "values")]
    distinct, which = distinct_rows(*names)
    lengths = []
    for one in distinct.tolist():
        call = call_of(trace.names, *one)
        lengths.append(None if call is None else fourier.transform_lengths(call))
    if all(one is None for one in lengths):
        return None
    slow = [max((n for n in one or () if _is_slow(n)), default=0) for one in lengths]
    found: Ints = np.array(slow, np.int64)[which]
    return found


def _is_slow(length: int) -> bool:
    return length > 0 and fourier.largest_prime_factor(length) >= LEAST_PRIME
