"""From the work of a run that was seen to be in vain to the rows of a recording.

The dispatcher was watched in other steps than the recorded ones. An operation is found again as the
n-th of its name and shapes in a step, where a step has as many of these in both; where all of them
are in vain, how many there are does not matter. Where shapes change from step to step, or were not
recorded, it is the n-th of its name.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pinchpoint.analysis.host.ancestry import (
    above,
    nearest,
    parents,
    subtree_sums,
    within,
    within_rows,
)
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.host.other_threads import only_steps_read_the_device
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import (
    device_ops_in_steps,
    judged_steps,
    per_step,
    rows_in_steps,
)
from pinchpoint.diagnosis.evidence.device_work import busiest_place, without_work
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

Key = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, eq=False)
class Vain:
    """Rows of what one note tells; times are a step's, as recorded."""

    work: VainWork
    operators: Rows  # of host_ops
    spans: Rows  # these, what encloses nothing else, and the backward pass through them
    device_rows: Rows
    host_ns: int
    device_ns: int
    longest: str  # the operator that takes most
    place: Location | None

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Times and their operators."""
        return (
            Evidence("host time", self.host_ns, "ns per step"),
            Evidence("device time", self.device_ns, "ns per step"),
            Evidence("mostly in", self.longest, "words"),
        )

    def changes(self, trace: Trace) -> tuple[Change, ...]:
        """A step without them, in so many steps as it is so."""
        left, rows = self._left, self.device_rows
        device: tuple[Change, ...] = ()
        if len(rows):
            scaled = ScaleDeviceOps(rows, left, left, left)
            if self.work.left_ratio:  # as many launches, of less work
                return (scaled,)
            device = (scaled,) if left else tuple(without_work(trace, rows))
        return (*device, ScaleHostSpans(self.spans, left))

    @property
    def _left(self) -> float:
        return max(1 - self.work.steps_ratio, self.work.left_ratio)

    def at_best(self, trace: Trace) -> tuple[Change, ...]:
        """Without them in all steps; empty where that is no other one."""
        if self.work.steps_ratio == 1:
            return ()
        device = without_work(trace, self.device_rows) if len(self.device_rows) else ()
        return (*device, ScaleHostSpans(self.spans, 0.0))


def watched(trace: Trace) -> RunValues | None:
    """What a run saw of its work; None where it saw none, of which a rule has nothing to say.
    NotChecked where it could not look, and why."""
    values = None if trace.run is None else trace.run.values
    if values is not None and values.work is None and values.work_not_seen:
        raise NotChecked(f"the run was not watched: {values.work_not_seen}")
    if values is None or values.work is None:
        return None
    work = values.work
    if any(one.beside_threads for one in work) and not only_steps_read_the_device(trace):
        work = tuple(one for one in work if not one.beside_threads)
        values = replace(values, work=work)
    by_name = any(one.of_name for note in work for one in note.operations)
    if work and not _has_shapes(trace) and not by_name:
        raise NotChecked("this window has no shapes of inputs")
    return values


def may_be_read_elsewhere(trace: Trace, kinds: Sequence[str]) -> bool:
    """Whether work of these kinds is in vain but for what threads beside the steps may read."""
    values = None if trace.run is None else trace.run.values
    work = () if values is None else values.work or ()
    return any(one.beside_threads and one.kind in kinds for one in work)


def _has_shapes(trace: Trace) -> bool:
    return trace.host_ops is not None and bool(trace.host_ops.known("shapes").any())


def counted(work: VainWork) -> str:
    """``3 operations``."""
    return "1 operation" if work.times == 1 else f"{work.times} operations"


def vain(trace: Trace, work: VainWork, *, beside_modules: bool) -> Vain | None:
    """The rows of one note in the judged steps; None where they are not found.

    ``beside_modules``: but those of modules that are known to be called again as a whole.
    """
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    chosen = np.zeros(len(host), np.bool_)
    chosen[rows_of_note(trace, work)] = True
    if beside_modules:
        chosen &= ~_in_modules_called_again(trace)
    if work.kind != "ranks":  # an operator may be shared out in part
        chosen = _not_parts(trace, chosen)
    operators = np.flatnonzero(chosen)
    if not len(operators):
        return None
    spans = _spans(trace, chosen)
    inside = within_rows(parents(host), spans)
    if work.kind in (
        "within",
        "part",
        "moved",
        "rows",
        "alike",
    ):  # gradients flow back through one result as through many
        forward = np.append(inside[:-1], False)[np.append(forward_rows(trace), -1)]
        back = np.flatnonzero(outermost(trace, backward_nodes(trace) & forward[:-1]))
        spans = np.union1d(spans, back[rows_in_steps(trace, host)[back]])
        inside = within_rows(parents(host), spans)
    device_rows: Rows = np.zeros(0, np.intp)
    if ops is not None:
        launched = inside[ops.filled("host_op", len(host))]
        device_rows = np.flatnonzero(launched & device_ops_in_steps(trace))
    if work.beside_threads and not len(device_rows):  # what lies on the host, any thread may read
        return None
    took = _took(trace, inside, operators)
    by_name = np.bincount(host["name"][operators], took)
    return Vain(
        work,
        operators,
        spans,
        device_rows,
        round(per_step(trace, int(host["duration_ns"][spans].sum()))),
        0 if ops is None else round(per_step(trace, int(ops["duration_ns"][device_rows].sum()))),
        trace.names[int(by_name.argmax())],
        Location(*work.places[0]) if work.places else busiest_place(trace, operators, took)[0],
    )


def rows_of_note(trace: Trace, work: VainWork) -> Rows:
    """The operators of one note in the judged steps, those within other work included."""
    return rows_of(trace, work.operations)


def rows_of(trace: Trace, operations: Sequence[VainOperations]) -> Rows:
    """These operations in the judged steps."""
    if trace.host_ops is None or not operations:
        return np.zeros(0, np.intp)
    return np.concatenate([_rows_of(trace, one) for one in operations])


def _took(trace: Trace, inside: Mask, operators: Rows) -> Ints:
    """What each operator takes of the device; where nothing runs there, of the host."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    if ops is not None:
        launched = np.zeros(len(host) + 1, np.int64)
        np.add.at(launched, ops.filled("host_op", len(host)), ops["duration_ns"])
        total = subtree_sums(parents(host), launched[:-1])[operators]
        if total.any():
            return total
    return host["duration_ns"][operators].astype(np.int64)


def _not_parts(trace: Trace, chosen: Mask) -> Mask:
    """But those in an operator that does other work, too: nobody can take a part out of it."""
    host = trace.host_ops
    assert host is not None
    up = parents(host)
    operators = (host["kind"] == HostKind.OPERATOR) & ~backward_nodes(trace)
    mixed = operators & (subtree_sums(up, _others(trace, chosen).astype(np.int64)) > 0)
    found: Mask = chosen & (nearest(up, mixed) == len(host))
    return found


def _others(trace: Trace, chosen: Mask) -> Mask:
    """Operators that compute something and are not chosen."""
    host, values = trace.host_ops, trace.run.values if trace.run else None
    assert host is not None
    assert values is not None
    views = frozenset(values.views)
    found: Mask = run_by_dispatcher(trace) & ~chosen
    return found & ~rows_named(trace, host, views.__contains__)


def _spans(trace: Trace, chosen: Mask) -> Rows:
    """The outermost rows that hold no operators but those in vain, and looks at tensors.

    A function counts as a whole where most of its time is in operators: it may compute otherwise.
    """
    host = trace.host_ops
    assert host is not None
    up, operators = parents(host), host["kind"] == HostKind.OPERATOR
    others = subtree_sums(up, _others(trace, chosen) + _launched_unseen(trace))
    mine = subtree_sums(up, chosen.astype(np.int64))
    top = operators & (above(up, operators) == len(host))
    in_operators = subtree_sums(up, np.where(top, host["duration_ns"], 0))
    functions = np.isin(host["kind"], (HostKind.PYTHON, HostKind.MODULE))
    whole = operators | functions & (2 * in_operators >= host["duration_ns"])
    whole = chosen | whole & (mine > 0) & (others == 0)
    return np.flatnonzero(outermost(trace, whole & rows_in_steps(trace, host)))


def _launched_unseen(trace: Trace) -> Ints:
    """What each row launched beside of all that the dispatcher runs: kernels of the program."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    found = np.zeros(len(host) + 1, np.int64)
    if ops is not None:
        by = ops.filled("host_op", len(host)).astype(np.int64)
        unseen = ~within(parents(host), run_by_dispatcher(trace))[by]
        np.add.at(found, by[unseen], 1)
    return found[:-1]


@once_per_trace
def run_by_dispatcher(trace: Trace) -> Mask:
    """Rows of operators as the watch saw them: not what these call themselves."""
    host, values = trace.host_ops, trace.run.values if trace.run else None
    assert host is not None
    assert values is not None
    names = frozenset((*values.operators, *values.views))
    seen = rows_named(trace, host, names.__contains__) & (host["kind"] == HostKind.OPERATOR)
    found: Mask = seen & (above(parents(host), seen) == len(host))
    return found


@once_per_trace
def _by_key(trace: Trace) -> dict[Key, Rows]:
    """Rows of the judged steps that the dispatcher ran, by name and shapes, as they began."""
    host = trace.host_ops
    assert host is not None
    rows = np.flatnonzero(run_by_dispatcher(trace) & rows_in_steps(trace, host))
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    told = host.known("shapes")[rows]
    shapes = np.where(told, host["shapes"][rows].astype(np.int64), -1)
    pairs = np.stack((host["name"][rows].astype(np.int64), shapes))
    kinds, which = np.unique(pairs, axis=1, return_inverse=True)
    found: dict[Key, list[Rows]] = defaultdict(list)
    for number, (name, text) in enumerate(kinds.T.tolist()):
        key = (trace.names[name], tensor_shapes(trace.names[text]) if text >= 0 else ())
        found[key].append(rows[which.reshape(-1) == number])
    return {key: _in_order(trace, some) for key, some in found.items()}


@once_per_trace
def _by_name(trace: Trace) -> dict[str, Rows]:
    found: dict[str, list[Rows]] = defaultdict(list)
    for (name, _), rows in _by_key(trace).items():
        found[name].append(rows)
    return {name: _in_order(trace, some) for name, some in found.items()}


def _in_order(trace: Trace, some: Sequence[Rows]) -> Rows:
    host, rows = trace.host_ops, np.concatenate(some)
    assert host is not None
    return rows[np.argsort(host["start_ns"][rows], kind="stable")]


def _rows_of(trace: Trace, one: VainOperations) -> Rows:
    """The operations of a note in each judged step that has as many as those that were watched."""
    host = trace.host_ops
    assert host is not None
    if one.shapes is not None and _has_shapes(trace):
        rows, count, which = _by_key(trace).get((one.name, one.shapes)), one.count, one.which
    else:
        rows, count, which = _by_name(trace).get(one.name), one.of_name, one.which_of_name
    if rows is None or not count:
        return np.zeros(0, np.intp)
    vain = np.zeros(count, np.bool_)
    for first, last in which:
        vain[first : last + 1] = True
    if vain.all():
        return rows
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    found = [
        mine[vain]
        for number in distinct(step).tolist()
        if len(mine := rows[step == number]) == count
    ]
    return np.concatenate(found) if found else np.zeros(0, np.intp)


@once_per_trace
def _in_modules_called_again(trace: Trace) -> Mask:
    host, values = trace.host_ops, trace.run.values if trace.run else None
    assert host is not None
    if values is None or not values.again:
        return np.zeros(len(host), np.bool_)
    models = "|".join(re.escape(one.model) for one in values.again)
    pattern = regex(rf"nn\.Module: (?:{models})_\d+$")
    modules = rows_named(trace, host, lambda name: pattern.match(name) is not None)
    found: Mask = nearest(parents(host), modules) < len(host)
    return found
