"""For each piece of the program: what the step would be without it, and with it at its limit.

The recorded window is replayed once for all pieces together (:mod:`many`), three times each:

- *free*: its device operations and its host time are gone, and its calls wait for nothing;
- *at its limit*: its device operations take what they need (:mod:`limits`), those without a known
  limit what they took, and its host time stays; an operator call that launches one kernel after
  another for what one can do needs one launch;
- *without its host time*: what it launches on the device stays.

Memory that a piece gives back to the driver is bought again elsewhere: without the piece it is not.
Waits are outcomes: they are what the rest leaves of them. A wait itself is removed by deleting
what it waits for: an operation of the device, or a batch of a loader. What exceptional steps take
beyond a usual one is taken from the mean (:mod:`exceptional`). No step is shorter than the device
work that stays, at its fastest recorded pace, in the stream that has most of it, nor than what all
streams together have to share.
"""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.causal.exceptional import batches_beyond_ns, beyond_ns
from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.many import simulate_many
from pinchpoint.analysis.causal.piece import LEAST_STEP_RATIO, MOST_PIECES
from pinchpoint.analysis.causal.piece import Causal as Causal
from pinchpoint.analysis.causal.piece import Piece as Piece
from pinchpoint.analysis.causal.pieces import (
    NOBODYS,
    Cut,
    Pieces,
    bought_again,
    compiled_names,
    pieces,
)
from pinchpoint.analysis.causal.spent import Spent, spent
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.apply import LEAST_LAUNCH_NS
from pinchpoint.analysis.replay.least_durations import best_ns, sustained_ns
from pinchpoint.analysis.replay.least_step import kept_ns
from pinchpoint.analysis.replay.replayed_window import ReplayedWindow, replayed_window
from pinchpoint.analysis.replay.side_by_side import shared_by_rows_ns
from pinchpoint.analysis.replay.simulate import OF_A_BATCH, OF_THE_DEVICE, Times
from pinchpoint.analysis.replay.streams import device_ids, stream_ids
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.loader_waits import taking_name
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct
from pinchpoint.trace.intervals import flatten

if TYPE_CHECKING:
    from pinchpoint.analysis.causal.critical_path import CriticalPath


def off_path(trace: Trace, cut: Cut) -> Causal:
    """The pieces of one cut, for rules: where on the critical path they lie is left out, and so are
    operations of compiled programs, which have rules of their own."""
    found = _profile(trace, (cut,), None)
    if cut is not Cut.OPERATOR or not (compiled := compiled_names(trace)):
        return found
    left = tuple(piece for piece in found.pieces if piece.name not in compiled)
    return replace(found, pieces=left)


def causal(trace: Trace, by: str | None = None) -> Causal:
    """What the step would be without each of its pieces, or with it at its limit.

    ``by`` is one of the values of :class:`Cut`; ValueError for another one. Default: all cuts.
    """
    return profile(trace, tuple(Cut) if by is None else (Cut(by),))


def profile(trace: Trace, cuts: tuple[Cut, ...]) -> Causal:
    """The pieces of these cuts; without a device, those of the host (:mod:`on_cpu`)."""
    from pinchpoint.analysis.causal.critical_path import critical_path
    from pinchpoint.analysis.causal.on_cpu import on_cpus

    if (found := on_cpus(trace, cuts)) is not None:
        return found
    return _profile(trace, cuts, critical_path(trace))


def without_waiting(trace: Trace, cuts: tuple[Cut, ...]) -> Causal:
    """The same with collectives that take no time: what is left is a rank's own time."""
    run = _replay(trace) if len(steps(trace)) else None
    if run is None:
        return Causal(None, (), "this rank cannot be replayed")
    graph, ops = run.window.graph, trace.device_ops
    assert ops is not None
    apart = (ops["kind"] == DeviceKind.COLLECTIVE)[graph.op_rows]
    graph = replace(graph, op_duration_ns=np.where(apart, 0, graph.op_duration_ns))
    none = np.zeros(len(graph.op_rows), np.bool_)
    free = np.zeros(len(graph.lane), np.uint8)
    as_is = Times(graph.gap_ns, graph.own_ns, graph.op_duration_ns, none, free)
    mean = float(simulate_many(graph, [as_is])[run.window.counted].mean())
    usual = round(run.window.step_ns * min(mean / run.window.mean_ns, 1.0))
    run = replace(
        run, base_ns=usual, window=replace(run.window, graph=graph, mean_ns=mean, step_ns=usual)
    )
    return Causal(usual, tuple(piece for cut in cuts for piece, _ in run.pieces(cut)))


ON_CPUS = "the program computes on CPUs, and replay needs a host and a device"
_NOT_BOTH = "host and device together were not recorded, and replay needs both"


def _profile(trace: Trace, cuts: tuple[Cut, ...], path: "CriticalPath | None") -> Causal:
    if not len(steps(trace)) or steps(trace).typical_ns is None:
        return Causal(None, (), "no step is known")
    run = _replay(trace)
    if run is None:
        return Causal(None, (), ON_CPUS if computes_on_cpu(trace) else _NOT_BOTH)
    found = [
        piece if path is None else replace(piece, critical_ns=run.critical_ns(path, chosen))
        for cut in cuts
        for piece, chosen in run.remembered(cut)
    ]
    found.sort(key=lambda piece: (piece.step_if_free_ns, -piece.occupied_ns, piece.name))
    return Causal(run.base_ns, tuple(found))


@dataclass(frozen=True, eq=False)
class _Chosen:
    """One piece: its rows of ``device_ops`` in the judged steps, and its host time by node.

    ``beyond_ns`` a step is what it takes of exceptional steps.
    """

    name: str
    rows: NDArray[np.intp]
    gap_ns: Ints
    own_ns: Ints
    calls: Mask  # nodes that are calls of the piece
    host_ns: int
    beyond_ns: float = 0.0
    frees: int = OF_THE_DEVICE  # of a wait: what its nodes no longer wait for


@dataclass(frozen=True, eq=False)
class _Replay:
    """What all pieces are replayed on."""

    trace: Trace
    window: ReplayedWindow
    base_ns: int
    spent: Spent

    def remembered(self, cut: Cut) -> list[tuple[Piece, _Chosen]]:
        """The same as ``pieces``, worked out once."""
        known = _replayed_pieces(self.trace)
        if cut not in known:
            known[cut] = self.pieces(cut)
        return known[cut]

    def pieces(self, cut: Cut) -> list[tuple[Piece, _Chosen]]:
        """The largest pieces of a cut, replayed, and what each is."""
        found = pieces(self.trace, cut)
        chosen = self._largest(found, self._host_ns(cut, found), beyond_ns(self.trace, found))
        chosen += self._batches() if cut is Cut.WAIT else []
        if not chosen:
            return []
        after = self._replayed([self._variant(cut, one, how) for one in chosen for how in _HOWS])
        return [
            (self._piece(cut, one, self._mean(one, after[3 * at : 3 * at + 3])), one)
            for at, one in enumerate(chosen)
        ]

    def _host_ns(self, cut: Cut, found: Pieces) -> Floats:
        """Host time of each piece a step; of a wait the whole call, the waiting included."""
        names, calls = len(self.trace.names) + len(found.labels), self.trace.api_calls
        if cut is not Cut.WAIT or calls is None:
            return self.spent.by_name(found.host, names)
        mine = found.host[-1 - len(calls) : -1]
        counted = (mine != NOBODYS) & rows_in_steps(self.trace, calls)
        waited = np.bincount(mine[counted], calls["duration_ns"][counted], names)
        return waited / max(len(judged_steps(self.trace)), 1)

    def _batches(self) -> list[_Chosen]:
        """Waiting for batches of a loader, as one piece."""
        graph, name = self.window.graph, taking_name(self.trace)
        waits = graph.batch_wait_ns * self.window.counted[graph.node_step]
        each = round(float(waits.sum()) / max(int(self.window.counted.sum()), 1))
        beyond = batches_beyond_ns(self.trace)
        if name is None or each + beyond < LEAST_STEP_RATIO * self.base_ns:
            return []
        none = np.zeros(len(graph.lane), np.int64)
        nothing = np.zeros(0, np.intp)
        return [
            _Chosen(
                name, nothing, none, graph.batch_wait_ns, graph.batch_wait_ns > 0,
                each + round(beyond), beyond, OF_A_BATCH,
            )
        ]  # fmt: skip

    def _largest(self, found: Pieces, host: Floats, beyond: Floats) -> list[_Chosen]:
        ops = self.trace.device_ops
        assert ops is not None
        names = len(self.trace.names) + len(found.labels)
        mine = np.flatnonzero(device_ops_in_steps(self.trace) & (found.device != NOBODYS))
        took = np.bincount(found.device[mine], ops["duration_ns"][mine], names)
        together = took / max(len(judged_steps(self.trace)), 1) + host + beyond
        order = np.argsort(-together, kind="stable")[:MOST_PIECES]
        giver, bought = bought_again(self.trace, found)
        at_least = LEAST_STEP_RATIO * self.base_ns
        return [
            _Chosen(
                found.name(self.trace, name),
                mine[found.device[mine] == name],
                *self.spent.by_node((found.host == name) | (bought & (name == giver))),
                round(float(host[name] + beyond[name])),
                float(beyond[name]),
            )
            for name in order.tolist()
            if together[name] >= at_least
        ]

    def _variant(self, cut: Cut, one: _Chosen, how: str) -> Times:
        graph = self.window.graph
        mine = np.zeros(len(self.trace.device_ops or ()), np.bool_)
        mine[one.rows] = True
        ops = mine[graph.op_rows]
        gap, own, duration = graph.gap_ns, graph.own_ns, graph.op_duration_ns
        dropped, free = np.zeros(len(ops), np.bool_), np.zeros(len(gap), np.uint8)
        if how == "limit":
            limits = needed_limits(self.trace)
            at_limit = limits.at_limit_ns[graph.op_rows].astype(np.int64)
            duration = np.where(ops, at_limit, duration)
            dropped = ops & limits.repeated[graph.op_rows]
            gone = np.zeros(len(gap), np.bool_)
            gone[graph.op_node[dropped]] = True
            gap = np.where(gone, gap - one.gap_ns, gap)
            own = np.where(gone, own - one.own_ns, own)
        else:
            dropped = ops if how == "free" else dropped
            if how == "free" or cut is Cut.WAIT:  # what it waited for goes with it
                free = one.calls * np.uint8(one.frees)
            if one.frees != OF_A_BATCH:
                gap, own = gap - one.gap_ns, own - one.own_ns
        return Times(
            gap, self._launching(own, dropped), np.where(dropped, 0, duration), dropped, free
        )

    def _launching(self, own: Ints, dropped: Mask) -> Ints:
        """No call that still starts device work is shorter than a bare launch."""
        graph = self.window.graph
        left = np.zeros(len(own), np.bool_)
        left[graph.op_node[~dropped]] = True
        least = np.minimum(graph.own_ns, LEAST_LAUNCH_NS)
        return np.where(left, np.maximum(own, least), np.maximum(own, 0))

    def _replayed(self, variants: list[Times]) -> list[float]:
        """Step of each variant, at the scale of the base and never below the work that stays."""
        periods = simulate_many(self.window.graph, variants)[self.window.counted].mean(axis=0)
        return [self._step(ns, v) for ns, v in zip(periods.tolist(), variants, strict=True)]

    def _mean(self, one: _Chosen, after: list[float]) -> list[int]:
        """The step free, at the limit, without host time; the host's part of exceptions is gone."""
        free, limit, host = after
        usual = min(self.window.step_ns, self.base_ns)
        floor = max(free - usual, 0.0)  # what exceptions can give at most
        return [
            round(free - min(one.beyond_ns, floor)),
            round(limit),
            round(host - min(one.beyond_ns, max(host - usual, 0.0))),
        ]

    def critical_ns(self, path: "CriticalPath", one: _Chosen) -> int:
        """Of its time, what is on the critical path; host time before a node by its share of it."""
        graph = self.window.graph
        mine = np.zeros(len(self.trace.device_ops or ()), np.bool_)
        mine[one.rows] = True
        total = path.by_op(self.window)[mine[graph.op_rows]].sum()
        from pinchpoint.analysis.causal.critical_path import Link

        before = Link.BATCH if one.frees == OF_A_BATCH else Link.HOST
        for link, part, whole in (
            (before, one.gap_ns, graph.gap_ns),
            (Link.CALL, one.own_ns, graph.own_ns),
        ):
            total += (
                path.by_node(self.window, link) * (part / np.maximum(whole, 1)).clip(0, 1)
            ).sum()
        return round(float(total))

    def _step(self, replayed_ns: float, variant: Times) -> float:
        usual = self.window.step_ns
        after = usual * min(replayed_ns / self.window.mean_ns, 1.0)
        same = np.array_equal(variant.duration_ns, self.window.graph.op_duration_ns)
        same = same and not variant.dropped.any()
        stays = self._as_it_is_ns if same else self._stays_ns(variant.duration_ns, variant.dropped)
        after = max(after, min(stays, usual))
        return max(self.base_ns - (usual - after), 0.0)

    @cached_property
    def _as_it_is_ns(self) -> float:
        """What the device works for in a step, if a variant leaves all of that as it is: streams
        that took turns go on doing so."""
        took = self.window.graph.op_duration_ns
        stays = self._stays_ns(took, np.zeros(len(took), np.bool_))
        return max(stays, kept_ns(self.trace, ()))

    def _stays_ns(self, duration_ns: Ints, dropped: Mask) -> float:
        """Device work a step that a variant leaves, in the busiest stream and in all that share a
        device; and what the products that it leaves as they are take at the power limit."""
        at, rows, stream, device, fastest_ns = self._judged
        took = duration_ns[at]
        least = np.minimum(took, fastest_ns)
        work = np.bincount(stream, least, 1)
        shared = shared_by_rows_ns(self.trace, rows, least)
        same = ~dropped[at] & (took == self.window.graph.op_duration_ns[at])
        warm = np.bincount(device[same], sustained_ns(self.trace)[rows[same]], 1)
        steps_of = max(int(self.window.counted.sum()), 1)
        return float(max(work.max(), warm.max(), shared)) / steps_of

    @cached_property
    def _judged(self) -> tuple[Rows, Rows, Rows, Rows, Floats]:
        """Operations of the counted steps: positions in the graph, rows, streams, devices, and what
        each takes at its fastest."""
        graph, ops = self.window.graph, self.trace.device_ops
        assert ops is not None
        at = np.flatnonzero(self.window.counted[graph.node_step[graph.op_node]])
        rows = graph.op_rows[at]
        return at, rows, stream_ids(ops)[rows], device_ids(ops)[rows], best_ns(self.trace)[rows]

    def _piece(self, cut: Cut, one: _Chosen, after: list[int]) -> Piece:
        free, limit, host = after
        count = max(len(judged_steps(self.trace)), 1)
        ops, limits = self.trace.device_ops, needed_limits(self.trace)
        assert ops is not None
        took, needs = ops["duration_ns"][one.rows], limits.limit_ns[one.rows]
        at_work_ns = flatten(ops["start_ns"][one.rows], ops.end_ns[one.rows]).total
        known, kernel = ~np.isnan(needs), ops["kind"][one.rows] == DeviceKind.KERNEL
        # Where the limit of a tenth is not known, that tenth counts as it is.
        told = took[known].sum() >= KNOWN_RATIO * took.sum() if len(took) else False
        size = limits.bytes[one.rows][known].sum()
        operators = launched_calls(self.trace).operator[one.rows]
        return Piece(
            cut=cut,
            name=one.name,
            calls=len(one.rows) / count,
            host_ns=one.host_ns,
            device_ns=round(at_work_ns / count),
            limit_ns=round(min(float(np.where(known, needs, took).sum()), at_work_ns) / count)
            if told
            else None,
            needed_bytes=round(float(size) / count) if told and np.isfinite(size) else None,
            step_if_free_ns=min(free, limit),
            step_at_limit_ns=limit,
            step_without_host_ns=host,
            base_ns=self.base_ns,
            in_kernels=bool(2 * took[kernel].sum() > took.sum()),
            launches_per_call=len(operators) / len(distinct(operators)) if len(operators) else None,
        )


def _replay(trace: Trace) -> _Replay | None:
    """None where the trace cannot be replayed. Not remembered, as it holds the trace."""
    window, base = replayed_window(trace), step_base_ns(trace)
    if window is None or base is None:
        return None
    return _Replay(trace, window, base, _spent(trace))


@once_per_trace
def _spent(trace: Trace) -> Spent:
    window = replayed_window(trace)
    assert window is not None
    return spent(trace, window.graph)


KNOWN_RATIO = 0.9  # of a piece's device time, with a known limit: below it the piece has none
_HOWS = ("free", "limit", "host")


@once_per_trace
def _replayed_pieces(trace: Trace) -> dict[Cut, list[tuple[Piece, _Chosen]]]:
    """What was worked out of a trace so far."""
    return {}
