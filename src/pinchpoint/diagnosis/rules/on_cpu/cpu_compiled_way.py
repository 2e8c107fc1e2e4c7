"""On a CPU, a compiled program does slowly what can be written otherwise.

## What it looks for
Operations of programs that XLA compiled for the CPU, which a recording of JAX holds (`.xplane.pb`),
of which another way was measured: convolutions of each channel by itself (`feature_group_count` of
as many groups as channels, eight or more, windows of at most 32 points) with their gradients;
convolutions of one channel with one of 256 points or more; and 256 or more linear systems of at
most six unknowns (`jnp.linalg.solve`, `inv`, `det`). They take a twentieth of the step.

## Why it matters
XLA has no vectors for a convolution in groups, and computes the gradient of its kernel for all
pairs of channels. It convolves point by point, whatever the length. And it calls LAPACK for each
matrix, which takes a few hundred nanoseconds before it computes.

## How to fix it
Add shifted copies: one product of the padded input for each point of the window. Convolve long
signals by `jax.scipy.signal.fftconvolve`. Write the elimination of small systems out: a loop of
Python over the unknowns, of which each line works on all systems at once.

Measured on one to two cores, of what it took before: shifted copies 0.4 to 0.8 % forward and 2 to
32 % of gradients; elimination of 2 to 6 unknowns 2.5 to 18 %; transforms took 20 to 60 ns for each
number of the result (28 in the middle). What is won surely goes by the slowest of these.

## When to ignore it
Where systems need pivoting: rows that are nearly dependent, zeros on the diagonal.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.compiled_on_cpu import CpuWork, cpu_work, won_on_cpu
from pinchpoint.diagnosis.evidence.compiled_work import place_told
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import LEAST_RATIO
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)


@dataclass(frozen=True)
class _Kind:
    what: str
    fix: str
    hint: str
    # As measured, in the other way: at most, in the middle, at least.
    left: tuple[float, float, float]  # of its time
    ns_per_byte: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of its result, beside that


_KINDS = {
    "depthwise": _Kind(
        "Convolutions of each channel by itself",
        "Add shifted copies of the padded input, each times its point of the window",
        "y = sum(padded[:, k:k + length] * w[k, 0] for k in range(points))",
        (0.32, 0.05, 0.004),
    ),
    "long": _Kind(
        "Long convolutions, point by point,",
        "Convolve by Fourier transforms",
        'y = jax.scipy.signal.fftconvolve(x, kernel, mode="same")',
        (0.0, 0.0, 0.0),
        (15.0, 7.0, 5.0),
    ),
    "systems": _Kind(
        "Small linear systems, each a call of LAPACK,",
        "Write the elimination out, a line for all systems at once",
        "row = m[:, i] / m[:, i, i:i + 1]; m = m - m[:, :, i:i + 1] * row[:, None]",
        (0.18, 0.12, 0.025),
    ),
}


def check(trace: Trace) -> Iterator[Found | Small]:
    """The kind that takes most time."""
    compiled, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if compiled is None or not compiled_for_cpu(trace) or not len(judged_steps(trace)):
        return
    numbers = [number for number, name in enumerate(trace.names) if name in _KINDS]
    way = compiled.filled("way", -1)
    mine = compiled.known("way") & np.isin(way, numbers)
    if not mine.any() or not step_ns:
        return
    took = np.bincount(way[mine], compiled["duration_ns"][mine])
    number = int(took.argmax())
    work = cpu_work(trace, compiled, mine & (way == number))
    if work is None:
        return
    if work.ns_per_step < LEAST_RATIO * step_ns:
        yield Small(work.ns_per_step / step_ns, LEAST_RATIO)
        return
    yield _found(trace, compiled, work, _KINDS[trace.names[number]])


def _found(trace: Trace, compiled: Table, work: CpuWork, kind: _Kind) -> Found:
    written = compiled.filled("way_bytes", 0)[work.rows].astype(np.float64)
    left, likely, least = (
        float(np.minimum(share * work.took_ns + ns * written, work.took_ns).sum())
        / max(float(work.took_ns.sum()), 1)
        for share, ns in zip(kind.left, kind.ns_per_byte, strict=True)
    )
    longest = int(work.rows[work.took_ns.argmax()])
    at = place_told(trace.text(compiled, "way_at", longest))
    return Found(
        summary=(
            f"{kind.what} take {duration(work.ns_per_step)} of each recorded step"
            f"{f' at {at.short}' if at else ''}, {work.count:.0f} operations; another way was seen"
            f" to take {100 * least:.2g} to {100 * left:.2g} % of that"
        ),
        evidence=(
            Evidence("such operations", work.ns_per_step, "ns per step"),
            Evidence("operations", round(work.count, 2), "per step"),
            Evidence("of it that stays, at most", round(left, 4), "ratio"),
        ),
        **won_on_cpu(trace, work, left, least, likely),
        location=at,
        fix=kind.fix,
        hint=kind.hint,
        confidence="medium",
    )
