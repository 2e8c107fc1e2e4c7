"""Launches that loaded the code of their kernel.

Drivers load a kernel's code when it is first launched (CUDA does since 11.7, unless
``CUDA_MODULE_LOADING`` says otherwise; HIP always did). A program that runs once spends most of its
time on that.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued
from pinchpoint.trace import ApiKind, Trace, once_per_trace

# A launch takes 2 to 20 µs on every host in the corpus, and loading code reads a file: the quickest
# loads there take 4 ms, and a host that is merely descheduled is back within a millisecond or so.
SHORTEST_LOAD_NS = 2_000_000


@once_per_trace
def loading_calls(trace: Trace) -> NDArray[np.bool_]:
    """The rows of ``api_calls`` that first launched a kernel, and took far longer than a launch."""
    calls, ops, by = trace.api_calls, trace.device_ops, issued(trace)
    found = np.zeros(0 if calls is None else len(calls), np.bool_)
    if calls is None or ops is None or not by.linked.any():
        return found
    linked = np.flatnonzero(by.linked)
    order = linked[np.argsort(by.start_ns[linked], kind="stable")]
    _, first = np.unique(ops["name"][order], return_index=True)
    found[by.call[order[first]]] = True
    found &= (calls["kind"] == ApiKind.LAUNCH) & (calls["duration_ns"] >= SHORTEST_LOAD_NS)
    return found
