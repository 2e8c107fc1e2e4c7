"""For how long a collective of the host's backend keeps the thread of the steps from its work.

The backend has threads of its own, and waiting for it is no operator: the thread of the steps then
does nothing that is recorded. So a rank stands in a collective during the longest rest of that
thread beside it, if the rest ends about when the collective does. Python code between two operators
looks the same: a rest that goes on for longer than it lasted beside the collective is that, unless
it begins as the collective was issued, which programs that wait do at once. An operator of the
program's own that issues one (a function of autograd) waits in it, between the operators inside.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, subtree_sums
from pinchpoint.analysis.host.timeline import NO_ROW, look_up, timelines
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask
from pinchpoint.trace.names import rows_named

ISSUES = ("c10d::", "record_param_comms")  # operators that hand a collective over to the backend
# Of the thread of the steps: it may wait, as far as is recorded.
_AT_REST = (
    GapKind.UNRECORDED,
    GapKind.PYTHON,
    GapKind.WAIT,
    GapKind.AUTOGRAD,
    GapKind.HOST_COLLECTIVE,
)
_NEVER = np.int64(1) << 62  # beyond any time, and sums of two still fit


def blocked_ns(trace: Trace, start_ns: Ints, end_ns: Ints) -> Ints:
    """Of each of these collectives, the time in which the thread of the steps stood in it."""
    line = timelines(trace).get(steps(trace).thread)
    if line is None or not len(line):
        return end_ns - start_ns
    found, issues = look_up(line, start_ns, end_ns), _issues(trace)
    rests = np.isin(activity(trace)[found.row], _AT_REST) | _around(trace, issues)[found.row]
    lasting = np.where(rests, found.end_ns - found.start_ns, 0)
    order = np.lexsort((lasting, found.asked))
    longest = order[np.append(found.asked[order][1:] != found.asked[order][:-1], True)]
    asked, beside = found.asked[longest], lasting[longest]
    change = np.searchsorted(line.at_ns, found.start_ns[longest], "right") - 1
    goes_on = np.append(line.at_ns, _NEVER)[change + 1]
    before = np.where(change > 0, line.row[np.maximum(change - 1, 0)], NO_ROW)
    after = goes_on - end_ns[asked]
    waits = (-after <= beside) & (issues[before] | (after <= beside))
    blocked = np.zeros(len(start_ns), np.int64)
    blocked[asked] = np.where(waits, beside, 0)
    return blocked


def _around(trace: Trace, issues: Mask) -> Mask:
    """The same rows, and operators that have one inside: those compute nothing themselves."""
    found, host = issues.copy(), trace.host_ops
    if host is not None:
        inside = subtree_sums(parents(host), issues[: len(host)].astype(np.int64)) > 0
        found[: len(host)] |= inside & (host["kind"] == HostKind.OPERATOR)
    return found


def _issues(trace: Trace) -> Mask:
    """Rows that hand a collective over to the backend, and a last element for no row."""
    host = trace.host_ops
    issues = np.zeros(len(activity(trace)), np.bool_)
    if host is not None:
        issues[: len(host)] = rows_named(trace, host, lambda name: name.startswith(ISSUES))
    return issues
