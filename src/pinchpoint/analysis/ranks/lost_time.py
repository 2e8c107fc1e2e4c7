"""Where a rank's device was idle, and what its host did meanwhile: the few largest reasons."""

from typing import TypedDict

import numpy as np

from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.gaps import gaps
from pinchpoint.analysis.handover import host_did
from pinchpoint.analysis.host_timeline import NO_ROW
from pinchpoint.analysis.idle_causes import IdleCause, idle_causes
from pinchpoint.analysis.launches import main_thread
from pinchpoint.analysis.ranks.summary import LONGEST_TEXT, Cause, clipped
from pinchpoint.analysis.source_lines import Place, place_of, places
from pinchpoint.analysis.steps import steps
from pinchpoint.trace import Trace

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
                **_where(at),
            )
        )
    return sorted(out, key=lambda c: -c.ns_per_step)[:CAUSES_KEPT]


def _cause(cause: IdleCause) -> Cause:
    return Cause(
        part=cause.kind.id,
        ns_per_step=cause.ns_per_step,
        at_ns=cause.at_ns,
        name=clipped(cause.name, LONGEST_TEXT),
        **_where(cause.place),
    )


class _Where(TypedDict):
    file: str | None
    line: int | None
    function: str | None
    operator: str | None


def _where(at: Place) -> _Where:
    return _Where(
        file=clipped(at.file, LONGEST_TEXT),
        line=at.line,
        function=clipped(at.function, LONGEST_TEXT),
        operator=clipped(at.operator, LONGEST_TEXT),
    )
