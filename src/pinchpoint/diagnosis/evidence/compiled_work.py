"""What rules about compiled operations say alike: of which a part is needed, and what is won."""

from typing import Any

import numpy as np

from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows

# Of what is spared: the other kernels' clocks and caches change a little with what runs beside them
# (two recordings of one program told 5.15 and 5.20 ms, its fix won 5.17).
DOUBT = 0.05
_LINE = regex(r"(?P<file>[^\n,]+):(?P<line>\d{1,7})(,|$)")


@dataclass(frozen=True, eq=False)
class CompiledWork:
    """Device operations of compiled programs, a step."""

    rows: Rows  # of device_ops
    took_ns: Rows  # each
    steps: int  # that they are counted over
    replayed: bool  # whether the calls that launched most of it were recorded: replay goes by these

    @property
    def ns_per_step(self) -> int:
        """Sum of their durations."""
        return round(float(self.took_ns.sum()) / self.steps)

    @property
    def count(self) -> float:
        """How many, a step."""
        return len(self.rows) / self.steps


def compiled_work(trace: Trace, mine: Mask) -> CompiledWork | None:
    """These rows of ``device_ops``, as far as they are in steps; None where none is.

    What nobody was seen to launch belongs to a step that is not known: the mean of all steps.
    """
    ops = trace.device_ops
    if ops is None:
        return None
    took = ops["duration_ns"][mine]
    replayed = bool(2 * took[ops.known("api_call")[mine]].sum() >= took.sum())
    inside = device_ops_in_steps(trace) if replayed else np.ones(len(ops), np.bool_)
    count = max(len(judged_steps(trace)) if replayed else len(steps(trace).start_ns), 1)
    rows = np.flatnonzero(mine & inside)
    if not len(rows):
        return None
    return CompiledWork(rows, ops["duration_ns"][rows].astype(np.int64), count, replayed)


def needing(trace: Trace, work: CompiledWork, ratio: Floats, least: Floats) -> dict[str, Any]:
    """What a finding says is won if each operation needs ``ratio`` of its work, or at best
    ``least``: fields of :class:`~pinchpoint.diagnosis.finding.Found`."""
    if work.replayed:
        told: dict[str, Any] = {"changes": (_scaled(work, ratio),)}
        return told | ({"at_best": (_scaled(work, least),)} if (least < ratio).any() else {})
    ops = trace.device_ops
    assert ops is not None
    busy_ns = float(ops["duration_ns"].sum()) / work.steps
    idle_ns = max((steps(trace).typical_ns or 0) - busy_ns, 0)
    sure, best = (float(((1 - r) * work.took_ns).sum()) / work.steps for r in (ratio, least))
    won, most = max((1 - DOUBT) * sure - idle_ns, 0), (1 + DOUBT) * best
    return {
        "saving_ns_per_step": (round(won), round(most)),
        "leaves_ns_per_step": round(busy_ns - most),
    }


def _scaled(work: CompiledWork, ratio: Floats) -> ScaleDeviceOps:
    left = left_of(work, ratio)
    return ScaleDeviceOps(work.rows, ratio, left, left)


def left_of(work: CompiledWork, ratio: Floats) -> float:
    """Of all of the work, the share that is needed."""
    return float((ratio * work.took_ns).sum() / max(work.took_ns.sum(), 1))


def place_told(text: str | None) -> Location | None:
    """The line that a compiled program says: ``model.py:41, jit(step)/dot``."""
    told = _LINE.match(text or "")
    return Location(told["file"], int(told["line"])) if told else None
