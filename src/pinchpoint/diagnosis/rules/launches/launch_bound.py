"""The device finishes kernels faster than the host can launch them.

## What it looks for
Short kernels, and a device that waits while the host dispatches operators that launch them, or runs
Python that calls these. The gain is what replay says for the same kernels launched as one graph a
step. A device that is busy would not be faster for it. Nor is this the cause where most of the
device's wait for the host has another one: a wait of the host, work on the CPU, a function that
launches nothing, or a single call of an operator that launches hundreds of kernels. Where the
device may well decide the step without the profiler, the confidence is low. A Python loop of a
dozen iterations and more, over neither modules nor parameters, is named with its place if a quarter
of the launches is in it.

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
from typing import TYPE_CHECKING

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.work.loops import Varies
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.work.loops import Loop


RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    generic=True,
    knobs=("compile",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob compile -- python train.py",
)


def check(trace: Trace) -> Iterator[Found]:
    """Steps made of many short kernels, each launched from the host."""
    launches, late = many_launches(trace), late_launches(trace)
    if launches is None or late is None:
        return
    place = late.place or launches.place
    loop = _loop(trace, launches.count, place)
    yield Found(
        summary=(
            f"The host launches {launches.count:.0f} kernels a step, half of them shorter than"
            f" {launches.median_ns / 1e3:.1f} µs, and cannot keep up" + (loop.words if loop else "")
        ),
        evidence=(*launches.evidence, *(loop.evidence if loop else ())),
        cost_ns_per_step=None,
        changes=launches.as_graph,
        at_best=launches.as_one_call(trace, loop.longest.iterations) if loop and loop.most else (),
        location=place,
        confidence="high" if late.surely else "low",
        fix=(_FIX_OF_A_LOOP if loop else "")
        + "Replay the step as a CUDA graph, or let a compiler fuse it",
        hint='model = torch.compile(model, mode="reduce-overhead")',
    )


_FIX_OF_A_LOOP = (
    "One call for all iterations: a batch dimension, or a scan if they need each other. Else: "
)
LEAST_SHARE = 0.25  # of the step's launches, in loops of one function: less is not the reason
FEWEST_ITERATIONS = 12  # layers, scales and heads that are handled one by one are fewer, mostly
# Of a loop over modules or parameters other rules know more; these are layers, or an optimizer.
_LOOPS = (Varies.NOTHING, Varies.LENGTH, Varies.SIZES)


@dataclass(frozen=True)
class _InALoop:
    """A loop with many of the launches."""

    longest: "Loop"
    ratio: float  # of the step's launches

    @property
    def most(self) -> bool:
        """Whether the step is that loop."""
        return self.ratio >= 0.5

    @property
    def words(self) -> str:
        """The end of the headline."""
        most = "most" if self.most else f"{100 * self.ratio:.0f} %"
        return f"; {most} of them in a Python loop of {self.longest.iterations} iterations"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """How often it goes round, and with what."""
        return (
            Evidence("iterations of the loop", self.longest.iterations, "count"),
            Evidence("launches in each", self.longest.operations, "count"),
        )


def _loop(trace: Trace, launches: float, place: Location | None) -> _InALoop | None:
    """The loop at the place where the device waits for launches, if it holds many of them."""
    from pinchpoint.analysis.work.loops import loops

    mine = [
        loop
        for loop in loops(trace)
        if loop.varies in _LOOPS
        and loop.iterations >= FEWEST_ITERATIONS
        and loop.operations > 1  # one operator again and again may be anything
        and place is not None
        and _is_at(trace, loop, place)
    ]
    if not mine or _launches(mine) < LEAST_SHARE * launches:
        return None
    longest = max(mine, key=lambda loop: loop.iterations)
    return _InALoop(longest, _launches(mine) / launches)


def _is_at(trace: Trace, loop: "Loop", place: Location) -> bool:
    found = None if loop.frame is None else frame_of(trace.names[loop.frame])
    there = place.file, place.line, place.function
    return found is not None and (found.file, found.line, found.function) == there


def _launches(some: "list[Loop]") -> int:
    return sum(loop.times * loop.iterations * loop.operations for loop in some)
