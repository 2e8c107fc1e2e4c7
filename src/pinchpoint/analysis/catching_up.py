"""Late time that belongs to an earlier wait of the host.

After a call in which the host waited for a busy device, the host starts with nothing queued.
Had it not waited, it would have been ahead by the time it waited. So later gaps, in which the
host was late for no reason of its own, count as *after the synchronisation* up to that time.
"""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.gap_kinds import CATCHES_UP, GapKind
from pinchpoint.analysis.idle_pieces import IdlePieces, cut
from pinchpoint.analysis.synchronisation import Waits
from pinchpoint.trace.arrays import Ints, Mask, Rows


def after_syncs(pieces: IdlePieces, found: Waits) -> IdlePieces:
    """Give late time to the wait before it, first come, up to what the host lost in that wait."""
    late = np.flatnonzero(np.isin(pieces.kind, CATCHES_UP) & ~_issued_in_time(pieces))
    group = np.searchsorted(found.end_ns, pieces.start[late], "right") - 1
    late, group = late[group >= 0], group[group >= 0]
    if not len(late):
        return pieces
    lasting = pieces.end[late] - pieces.start[late]
    wanted = np.bincount(group, weights=lasting, minlength=len(found.end_ns)).astype(np.int64)
    credit, owner = _credits(found, wanted)
    before = np.cumsum(lasting) - lasting
    first = np.searchsorted(group, np.unique(group), "left")
    base = np.repeat(before[first], np.diff(np.append(first, len(group))))
    left = np.clip(credit[group] - (before - base), 0, lasting)
    return _split(pieces, late[left > 0], left[left > 0], owner[group[left > 0]])


def _split(pieces: IdlePieces, which: Rows, left: Ints, owner: Rows) -> IdlePieces:
    """The first ``left`` of some pieces becomes AFTER_SYNC, the responsibility of ``owner``."""
    begun = pieces.start[which]
    pieces = cut(pieces, begun + left)
    kind, row = pieces.kind.copy(), pieces.row.copy()
    at = np.searchsorted(pieces.start, begun, "left")
    kind[at] = GapKind.AFTER_SYNC
    row[at] = owner
    return replace(pieces, kind=kind, row=row)


def _issued_in_time(pieces: IdlePieces) -> Mask:
    """Start latency of operations that were queued when the gap began: nobody was late."""
    first = np.ones(len(pieces.gap), np.bool_)
    first[1:] = pieces.gap[1:] != pieces.gap[:-1]
    first &= pieces.kind == GapKind.START_LATENCY
    return first


def _credits(found: Waits, wanted: Ints) -> tuple[Ints, Rows]:
    """For each wait the time that later gaps may claim, and whose it is.

    What is left of an earlier wait stays available, since a second one right after it (a
    synchronise and then an item) loses nothing more; the larger of the two counts.
    """
    credit, owner = found.lost_ns.tolist(), found.row.tolist()
    asked = wanted.tolist()
    for i in range(1, len(credit)):
        rest = credit[i - 1] - asked[i - 1]
        if rest > credit[i]:
            credit[i], owner[i] = rest, owner[i - 1]
    return np.array(credit, np.int64), np.array(owner, np.int64)
