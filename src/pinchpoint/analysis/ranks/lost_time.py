"""Where a rank's device was idle, and what its host did meanwhile: the few largest reasons."""

from typing import TypedDict

import numpy as np

from pinchpoint.analysis.host.launches import issued, main_thread, waits
from pinchpoint.analysis.host.source_lines import Place, place_of, places
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.ranks.collective_calls import rank_calls
from pinchpoint.analysis.ranks.summary import LONGEST_TEXT, Cause, clipped
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.time.gaps import gaps, host_did
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.analysis.time.idle_causes import IdleCause, idle_causes
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.intervals import covered_before, flatten

# ------------------------------------------------------------------------------------------------
# What the host of a rank needs to issue a step, whatever its device makes it wait for.


USUAL_LAUNCH_NS = 20_000  # recorded launches on H100 hosts take 5 to 12 µs
# A queue of CUDA holds 1,024 operations: on H200s every launch that waited in it found 1,032 to
# 1,046 issued and not done; fewer, as some of them are no kernels.
FULL_QUEUE = 1_000


def host_ns(trace: Trace, found: Steps, issue_end: Ints) -> Ints:
    """Time of each step on the host in which it did not wait for the device; 0 without a device.

    A host that waits in a collective of its own is not told apart from one that works.
    """
    ops, calls, begin = trace.device_ops, rank_calls(trace), found.host_start_ns
    if ops is None or not len(ops) or any(":" in a.kind for a in calls.asked):
        return np.zeros(len(begin), np.int64)
    blocked = waits(trace)
    full_start, full_end = _for_room_in_the_queue(trace, found, issue_end)
    waiting = flatten(np.append(blocked.start_ns, full_start), np.append(blocked.end_ns, full_end))
    inside = covered_before(waiting, issue_end) - covered_before(waiting, begin)
    own: Ints = np.maximum(issue_end - begin - inside, 0)
    return own


def _for_room_in_the_queue(trace: Trace, found: Steps, issue_end: Ints) -> tuple[Ints, Ints]:
    """When launches waited because the queue was full: the device was a whole step behind, or as
    many operations as a queue holds."""
    calls = trace.api_calls
    if calls is None or not len(found):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    behind = found.end_ns - issue_end > found.end_ns - found.start_ns
    behind[0] = len(behind) > 1 and bool(behind[1])  # the window of the first one is partial
    step = np.searchsorted(found.host_start_ns, calls["start_ns"], "right") - 1
    gives = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.MEMSET))
    far = behind[step] | (_in_queue(trace, calls["start_ns"]) >= FULL_QUEUE)
    long = gives & (step >= 0) & far & (calls["duration_ns"] > USUAL_LAUNCH_NS)
    return calls["start_ns"][long] + USUAL_LAUNCH_NS, calls.end_ns[long]


def _in_queue(trace: Trace, times: Ints) -> Ints:
    """How many operations were issued and not done at each time."""
    ops, by = trace.device_ops, issued(trace)
    assert ops is not None
    given, done = np.sort(by.start_ns[by.linked]), np.sort(ops.end_ns[by.linked])
    count: Ints = np.searchsorted(given, times) - np.searchsorted(done, times, "right")
    return count


# ------------------------------------------------------------------------------------------------
# Where a rank's device was idle, and what its host did meanwhile: the few largest reasons.


CAUSES_KEPT = 16  # a summary is to stay small, and a reader looks at the first few


def lost_time(trace: Trace) -> tuple[Cause, ...]:
    """Idle time by reason and place; after a synchronisation, by what the host did then."""
    found = idle_causes(trace, by=("frame", "operator"), all_steps=True)
    causes = [*_after_syncs(trace), *(_cause(c) for c in found if c.kind != GapKind.AFTER_SYNC)]
    causes.sort(key=lambda c: -c.ns_per_step)
    return tuple(causes[:CAUSES_KEPT])


def _after_syncs(trace: Trace) -> list[Cause]:
    """A gap's owner is the synchronisation, which peers have too; they differ in what follows."""
    idle, windows = gaps(trace), steps(trace)
    counted = windows.complete if windows.complete.any() else windows.typical
    chosen = np.flatnonzero((idle.kind == GapKind.AFTER_SYNC) & counted[idle.step])
    if not len(chosen):
        return []
    thread = np.full(len(chosen), main_thread(trace), np.int64)
    did = host_did(trace, thread, idle.start_ns[chosen], idle.end_ns[chosen])
    around, lasting = places(trace), did.end_ns - did.start_ns
    frame, row = around.frame[did.row], did.row
    out = []
    for name in np.unique(frame).tolist():
        mine = np.flatnonzero(frame == name)
        longest = mine[np.argmax(lasting[mine])]
        at = place_of(trace, int(row[longest])) if row[longest] != NO_ROW else Place()
        out.append(
            Cause(
                part=GapKind.AFTER_SYNC.id,
                ns_per_step=round(int(lasting[mine].sum()) / int(counted.sum())),
                at_ns=int(did.start_ns[longest]),
                **where(at),
            )
        )
    return sorted(out, key=lambda c: -c.ns_per_step)[:CAUSES_KEPT]


def _cause(cause: IdleCause) -> Cause:
    return Cause(
        part=cause.kind.id,
        ns_per_step=cause.ns_per_step,
        at_ns=cause.at_ns,
        name=clipped(cause.name, LONGEST_TEXT),
        **where(cause.place),
    )


class _Where(TypedDict):
    file: str | None
    line: int | None
    function: str | None
    operator: str | None


def where(at: Place) -> _Where:
    """The fields of a cause that say its place."""
    return _Where(
        file=clipped(at.file, LONGEST_TEXT),
        line=at.line,
        function=clipped(at.function, LONGEST_TEXT),
        operator=clipped(at.operator, LONGEST_TEXT),
    )
