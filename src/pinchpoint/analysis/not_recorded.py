"""The answer of a question that a recording cannot answer, and recordings that answer none."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.steps import steps
from pinchpoint.trace import HostKind, Trace


@dataclass(frozen=True)
class NotRecorded:
    """Why there is no answer, and what to record so that there is one."""

    why: str
    record: str


FEWEST_OPERATIONS = 10  # of the device; a single layer of a network has more
_OF_THE_PROGRAM = (HostKind.OPERATOR, HostKind.PYTHON, HostKind.ANNOTATION)


def says_too_little(trace: Trace) -> bool:
    """Whether timed rows are there, and so few of the program that no share of them tells."""
    host, ops = trace.host_ops, trace.device_ops
    rows = sum(len(table) for table in (host, ops, trace.api_calls) if table is not None)
    if (
        not rows
        or steps(trace).how != "none"
        or (ops is not None and len(ops) >= FEWEST_OPERATIONS)
    ):
        return False
    return host is None or not np.isin(host["kind"], _OF_THE_PROGRAM).any()
