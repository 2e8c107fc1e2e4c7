"""Functions that pass over memory far more often than their work needs."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pinchpoint.analysis.causal.passes import Row, rows_of_passes
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay import Change, DropDeviceOps, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Ints

# What one pass needs is right within a factor of two: inputs of one size are told apart by number.
FAR_RATIO = 3.0
PART_RATIO = 2.0  # rows of a function that take less are near what they need, and stay


@dataclass(frozen=True, eq=False)
class FarFunction:
    """Rows of operators of one function, all calls and both directions; times are a step's."""

    name: str  # forward (model.py:41)
    rows: tuple[Row, ...]
    work: DeviceWork
    needs_ns: int
    took_ns: Ints  # each row of ``device_ops``

    @property
    def saving_ns(self) -> int:
        """Device time that one pass each would save."""
        return self.work.ns_per_step - self.needs_ns

    @property
    def changes(self) -> tuple[Change, ...]:
        """As many kernels of each row, longest first, as take together what the row needs.

        A single first one may be shorter than that, and no kernel becomes longer.
        """
        kept, limits, rest = [], [], []
        for row in self.rows:
            order = row.rows[np.argsort(-self.took_ns[row.rows], kind="stable")]
            took = self.took_ns[order].astype(np.int64)
            before = np.cumsum(took) - took
            needed = before < row.needs_ns
            needed[0] = True
            kept.append(order[needed])
            limits.append(np.minimum(took, np.maximum(round(row.needs_ns) - before, 0))[needed])
            rest.append(order[~needed])
        return (
            DropDeviceOps(np.concatenate(rest)),
            LimitDeviceOps(np.concatenate(kept), np.concatenate(limits)),
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What it takes and what it needs."""
        return self.evidence_with(self.rows)

    def evidence_with(self, rows: Sequence[Row]) -> tuple[Evidence, ...]:
        """The same, with the bytes of some of its rows: those that a finding speaks of."""
        outside = max(row.outside_bytes for row in rows)
        inside = max(row.inside_bytes for row in rows)
        return (
            *self.work.evidence,
            Evidence("one pass each would take", self.needs_ns, "ns per step"),
            Evidence("read from and written for outside, at most", outside, "bytes per call"),
            Evidence("largest tensor in between", inside, "bytes"),
        )


def far_functions(trace: Trace, wanted: Callable[[Row], bool]) -> Iterator[FarFunction]:
    """Functions whose wanted rows take several times what they need, most saving first."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not (host["kind"] == HostKind.PYTHON).any():
        raise NotChecked("the recording has no Python functions")
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    by_function: dict[int, list[Row]] = {}
    for row in rows_of_passes(trace):
        if row.took_ns >= PART_RATIO * row.needs_ns and wanted(row):
            by_function.setdefault(row.function, []).append(row)
    found = [_function(trace, name, rows) for name, rows in by_function.items()]
    far = [one for one in found if one.work.ns_per_step >= FAR_RATIO * one.needs_ns]
    yield from sorted(far, key=lambda one: -one.saving_ns)


def _function(trace: Trace, name: int, rows: list[Row]) -> FarFunction:
    mine = np.zeros(len(trace.device_ops or ()), np.bool_)
    mine[np.concatenate([row.rows for row in rows])] = True
    work = device_work(trace, mine, "its device time")
    assert work is not None
    frame = frame_of(trace.names[name])
    text = f"{frame.function} ({frame.file}:{frame.line})" if frame else trace.names[name]
    needs = round(per_step(trace, round(sum(row.needs_ns for row in rows))))
    assert trace.device_ops is not None
    return FarFunction(text, tuple(rows), work, needs, trace.device_ops["duration_ns"])


def share_of_step(trace: Trace, ns_per_step: int) -> float:
    """Of the step that gains are counted from; 0 where no step is known."""
    base = step_base_ns(trace)
    return ns_per_step / base if base else 0.0
