"""The device finishes kernels faster than the host can launch them.

## What it looks for
Short kernels, and a device that waits while the host dispatches operators that launch them, or runs
Python that calls these. The gain is what replay says for the same kernels launched as one graph a
step. A device that is busy would not be faster for it. Nor is this the cause where most of the
device's wait for the host has another one: a wait of the host, work on the CPU, a function that
launches nothing, or a single call of an operator that launches hundreds of kernels. Where the
device may well decide the step without the profiler, the confidence is low. A Python loop that goes
through a tensor piece by piece, the same operators for each index, is named with its place if a
quarter of the launches is in it.

## Why it matters
Each operator costs the host several microseconds (Python, dispatcher, autograd, launch). When its
kernel takes less, the device waits for the host all the time, and a faster device changes nothing.

## How to fix it
Record the step once and replay it as a CUDA graph (`torch.compile(mode="reduce-overhead")`,
`torch.cuda.graph`), let a compiler fuse the kernels, or give each launch more work: a larger batch,
foreach or fused variants. A loop over independent pieces is one call with a batch dimension
(`torch.vmap`), one in which a turn needs the one before it a scan or cumulative form.

## When to ignore it
Where the batch is small on purpose (latency) and the step is fast enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.piecewise_loops import Loop, piecewise_loops
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    generic=True,
    knobs=("compile",),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_compiled.py"',
)


def check(trace: Trace) -> Iterator[Found]:
    """Steps made of many short kernels, each launched from the host."""
    launches, late = many_launches(trace), late_launches(trace)
    if launches is None or late is None:
        return
    loop = _loop(trace, launches.count)
    yield Found(
        summary=(
            f"The host launches {launches.count:.0f} kernels a step, half of them shorter than"
            f" {launches.median_ns / 1e3:.1f} µs, and cannot keep up" + (loop.words if loop else "")
        ),
        evidence=(*launches.evidence, *(loop.evidence if loop else ())),
        cost_ns_per_step=None,
        changes=launches.as_graph,
        location=loop.place if loop else late.place or launches.place,
        confidence="high" if late.surely else "low",
        fix=(loop.fix if loop else "")
        + "Replay the step as a CUDA graph, or let a compiler fuse it",
        hint='model = torch.compile(model, mode="reduce-overhead")',
    )


LEAST_SHARE = 0.25  # of the step's launches, in one loop: less is not what holds the step up


@dataclass(frozen=True)
class _InALoop:
    """The loop that most launches are in."""

    longest: Loop
    launches: float  # a step
    place: Location | None

    @property
    def words(self) -> str:
        where = f" in {self.place}" if self.place else ""
        return (
            f"; {self.launches:.0f} of them in a Python loop of {self.longest.turns} turns{where}"
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence("launches in one Python loop", round(self.launches, 1), "per step"),
            Evidence("its turns", self.longest.turns, "count"),
            Evidence("launching operators in each", self.longest.operators, "count"),
        )

    @property
    def fix(self) -> str:
        if self.longest.depends:
            return "Write the loop as a scan or in a cumulative form. Else: "
        return "Do all turns of the loop in one call, with a batch dimension. Else: "


def _loop(trace: Trace, launches: float) -> _InALoop | None:
    host = trace.host_ops
    by_function: dict[int, list[Loop]] = {}
    for loop in piecewise_loops(trace) if host is not None else ():
        by_function.setdefault(int(host["name"][loop.function]), []).append(loop)  # type: ignore[index]
    if not by_function:
        return None
    most = max(by_function.values(), key=lambda loops: sum(len(loop.rows) for loop in loops))
    rows = np.concatenate([loop.rows for loop in most])
    count = per_step(trace, len(rows))
    if count < LEAST_SHARE * launches:
        return None
    mine = np.zeros(len(trace.device_ops or ()), np.bool_)
    mine[rows] = True
    work = device_work(trace, mine, "device time of the loop")
    return _InALoop(max(most, key=lambda loop: loop.turns), count, work.place if work else None)
