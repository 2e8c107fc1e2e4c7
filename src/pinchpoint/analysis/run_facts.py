"""Typed answers from what a run folder knows about its process and machine; None: not known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.trace import Trace


def process_facts(trace: Trace) -> Mapping[str, Any]:
    """What the recorded process wrote about itself; empty without a run folder."""
    return _section(trace, "process")


def variable(trace: Trace, name: str) -> str | None:
    """An environment variable as the program itself had it, else as it was started."""
    for section in (
        _mapping(process_facts(trace).get("variables")),
        _mapping(_section(trace, "variables").get("values")),
    ):
        value = section.get(name)
        if isinstance(value, str):
            return value
    return None


def cores_allowed(trace: Trace) -> float | None:
    """Cores that the process may use: affinity, cut by the control group's quota."""
    affinity = _number(process_facts(trace).get("cores_allowed"))
    quota = _quota(_section(trace, "host").get("cgroup_cpu_max"))
    known = [cores for cores in (affinity, quota) if cores is not None]
    return min(known) if known else None


def cores_there(trace: Trace) -> int | None:
    """Cores of the machine."""
    count = _number(_section(trace, "host").get("cpus_logical"))
    return None if count is None else int(count)


def loader_workers(trace: Trace) -> Sequence[Mapping[str, Any]]:
    """One entry a worker process of a loader; empty if there were none, or nobody looked."""
    found = _environment(trace).get("loader_workers")
    return [w for w in found if isinstance(w, dict)] if isinstance(found, list) else []


def workers_at_once(trace: Trace) -> int:
    """How many workers a loader had at the same time."""
    return int(max((_number(w.get("workers")) or 0 for w in loader_workers(trace)), default=0))


def worker_sum(trace: Trace, field: str) -> float:
    """Sum of a figure over all workers."""
    return sum(_number(w.get(field)) or 0.0 for w in loader_workers(trace))


def data_wait_ns(trace: Trace) -> int | None:
    """Mean wait for the batch in the steps without the profiler."""
    if trace.run is None or not trace.run.data_wait_ns:
        return None
    return int(np.mean(trace.run.data_wait_ns))


def device_facts(trace: Trace) -> Mapping[str, Any]:
    """The environment record of the device that the process used; empty if not known."""
    devices = _section(trace, "gpu").get("devices")
    if not isinstance(devices, list):
        return {}
    uuid = _mapping(process_facts(trace).get("device")).get("uuid")
    entries = [d for d in devices if isinstance(d, dict)]
    matching = [d for d in entries if uuid is not None and d.get("uuid") == uuid]
    chosen = matching or (entries if len(entries) == 1 else [])
    return chosen[0] if chosen else {}


def ranks_on_device(trace: Trace) -> int:
    """Recorded processes of this run on the device of the trace; at least the traced one."""
    ranks = _section(trace, "metrics").get("ranks")
    world = len(ranks) if isinstance(ranks, list) else 1
    count = _section(trace, "gpu").get("count")
    devices = int(_number(count) or 1)
    return max(1, -(-world // max(devices, 1)))


def _environment(trace: Trace) -> Mapping[str, Any]:
    return {} if trace.run is None else _mapping(trace.run.environment)


def _section(trace: Trace, name: str) -> Mapping[str, Any]:
    return _mapping(_environment(trace).get(name))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _quota(text: object) -> float | None:
    """``cpu.max`` of a control group: ``200000 100000`` is two cores, ``max 100000`` none."""
    parts = str(text).split() if isinstance(text, str) else []
    if len(parts) != 2 or not all(p.isascii() and p.isdecimal() for p in parts):
        return None
    return int(parts[0]) / max(int(parts[1]), 1)
