"""Copies to the host that the host waits for, with the work on the CPU that they are made for."""

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.host.frames import (
    MOSTLY_RATIO,
    Owner,
    copies_to_host,
    functions_doing,
    numeric_on_host,
    owners,
    shows_python,
)
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.evidence.device_work import waiting
from pinchpoint.diagnosis.evidence.host_spans import host_spans, without
from pinchpoint.diagnosis.evidence.writers import writing_functions
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows

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

    @property
    def where(self) -> str:
        """`` in evaluate (train.py:41)``, or nothing."""
        text = str(self.place) if self.place else ""
        return f" in {text}" if text else ""


def host_work_after_copy(trace: Trace, reason: WaitReason) -> HostWork | None:
    """Copies with this reason, and the functions that compute on the CPU with what they brought.

    None where no such work shows, or where it is done to write something down. NotChecked where
    another window of the run shows whose function computes, and this one only that the CPU does.
    """
    if not shows_python(trace) and shows_python(trace.with_names):
        raise NotChecked("which function computes with what was copied shows with stacks")
    waits, host = host_waits(trace), trace.host_ops
    copies = waiting(trace, "copies to the host that it waits for", reason)
    if host is None or copies is None:
        return None
    rows = waits.rows(reason)
    copying = waits.host_op[rows]
    kind = activity(trace)[: len(host)]
    if np.isin(kind[copying[copying < len(host)]], _OTHER_CAUSES).any():
        return None
    moved = per_step(trace, int(waits.bytes[rows].sum()))
    doing = _working(trace, copying) if shows_python(trace) else computed_on_host(trace)
    spans = host_spans(trace, doing, "copying to the host and working on it")
    if spans is None:
        return None
    evidence = (*copies.evidence, *spans.evidence)
    dropped = (*without(trace, spans.rows, only_on_host=True), *copies.dropped)
    return HostWork(moved, spans.ns_per_step, spans.place, evidence, dropped)


def _working(trace: Trace, copying: Rows) -> Mask:
    """The program's functions that copy and compute, or compute with what their caller copied."""
    host = trace.host_ops
    assert host is not None
    none, chain, user = len(host), parents(host), owners(trace) == Owner.USER
    copies = np.zeros(none + 1, np.bool_)
    copies[np.append(nearest(chain, user), none)[copying]] = True
    copies[none] = False
    numeric = numeric_on_host(trace)
    both = functions_doing(trace, copies_to_host(trace), numeric, COPYING_RATIO) & copies[:-1]
    both &= functions_doing(trace, numeric, copies_to_host(trace), 0.0)
    alone = functions_doing(trace, numeric, np.zeros(none, np.bool_), MOSTLY_RATIO)
    caller = above(chain, user)
    first_end = np.full(none + 1, np.iinfo(np.int64).max)
    inside = copying[copying < none]
    np.minimum.at(first_end, nearest(chain, user)[inside], host.end_ns[inside])
    after = copies[caller] & (host["start_ns"] >= first_end[caller])
    found: Mask = (both | (alone & after)) & ~writing_functions(trace)
    return found
