"""Copies to the host that the host waits for, with the host work that they are made for."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import (
    Owner,
    copies_to_host,
    functions_doing,
    numeric_on_host,
    owners,
)
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.device_work import waiting
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.diagnosis.host_spans import host_spans, without
from pinchpoint.trace import Trace

_OTHER_CAUSES = (GapKind.CHECKPOINT, GapKind.LOGGING)  # which copy for reasons of their own
COPYING_RATIO = 0.01  # a function with numeric work on the host that copies at all


@dataclass(frozen=True, eq=False)
class HostWork:
    """Host work on copied tensors, a step."""

    bytes_per_step: float
    ns_per_step: int
    place: Location | None
    evidence: tuple[Evidence, ...]
    dropped: tuple[Change, ...]
    shown: bool  # whether the recording shows the work, or only copies

    @property
    def where(self) -> str:
        """`` in evaluate (train.py:41)``, or nothing."""
        text = str(self.place) if self.place else ""
        return f" in {text}" if text else ""


def host_work_after_copy(trace: Trace, reason: WaitReason) -> HostWork | None:
    """Copies with this reason and the functions that copy and compute on the host."""
    waits, host = host_waits(trace), trace.host_ops
    copies = waiting(trace, "copies to the host that it waits for", reason)
    if host is None or copies is None:
        return None
    rows = waits.rows(reason)
    kind = activity(trace)[: len(host)]
    if np.isin(kind[waits.host_op[rows[waits.host_op[rows] < len(host)]]], _OTHER_CAUSES).any():
        return None
    moved = per_step(trace, int(waits.bytes[rows].sum()))
    around = nearest(parents(host), owners(trace) == Owner.USER)
    copying = np.zeros(len(host) + 1, np.bool_)
    copying[np.append(around, len(host))[waits.host_op[rows]]] = True
    doing = functions_doing(trace, copies_to_host(trace), numeric_on_host(trace), COPYING_RATIO)
    spans = host_spans(trace, doing & copying[:-1], "copying to the host and working on it")
    if spans is None:
        return HostWork(
            moved, copies.waited_ns, copies.place, copies.evidence, copies.dropped, False
        )
    evidence = (*copies.evidence, *spans.evidence)
    dropped = (*without(trace, spans.rows, only_on_host=True), *copies.dropped)
    return HostWork(moved, spans.ns_per_step, spans.place, evidence, dropped, True)
