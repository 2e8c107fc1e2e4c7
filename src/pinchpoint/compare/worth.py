"""What became worth more, or less: the pieces of two profiles whose gain differs."""

import msgspec

from pinchpoint.analysis.causal.pieces import Cut, compiled_names
from pinchpoint.analysis.causal.profile import Causal, Piece, profile
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.trace import Trace

_CUTS = (Cut.LINE, Cut.OPERATOR, Cut.WAIT, Cut.COLLECTIVE, Cut.COPY)
LEAST_RATIO = 0.03  # of the longer step: what findings have to be worth
MOST = 12  # the largest changes; a piece that was never worth much is none


class ChangedWorth(msgspec.Struct, frozen=True, kw_only=True):
    """One piece: how much shorter the step would be without it, in A and in B."""

    by: str  # line, operator, wait, collective, copy
    name: str  # lines move: a function stands without the number of its line
    a_ns: int  # 0: the piece is not there, or too small for the profile
    b_ns: int
    change_ns: int


def changed_worth(a: Trace, b: Trace) -> tuple[ChangedWorth, ...]:
    """The pieces whose gain changed, largest change first; none where a side cannot be replayed."""
    first, second = profile(a.with_names, _CUTS), profile(b.with_names, _CUTS)
    if first.base_ns is None or second.base_ns is None:
        return ()
    mine, theirs = _worth(a.with_names, first), _worth(b.with_names, second)
    least = LEAST_RATIO * max(first.base_ns, second.base_ns)
    found = []
    for key in mine | theirs:
        before, after = mine.get(key, 0), theirs.get(key, 0)
        if abs(after - before) >= least:
            by, name = key
            change = after - before
            found.append(ChangedWorth(by=by, name=name, a_ns=before, b_ns=after, change_ns=change))
    found.sort(key=lambda one: (-abs(one.change_ns), one.by, one.name))
    return tuple(found[:MOST])


def _worth(trace: Trace, found: Causal) -> dict[tuple[str, str], int]:
    """Operations of compiled programs are left out: each compilation numbers them anew."""
    worth: dict[tuple[str, str], int] = {}
    compiled = compiled_names(trace)
    for piece in found.pieces:
        if piece.cut is Cut.OPERATOR and piece.name in compiled:
            continue
        key = (piece.cut.value, _name(piece))
        gain = piece.base_ns - piece.step_if_free_ns
        worth[key] = max(worth.get(key, 0), gain)
    return worth


def _name(piece: Piece) -> str:
    frame = frame_of(piece.name)
    return piece.name if frame is None else f"{frame.function} ({frame.file})"
