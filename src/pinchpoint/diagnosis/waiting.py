"""What rules about waiting calls say alike: how often, how long, where, and the longest one."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.called_rows import idle_acts
from pinchpoint.analysis.host_waits import WaitReason, host_waits
from pinchpoint.analysis.in_steps import per_step
from pinchpoint.analysis.replay import Change, DropSyncs, ScaleHostSpans
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.diagnosis.locate import busiest_place
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows


@dataclass(frozen=True, eq=False)
class Waiting:
    """Calls that wait for one reason, summed up."""

    api_calls: Rows
    acts: Rows  # rows of host_ops: what the program wrote, around those calls
    count: float  # acts of waiting a step; a copy and its sync are one
    waited_ns: int  # a step
    place: Location | None  # where most of it happens
    call: str  # the longest wait's call
    evidence: tuple[Evidence, ...]

    @property
    def dropped(self) -> tuple[Change, ...]:
        """What a step without these waits is: they and the host work around them are gone."""
        return (DropSyncs(self.api_calls), ScaleHostSpans(self.acts, 0.0))

    @property
    def where(self) -> str:
        """`` in forward (model.py:41)``, or nothing."""
        text = str(self.place) if self.place else ""
        return f" in {text}" if text else ""


def waiting(trace: Trace, what: str, *reasons: WaitReason) -> Waiting | None:
    """The waits of the judged steps with these reasons; None where there are none."""
    waits, calls = host_waits(trace), trace.api_calls
    rows = waits.rows(*reasons)
    if calls is None or not len(rows):
        return None
    took, inside = waits.took_ns[rows], waits.host_op[rows]
    place, here = busiest_place(trace, inside, took)
    longest = int(here[np.argmax(took[here])])
    call = int(waits.api_calls[rows[longest]])
    times = len(rows) if WaitReason.EXPLICIT in reasons else len(np.unique(inside))
    count, waited = per_step(trace, times), round(per_step(trace, int(took.sum())))
    name = trace.text(calls, "name", call) or ""
    at = int(calls["start_ns"][call])
    evidence = (
        Evidence(what, round(count, 2), "per step"),
        Evidence("host blocked in them", waited, "ns per step"),
        Evidence("longest wait", int(took[longest]), "ns", at, name),
    )
    return Waiting(
        waits.api_calls[rows], idle_acts(trace, inside), count, waited, place, name, evidence
    )
