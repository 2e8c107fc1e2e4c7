"""What a loader with worker processes does once: it starts them before its first batch, and ends
them after its last. A recording of few batches may be mostly that."""

import numpy as np

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.candidates import LOADER
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import Breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

MOSTLY_RATIO = 0.5  # of the waiting, and of the recording
# A first batch that takes as long as this many later ones is not slow because batches are: where
# workers start in a process of their own they import what the program imports, for seconds.
FAR_RATIO = 10
_PARTS = (GapKind.DATA.id, GapKind.DATA.id.replace("idle-", "host-"))


def workers_started(trace: Trace, parts: Breakdown) -> str:
    """That waiting for batches is mostly this, as a sentence; empty where it is not."""
    host, whole = trace.host_ops, parts.typical_ns or 0
    waited = sum(parts.of_part(part) for part in _PARTS)
    if host is None or steps(trace).how != "none" or waited < MOSTLY_RATIO * whole or not whole:
        return ""
    asked = rows_named(trace, host, lambda name: name.startswith(LOADER) and "MultiProc" in name)
    asked &= (host["kind"] == HostKind.ANNOTATION) & (host["thread"] == main_thread(trace))
    lasting = host["duration_ns"][asked][np.argsort(host["start_ns"][asked], kind="stable")]
    begun = rows_named(trace, host, lambda name: name.endswith(": _get_iterator")).any()
    if len(lasting) < (1 if begun else 2) or lasting[0] < FAR_RATIO * lasting[1:].max(initial=0):
        return ""
    ends = rows_named(trace, host, lambda name: name.endswith(": _shutdown_workers"))
    first, ended = int(lasting[0]), int(host["duration_ns"][ends].sum())
    if first + ended < MOSTLY_RATIO * waited:
        return ""
    after = f", and their end {duration(ended)}" if ended else ""
    return (
        f" The start of the loader's workers, with the first batch, takes {duration(first)}"
        f"{after}: once, and not for each batch."
    )
