"""What the host fills and the same function sends to the device: it could be made there."""

import numpy as np

from pinchpoint.analysis.causal.filled_slots import filled_slots
from pinchpoint.analysis.causal.limits import RANDOM_ROWS_REACHED
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.replay import Change, DropSyncs, LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows, distinct

MEMORY_FREE_RATIO = 0.5  # of the device's, for what moves there: the rest is the program's


def sent_after(trace: Trace, rows: Ints) -> tuple[Rows, Rows]:
    """Copies to the device of what these rows fill, and the waits for the buffers."""
    filled = filled_slots(trace)
    sizes = [device.memory_bytes for device in trace.devices if device.memory_bytes]
    fits = filled.read_bytes <= MEMORY_FREE_RATIO * min(sizes, default=0)
    mine = np.flatnonzero(np.isin(filled.operator, rows, kind="table") & fits)
    none = np.zeros(0, np.intp)
    uploads = np.concatenate([none, *(filled.uploads[i] for i in mine)])
    return distinct(uploads), distinct(np.concatenate([none, *(filled.waits[i] for i in mine)]))


def sent(trace: Trace, uploads: Rows) -> tuple[Evidence, ...]:
    """What these copies take."""
    ops = trace.device_ops
    if ops is None or not len(uploads):
        return ()
    took = round(per_step(trace, int(ops["duration_ns"][uploads].sum())))
    return (Evidence("copies of the result to the device", took, "ns per step"),)


def made_on_the_device(trace: Trace, uploads: Rows, waits: Rows) -> tuple[Change, ...]:
    """The copies take what reading and writing as much takes there."""
    ops, known = trace.device_ops, roofs(trace)
    if ops is None or known is None or known.memory is None or not len(uploads):
        return ()
    rate = known.memory.per_s * RANDOM_ROWS_REACHED
    return (DropSyncs(waits), LimitDeviceOps(uploads, 2 * ops["bytes"][uploads] / rate * 1e9))
