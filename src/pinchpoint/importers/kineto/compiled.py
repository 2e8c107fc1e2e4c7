"""The compiled operations of JAX's and TensorFlow's Chrome traces, from the events' arguments.

Nothing but these arguments tells them, and torch's traces, which have none, must not pay for
reading them: they are read in a second pass, where the processes are named as XLA names them.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers._compiled import SIGN, compiled_row
from pinchpoint.importers._rows import table_of_rows
from pinchpoint.importers.kineto.arguments import read_arguments
from pinchpoint.importers.kineto.rare import Rare
from pinchpoint.importers.kineto.scanner import ScannerName
from pinchpoint.trace import HostKind, Names, Table, Trace, table

_HOST_PROCESS = "/host:CPU"


def written_by_xla(rare: Rare) -> bool:
    """Whether the processes have the names of XLA's planes."""
    return any(name == _HOST_PROCESS for name in rare.process_names.values())


def with_compiled_ops(trace: Trace, scanner: ScannerName) -> Trace:
    """The trace with its ``compiled_ops``; those on the host become operators."""
    sides = [s for s in (trace.device_ops, trace.host_ops) if s is not None and len(s)]
    events = [side["event"] for side in sides]
    if not events:
        return trace
    said = read_arguments(trace, np.concatenate(events).tolist(), scanner)
    names, rows, first = Names(trace.names), [], 0
    host = trace.host_ops
    for side in sides:
        mine = said[first : first + len(side)]
        first += len(side)
        has = np.array([SIGN in arguments for arguments in mine])
        if side is host:
            host = _as_operators(host, has)
        for row in np.flatnonzero(has).tolist():
            device = None if side is trace.host_ops else int(side["device"][row])
            start, lasted = int(side["start_ns"][row]), int(side["duration_ns"][row])
            rows.append(compiled_row(mine[row], start, lasted, device))
    found = [row for row in rows if row is not None]
    if not found:
        return trace
    compiled = table_of_rows("compiled_ops", found, names)
    return replace(trace, host_ops=host, compiled_ops=compiled, names=names.freeze())


def _as_operators(host: Table, which: NDArray[np.bool_]) -> Table:
    kind = np.where(which, np.uint8(HostKind.OPERATOR), host["kind"])
    return table("host_ops", {**host.columns, "kind": kind}, dict(host.missing))
