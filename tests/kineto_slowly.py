"""A Kineto file read slowly, with the json module: what a trace of it must agree with."""

import gzip
import json
import re
from decimal import Decimal

import numpy as np

from pinchpoint.trace import DeviceKind
from pinchpoint.trace.intervals import flatten

KERNEL = {"kernel", "Kernel"}
DEVICE = KERNEL | {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
HOST = {"user_annotation", "cpu_op", "Operator"}
MARKER = re.compile(r"ProfilerStep#\d+")
ROUND = re.compile(
    r"execute_.*context_\d+\(.*generation_\d+\(.*|step\[[A-Z_]+ bs=.*\]"
)  # vLLM, SGLang


def events_of(path):
    with gzip.open(path) as file:
        document = json.loads(file.read(), strict=False, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [e for e in events if e.get("ph") == "X" and "dur" in e]


def ns(microseconds):
    return int(Decimal(microseconds) * 1000)


def union_ns(spans):
    total, reach = 0, None
    for start, end in sorted(spans):
        if reach is None or start > reach:
            total += end - start
            reach = end
        elif end > reach:
            total += end - reach
            reach = end
    return total


def agrees_with_a_slow_reading(path, trace):
    """Counts, busy time and step spans."""
    events = events_of(path)
    device = [e for e in events if e.get("cat") in DEVICE]
    spans = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in device]
    marked = [e for e in events if e.get("cat") in HOST and MARKER.fullmatch(e["name"])]
    rounds = [e for e in events if e.get("cat") in HOST and ROUND.fullmatch(e["name"])]
    steps = sorted((ns(e["ts"]), ns(e["dur"])) for e in marked or rounds)
    ops = trace.device_ops
    if any(e.get("cat") == "mtia_ccp_events" for e in events):
        assert len(ops) > 0
    elif device:
        kernels = np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
        assert kernels.sum() == sum(e["cat"] in KERNEL for e in device)
        assert flatten(ops["start_ns"], ops.end_ns).total == union_ns(spans)
        assert ops.end_ns.max() - ops["start_ns"].min() == max(e for _, e in spans) - min(spans)[0]
    else:
        assert ops is None or len(ops) == 0
    assert trace.steps["duration_ns"].tolist() == [duration for _, duration in steps]
    starts = [start for start, _ in steps]
    assert np.diff(trace.steps["start_ns"]).tolist() == np.diff(starts).tolist()
