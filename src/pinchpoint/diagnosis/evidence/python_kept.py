"""How much of a gain of Python that stacks show is left in the step without them.

Stacks make Python calls many times as long and operators hardly, so that the share of Python is too
large in a step recorded with them: no fix wins more Python than the bare step has. Of a program
with a device Python counts while that has nothing to do.
"""

import numpy as np

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.replay.changes import RemoveHostTime
from pinchpoint.analysis.replay.unprofiled import unprofiled_breakdown
from pinchpoint.analysis.time.accounting import Breakdown, breakdown
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.finding import Found
from pinchpoint.trace import Trace

# Of the accounting: beside a device that has nothing to do (the first of it behind a wait is said
# to be the wait's), and without one.
_PYTHON = (GapKind.PYTHON.id, GapKind.AFTER_SYNC.id, GapKind.PYTHON.id.replace("idle-", "host-"))


def kept_ratio(bare: Trace, named: Trace, finding: Found) -> float:
    """What of a gain, as a share of the step with stacks, is one of the bare step: 0 to 1."""
    share = _python_of(named, finding)
    if not share:
        return 1.0
    mine = _python_ratio(unprofiled_breakdown(bare) or breakdown(bare))
    theirs = _python_ratio(breakdown(named))  # the gain is a share of that step
    return 1.0 - share * (1.0 - min(mine / theirs, 1.0)) if theirs else 1.0


def _python_ratio(parts: Breakdown) -> float:
    """Python as a share of the step."""
    whole = int(parts.ns_per_step.sum())
    return sum(map(parts.of_part, _PYTHON)) / whole if whole else 0.0


def _python_of(trace: Trace, finding: Found) -> float:
    """How much of the host time that a fix removes is Python; 0 where it removes anything else."""
    removed = [c for c in finding.changes if isinstance(c, RemoveHostTime)]
    if not removed or len(removed) < len(finding.changes):
        return 0.0
    start, end = (
        np.concatenate(x) for x in zip(*((c.start_ns, c.end_ns) for c in removed), strict=True)
    )
    did = host_did(trace, np.full(len(start), main_thread(trace), np.int64), start, end)
    took = did.end_ns - did.start_ns
    python = (did.row != NO_ROW) & (activity(trace)[did.row] == GapKind.PYTHON)
    return float(took[python].sum() / took.sum()) if took.sum() else 0.0
