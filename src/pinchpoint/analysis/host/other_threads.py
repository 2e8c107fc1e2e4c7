"""Whether threads beside those of the steps may have read what these computed on the device.

A recording of operators is of the thread that began it, and of what autograd runs for it; that of
the runtime's calls is of all threads of the process. Whoever reads what lies on the device launches
a kernel or a copy for it. What is sent to the device reads nothing there.
"""

import numpy as np

from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.trace import DeviceKind, MemoryKind, Trace, once_per_trace
from pinchpoint.trace.arrays import distinct

# With fewer, a recording has no calls of some kind. A queue of 1024 launches is full at most.
_LINKED_RATIO = 0.5
_OF_THE_HOST = (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.HOST)


@once_per_trace
def only_steps_read_the_device(trace: Trace) -> bool:
    """Whether calls were recorded, and all that read the device came from the steps' threads."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return False
    by = issued(trace)
    # What was launched before the recording began has no call in it, and is no other thread's.
    if by.linked.sum() < _LINKED_RATIO * len(ops):
        return False
    came_from = ops.filled("from_memory", MemoryKind.DEVICE)
    sent = (ops["kind"] == DeviceKind.COPY) & np.isin(came_from, _OF_THE_HOST)
    of_steps = {main_thread(trace), *distinct(host["thread"][backward_nodes(trace)]).tolist()}
    return bool(np.isin(by.thread[by.linked & ~sent], list(of_steps)).all())
