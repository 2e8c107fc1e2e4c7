"""Whether repeats are layers of one pass through a model instead of passes.

Modules are recorded by instance (``Block_3``). Layers are different instances inside one outermost
call; passes call the same instances again. Where ranges were annotated instead, one that is called
the forward or the backward pass is a part of a step, and holds layers, never steps; and ranges
whose author calls them layers and numbers them come again, by number, once a pass. Where only a
sequence of operations is known, layers show by what joins them without a pause and comes only
there: an embedding before the first, a projection to the vocabulary after the last. Rounds that
have both, each of them, write a token each.
"""

import re

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.candidates import LaunchedWork
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.names import rows_named

Times = NDArray[np.int64]

MOST_LINKED_RATIO = 0.5  # of neighbouring boundaries inside one call: they divide that call
# Calls of an instance a piece: passes have one, twelve layers a twelfth.
FEWEST_CALLS_A_PIECE = 0.5
_PASS = regex(r"(?<![a-z])(forward|backward|fwd|bwd)(?![a-z])", re.IGNORECASE)
_LAYER = regex(r"(?:layer|block)s?[ ._#\[-]?(\d+)", re.IGNORECASE)


@once_per_trace
def module_calls(trace: Trace) -> Table | None:
    """Calls of modules on the main thread, in order; None if none were recorded."""
    host = trace.host_ops
    if host is None:
        return None
    rows = (host["kind"] == HostKind.MODULE) & (host["thread"] == main_thread(trace))
    return host.take(rows) if rows.any() else None


def outermost(rows: Table) -> Table:
    """The calls that no other of the rows encloses."""
    outer = np.ones(len(rows), np.bool_)
    outer[1:] = rows["start_ns"][1:] >= np.maximum.accumulate(rows.end_ns)[:-1]
    return rows.take(outer)


@once_per_trace
def _passes(trace: Trace) -> Table | None:
    """Annotated forward or backward passes of the main thread, in order; a range called both is
    no single pass."""
    host = trace.host_ops
    if host is None:
        return None
    one = rows_named(trace, host, lambda name: len(set(_PASS.findall(name.lower()))) == 1)
    rows = one & (host["kind"] == HostKind.ANNOTATION) & (host["thread"] == main_thread(trace))
    return outermost(host.take(rows)) if rows.any() else None


def are_layers(trace: Trace, at_ns: Times) -> bool:
    """Whether boundaries in time, sorted, divide passes into layers; False where neither modules
    nor passes were recorded."""
    if len(at_ns) < 2:
        return False
    passes = _passes(trace)
    if passes is not None and _linked_ratio(passes, at_ns) > MOST_LINKED_RATIO:
        return True
    layers, start = _numbered_layers(trace)
    between = (start >= at_ns[0]) & (start < at_ns[-1])
    if between.any() and _come_rarely(layers[between], at_ns):
        return True
    calls = module_calls(trace)
    if calls is None or _linked_ratio(outermost(calls), at_ns) <= MOST_LINKED_RATIO:
        return False
    between = (calls["start_ns"] >= at_ns[0]) & (calls["start_ns"] < at_ns[-1])
    return _come_rarely(calls["name"][between], at_ns)


@once_per_trace
def _numbered_layers(trace: Trace) -> tuple[Times, Times]:
    """What ranges are called that their author numbers as layers, without other numbers (such as
    of the step), and when they begin."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = rows_named(trace, host, lambda name: _LAYER.search(name) is not None)
    rows &= np.isin(host["kind"], (HostKind.ANNOTATION, HostKind.OPERATOR))  # FSDP:: is no range
    rows &= host["thread"] == main_thread(trace)
    called: dict[str, int] = {}
    kind = np.zeros(len(trace.names), np.int64)
    for name in np.unique(host["name"][rows]).tolist():
        text = trace.names[name]
        found = _LAYER.search(text)
        assert found is not None
        around = [
            re.sub(r"\d+", "#", part) for part in (text[: found.start()], text[found.end() :])
        ]
        kind[name] = called.setdefault(found[0].join(around), len(called))
    return kind[host["name"][rows]], host["start_ns"][rows]


def joined_by_others(trace: Trace, work: LaunchedWork, at_ns: Times) -> bool:
    """Whether work of a kind that no whole piece between these boundaries has comes directly before
    the first piece or in the last: after a pause no longer than what a usual piece has inside of
    itself, or any piece where one range that a person marked once holds all.

    What a program sets up before its first step, or does after its last, is apart from them. A
    piece at either end that has as many operations as the others is another form of these.
    """
    pieces = len(at_ns) - 1
    piece = np.searchsorted(at_ns, work.at_ns, "right")  # 1 to pieces are whole
    whole = (piece > 0) & (piece <= pieces)
    if not whole.any():
        return False
    common = np.zeros(work.kinds, np.bool_)
    common[work.key[whole]] = True
    size = np.bincount(piece, minlength=pieces + 2)
    pause_ns = np.append(0, work.at_ns[1:] - np.maximum.accumulate(work.until_ns)[:-1])
    longest_ns = np.zeros(pieces + 2, np.int64)
    within = np.append(False, piece[1:] == piece[:-1])
    np.maximum.at(longest_ns, piece[within], pause_ns[within])
    allowed = np.max if _marked_once(trace, work) else np.median
    limit_ns, usual = allowed(longest_ns[1:-1]), np.median(size[1:-1])
    foreign = ~common[work.key]
    before, last = (
        np.flatnonzero(foreign & (piece == 0)),
        np.flatnonzero(foreign & (piece > pieces)),
    )
    joints = ((before, size[0], before[-1:] + 1), (last, size[-1], last[:1]))
    return any(
        len(rows) and edge != usual and pause_ns[joint] <= limit_ns for rows, edge, joint in joints
    )


_LOOKED_UP = ("aten::embedding",)
_CHOSEN = ("aten::argmax", "aten::multinomial")


def write_tokens(trace: Trace, at_ns: Times) -> bool:
    """Whether in each round between these boundaries, and in the one after the last, tokens are
    looked up as often, and one is chosen."""
    host = trace.host_ops
    if host is None or not len(host):
        return False
    mine = (host["kind"] == HostKind.OPERATOR) & (host["thread"] == main_thread(trace))
    looked_up, chosen = (
        _ended_in(host, mine & rows_named(trace, host, of.__contains__), at_ns)
        for of in (_LOOKED_UP, _CHOSEN)
    )
    as_often = looked_up[1] > 0 and bool((looked_up[1:] == looked_up[1]).all())
    return as_often and not looked_up[0] and bool(chosen[1:].all())


def _ended_in(host: Table, rows: NDArray[np.bool_], at_ns: Times) -> NDArray[np.int64]:
    """How many ended before the first boundary and in each round from there on. An operator begins
    before the first of its launches, where a round may begin."""
    return np.bincount(np.searchsorted(at_ns, host.end_ns[rows], "right"), minlength=len(at_ns) + 1)


def _marked_once(trace: Trace, work: LaunchedWork) -> bool:
    """Whether one annotated range of the main thread holds all of the work."""
    host = trace.host_ops
    if host is None or work.on_device:
        return False
    marked = (host["kind"] == HostKind.ANNOTATION) & (host["thread"] == main_thread(trace))
    around = (host["start_ns"] <= work.at_ns[0]) & (host.end_ns >= work.at_ns[-1])
    return bool((marked & around).any())


def _come_rarely(names: Times, at_ns: Times) -> bool:
    """Whether each name between the boundaries comes much more rarely than there are pieces."""
    return len(names) < FEWEST_CALLS_A_PIECE * len(at_ns) * max(len(np.unique(names)), 1)


def _linked_ratio(outer: Table, at_ns: Times) -> float:
    """Share of neighbouring boundaries that lie inside one and the same of the spans."""
    which = np.searchsorted(outer["start_ns"], at_ns, "right") - 1
    inside = (which >= 0) & (at_ns < outer.end_ns[which])
    return float((inside[1:] & inside[:-1] & (which[1:] == which[:-1])).mean())
