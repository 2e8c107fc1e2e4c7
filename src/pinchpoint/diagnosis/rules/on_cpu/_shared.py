"""What the rules about programs on CPUs share: the rows that they judge, and what is told."""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within, within_rows
from pinchpoint.analysis.host.input_arguments import input_dtypes, input_shapes, is_sparse
from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.run import lacked_cores
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import HostSpans
from pinchpoint.diagnosis.finding import Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask

# Of the step. Causes on a CPU are told from one recording with the profiler in it, which slows
# each operator by some microseconds.
LEAST_RATIO = 0.05


def judged(trace: Trace) -> Mask | None:
    """Rows of ``host_ops`` in judged steps; None for a program that has a device.

    Raises NotChecked where no step is known.
    """
    if not computes_on_cpu(trace) or trace.host_ops is None:
        return None
    if not len(judged_steps(trace)) or steps(trace).typical_ns is None:
        raise NotChecked("no step is known")
    return rows_in_steps(trace, trace.host_ops)


def too_small(trace: Trace, spans: HostSpans, fair: float = 1.0) -> Small | None:
    """What to say where this takes too little of the step: in most steps, not by one call that was
    held up. None: enough.

    ``fair``: the part of their time that counts, see ``fair_share``.
    """
    host, windows, step_ns = trace.host_ops, judged_steps(trace), steps(trace).typical_ns or 0
    assert host is not None
    step = windows.step_of(host["start_ns"][spans.rows])
    took = np.zeros(len(windows), np.int64)
    np.add.at(took, step, host["duration_ns"][spans.rows])
    ns = fair * float(np.median(took))
    return Small(ns / step_ns, LEAST_RATIO) if ns < LEAST_RATIO * step_ns else None


def fair_share(trace: Trace, spans: HostSpans) -> float:
    """The part of their time that these spans would have of a step that no other program held up:
    others' turns on a core fall on some calls and not on others, by chance."""
    from pinchpoint.analysis.limits.on_cpu import fair_ratio

    host = trace.host_ops
    assert host is not None
    mine, scarce = within_rows(parents(host), spans.rows)[:-1], lacked_cores(trace)
    if scarce and not (with_inputs(trace).host_ops or host).known("shapes")[mine].any():
        raise NotChecked(
            "other programs had the cores, and without shapes it does not show what these calls"
            " take by themselves",
            Record("the same while the machine has nothing else to do"),
            fits=True,
        )
    return fair_ratio(trace, mine, scarce=scarce)


def inside(trace: Trace, *prefixes: str) -> Mask:
    """Rows in annotations whose names begin so: an optimizer's step, a loader's next batch."""
    host = trace.host_ops
    assert host is not None
    named = np.array([name.startswith(prefixes) for name in trace.names], np.bool_)
    ranges = named[host["name"]] & (host["kind"] == HostKind.ANNOTATION)
    found: Mask = within(parents(host), ranges)[:-1]
    return found


def named(trace: Trace, *names: str) -> Mask:
    """Rows of ``host_ops`` with one of these names."""
    host = trace.host_ops
    assert host is not None
    wanted = np.array([name in names for name in trace.names], np.bool_)
    found: Mask = wanted[host["name"]]
    return found


def sparse(trace: Trace) -> Mask:
    """Rows that got a sparse matrix, whose shape does not say what it holds."""
    host = trace.host_ops
    assert host is not None
    shapes, strides = host.filled("shapes", -1), host.filled("strides", -1)
    pairs, which = np.unique(np.stack((shapes, strides), axis=1), axis=0, return_inverse=True)
    of = [-1 not in pair and is_sparse(*(trace.names[n] for n in pair)) for pair in pairs.tolist()]
    found: Mask = np.array(of, np.bool_)[which.ravel()]
    return found


def typed(trace: Trace, kind: str) -> Mask | None:
    """Rows that got a tensor with elements of this type, such as ``double``; None where types were
    not recorded."""
    host = trace.host_ops
    assert host is not None
    shapes, dtypes = host.filled("shapes", -1), host.filled("dtypes", -1)
    if not (dtypes >= 0).any():
        return None
    pairs, which = np.unique(np.stack((shapes, dtypes), axis=1), axis=0, return_inverse=True)
    has_one = [_has(trace, kind, *pair) for pair in pairs.tolist()]
    found: Mask = np.array(has_one, np.bool_)[which.ravel()]
    return found


def _has(trace: Trace, wanted: str, shapes: int, dtypes: int) -> bool:
    if shapes < 0 or dtypes < 0:
        return False
    sizes = input_shapes(trace.names[shapes]) or ()
    types = input_dtypes(trace.names[dtypes]) or ()
    return any(size and kind == wanted for size, kind in zip(sizes, types, strict=False))
