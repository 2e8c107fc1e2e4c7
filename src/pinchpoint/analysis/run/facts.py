"""Typed answers from what a run folder knows about its process and machine; None: not known."""

import numpy as np

from pinchpoint.trace import RunFacts, Trace

_NOTHING = RunFacts()


def run_facts(trace: Trace) -> RunFacts:
    """What the run folder knows; without one, nothing."""
    return trace.run or _NOTHING


def workers_at_once(trace: Trace) -> int:
    """How many workers a loader had at the same time."""
    return max((w.workers or 0 for w in run_facts(trace).loader_workers), default=0)


def workers_busy_ratio(trace: Trace) -> float:
    """Share of their time that all loader workers made batches; 0 without any."""
    workers = run_facts(trace).loader_workers
    return sum(w.busy_ns for w in workers) / max(sum(w.alive_ns for w in workers), 1)


def data_wait_ns(trace: Trace) -> int | None:
    """Mean wait for the batch in the steps without the profiler."""
    waits = run_facts(trace).data_wait_ns
    return int(np.mean(waits)) if waits else None


def ranks_on_device(trace: Trace) -> int:
    """Recorded processes of this run on the device of the trace; at least the traced one."""
    facts = run_facts(trace)
    return max(1, -(-(facts.processes or 1) // (facts.devices or 1)))
