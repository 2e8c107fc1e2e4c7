"""Which functions of the program cost device and host time.

Every operation is charged to one function: the innermost of the reader's or a library's code around
its launch, so that what torch does inside belongs to the line that called it. Backward work is
charged to the function whose forward operator it differentiates.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.ancestry import above, nearest, outermost, parents
from pinchpoint.analysis.attribution import backward_nodes, forward_rows, launched_ns
from pinchpoint.analysis.frames import Frame, Owner, frame_of, owners, telling_frames
from pinchpoint.analysis.not_recorded import NotRecorded
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows


@dataclass(frozen=True)
class SourceRow:
    """One function. The line is where it begins."""

    frame: Frame
    owner: Owner
    calls: int
    host_total_ns: int
    host_self_ns: int  # without other functions of the program, with what torch does for this one
    device_forward_ns: int
    device_backward_ns: int

    @property
    def device_ns(self) -> int:
        """Device time of forward and backward."""
        return self.device_forward_ns + self.device_backward_ns


@dataclass(frozen=True)
class SourceTable:
    """The program's functions: own and library code first, then most device and host time."""

    rows: tuple[SourceRow, ...]
    unattributed_device_ns: int  # of operations without any function around them


def source_table(trace: Trace, rows: Mask | None = None) -> SourceTable | NotRecorded:
    """The table over the calls and launches in the mask ``rows`` of ``host_ops`` (default: all)."""
    host = trace.host_ops
    owner = owners(trace)
    if host is None or not np.any(owner):
        return NotRecorded(
            "the recording has no Python stacks", "torch.profiler.profile(with_stack=True)"
        )
    charged = _charged_functions(trace, host)
    counted = owner != 0
    kept = np.ones(len(host), np.bool_) if rows is None else rows
    forward, backward, lost = _device_times(trace, charged, kept)
    names = len(trace.names)
    outer = outermost(
        host["name"].astype(np.int64) * (int(host["thread"].max()) + 1) + host["thread"],
        host["start_ns"],
        host.end_ns,
    )
    calls = counted & outer & kept
    own = counted & kept
    sums = {
        "calls": _by_name(host, calls, np.ones(len(host), np.int64), names),
        "host_total_ns": _by_name(host, calls, host["duration_ns"], names),
        "host_self_ns": np.maximum(_by_name(host, own, _host_self(trace, host), names), 0),
        "device_forward_ns": _by_name(host, counted, forward, names),
        "device_backward_ns": _by_name(host, counted, backward, names),
    }
    used = np.flatnonzero(
        sums["host_self_ns"] + sums["device_forward_ns"] + sums["device_backward_ns"]
    )
    table = [_row(trace.names[position], sums, int(position)) for position in used]
    table.sort(key=lambda r: (r.owner == Owner.FRAMEWORK, -r.device_ns, -r.host_self_ns))
    return SourceTable(tuple(table), lost)


def _charged_functions(trace: Trace, host: Table) -> Rows:
    """The function charged with each host row: a framework's only if there is no other."""
    parent = parents(host)
    telling = nearest(parent, telling_frames(trace))
    return np.where(telling < len(host), telling, nearest(parent, owners(trace) != 0))


def _device_times(trace: Trace, charged: Rows, kept: Mask) -> tuple[Ints, Ints, int]:
    """Forward and backward device time per function row, and what no function is charged with."""
    none = len(charged)
    launched = np.where(kept, launched_ns(trace), 0)
    forward_of = forward_rows(trace)
    in_backward = nearest(parents(trace.host_ops), backward_nodes(trace)) < none  # type: ignore[arg-type]
    function = np.append(charged, none)[forward_of]
    times = []
    for mine in (~in_backward, in_backward):
        total = np.zeros(none + 1, np.int64)
        np.add.at(total, function[mine], launched[mine])
        times.append(total)
    forward, backward = times
    return forward[:-1], backward[:-1], int(forward[-1] + backward[-1])


def _host_self(trace: Trace, host: Table) -> Ints:
    """Time of each function without the functions of the program that it calls."""
    parent = parents(host)
    telling = telling_frames(trace)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, above(parent, telling)[telling], host["duration_ns"][telling])
    # A framework's function is charged only with what runs under nobody else's.
    alone = above(parent, owners(trace) != 0) == len(host)
    self_ns: Ints = np.where(telling, host["duration_ns"] - inside[:-1], 0)
    return np.where(~telling & alone, host["duration_ns"], self_ns)


def _by_name(host: Table, mask: Mask, values: Ints, names: int) -> Ints:
    total = np.zeros(names, np.int64)
    np.add.at(total, host["name"][mask], values[mask])
    return total


def _row(name: str, sums: dict[str, Ints], position: int) -> SourceRow:
    frame = frame_of(name)
    assert frame is not None
    return SourceRow(frame, frame.owner, **{c: int(v[position]) for c, v in sums.items()})
