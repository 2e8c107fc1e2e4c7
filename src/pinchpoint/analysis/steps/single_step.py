"""A recording without repetition that is one training step, by its only optimizer step.

``torch.optim`` annotates ``Optimizer.step``, which ends a training step. A recording with
exactly one, and hardly any work after it, ends where the step ends. Where the step began,
nothing says.
"""

import numpy as np

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.candidates import repeated_work
from pinchpoint.analysis.steps.repetition import Spans
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.names import rows_named

CONFIDENCE_ALONE = 0.5  # the end of the step is seen; its beginning may be missing
NEARLY_ALL_LAUNCHES = (
    0.9  # of the launches come before the optimizer is done; some logging may follow
)


def single_step(trace: Trace) -> Spans | None:
    """From the first operator or annotation to the end of the only optimizer step; None if there is
    no such end."""
    host, work = trace.host_ops, repeated_work(trace)
    if host is None or not len(host) or not len(work.at_ns) or work.on_device:
        return None
    rows = rows_named(trace, host, lambda name: name.startswith("Optimizer.step"))
    main = host["thread"] == main_thread(trace)
    at = np.flatnonzero(rows & main & (host["kind"] == HostKind.ANNOTATION))
    if len(at) != 1:
        return None
    shown = main & np.isin(host["kind"], (HostKind.OPERATOR, HostKind.ANNOTATION))
    start, end = host["start_ns"][shown].min(keepdims=True), host.end_ns[at]
    before = np.count_nonzero(work.at_ns < end[0])
    if before < NEARLY_ALL_LAUNCHES * len(work.at_ns):
        return None
    basis = "no markers; one optimizer step, at the end: a step whose beginning may be missing"
    return Spans(start, end, np.zeros(1, np.int64), basis, CONFIDENCE_ALONE)
