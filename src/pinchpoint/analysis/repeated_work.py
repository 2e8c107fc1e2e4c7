"""What was issued over and over: the work whose repetition shows steps."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.launches import issued, main_thread, own_work
from pinchpoint.trace import ApiKind, HostKind, Trace
from pinchpoint.trace.arrays import Ints


@dataclass(frozen=True, eq=False)
class Work:
    """Times and kinds of launched work, in order; device operations or operators where no
    launches were recorded."""

    at_ns: Ints
    key: Ints  # 0..kinds-1
    kinds: int
    until_ns: Ints  # when each was issued, or done where there is no device
    unit: str  # what is counted, for people
    on_device: bool


def repeated_work(trace: Trace) -> Work:
    """The launches; else the device operations; else the outer operators of the main
    thread, or its outer annotations."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return _host_work(trace)
    by = issued(trace)
    if not by.linked.any():
        # One of several devices tells: they do the same, or one after the other its part.
        mine = ops.take(ops["device"] == np.bincount(np.maximum(ops["device"], 0)).argmax())
        at, until = mine["start_ns"], mine.end_ns
        return _numbered(at, mine["name"], until, "device operations", on_device=True)
    calls = trace.api_calls
    assert calls is not None
    graph = by.linked & (calls["kind"][by.call] == ApiKind.GRAPH_LAUNCH)
    graph &= own_work(trace)
    alone = by.linked & ~graph & own_work(trace)
    size = np.bincount(by.call[graph], minlength=len(calls))
    launched = np.flatnonzero(size)
    at = np.concatenate((by.start_ns[alone], calls["start_ns"][launched]))
    # A graph is known by its size: files do not name graphs.
    key = np.concatenate((ops["name"][alone], len(trace.names) + size[launched]))
    order = np.argsort(at, kind="stable")
    until = np.concatenate((by.end_ns[alone], calls.end_ns[launched]))
    return _numbered(at[order], key[order], until[order], "launches")


def _host_work(trace: Trace) -> Work:
    host = trace.host_ops
    none = np.zeros(0, np.int64)
    if host is None or not len(host):
        return Work(none, none, 0, none, "host operators", False)
    operator = host["kind"] == HostKind.OPERATOR
    unit = "host operators"
    if not operator.any():  # a recording of ranges alone
        operator, unit = host["kind"] == HostKind.ANNOTATION, "annotated ranges"
    inside = np.zeros(len(host), np.bool_)
    known = host.known("parent")
    inside[known] = operator[host["parent"][known]]
    outer = operator & ~inside & (host["thread"] == main_thread(trace))
    until = host.end_ns[outer]
    return _numbered(host["start_ns"][outer], host["name"][outer], until, unit)


def _numbered(
    at_ns: Ints, key: Ints, until_ns: Ints, unit: str, *, on_device: bool = False
) -> Work:
    distinct, numbered = np.unique(key, return_inverse=True)
    return Work(at_ns, numbered.astype(np.int64), len(distinct), until_ns, unit, on_device)
