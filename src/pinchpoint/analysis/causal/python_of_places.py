"""Of a program that computes on a CPU: Python that is work of its own, and not the calls of it.

There an operator is the work itself. A function that calls products, and has a little Python
between them, is where the program computes what it is for; stretches between two operators grow
with each turn that other programs have on the cores. What such a function takes is mostly that of
its operators, and says nothing about its Python.
"""

import numpy as np

from pinchpoint.analysis.causal.computing import FRAMEWORK, HostComputing, rows_of_host
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.host.source_lines import functions_of
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, NameIds, distinct
from pinchpoint.trace.names import rows_named


def mostly_python(trace: Trace, found: HostComputing) -> HostComputing:
    """The stretches that are no operators, of functions that take longer by themselves than the
    operators which they call; and work that names itself, such as saving and logging.

    Functions of the program or of a library: the framework's own, and built-in ones, are of the
    function that calls them. All calls of one name count together.
    """
    host = trace.host_ops
    assert host is not None
    named = np.isin(activity(trace)[found.row], _NAMED)
    of_host = np.minimum(found.row, len(host) - 1)
    operator = (found.row < len(host)) & (host["kind"][of_host] == HostKind.OPERATOR)
    around = np.append(nearest(parents(host), _functions(trace)), len(host))
    name = np.append(host["name"].astype(np.int64), len(trace.names))[around]
    in_operators = np.bincount(name[:-1], _own_ns(trace), len(trace.names) + 1)
    mine = name[rows_of_host(trace, found.row)]
    took = np.where(operator, 0, found.took_ns)
    in_python = np.bincount(mine, np.maximum(took, 0), len(trace.names) + 1)
    in_operators[-1] = 0  # outside of functions nothing is known of what calls what
    stays = ~operator & (in_python > in_operators)[mine]
    at = np.flatnonzero(stays | named)
    return HostComputing(
        found.start_ns[at], found.end_ns[at], found.row[at], found.took_ns[at], found.steps
    )


def python_ratio(trace: Trace, found: HostComputing, at: Ints) -> float:
    """Of what passes in the program's functions that these stretches are of, operators that they
    call included, the part of the stretches: 0 to 1.

    Looks at a run know a function by its file and name alone, so that two methods of one name are
    one function here, too.
    """
    rows = np.flatnonzero(_own_ns(trace) > 0)
    names, own_ns = functions_of(trace, rows), _own_ns(trace)[rows]
    asked = set(_spelt(trace, functions_of(trace, found.row[at])).values())
    alike = [name for name, function in _spelt(trace, names).items() if function in asked]
    in_operators = per_step(trace, int(own_ns[np.isin(names, alike)].sum()))
    in_python = float(found.took_ns[at].sum()) / max(found.steps, 1)
    return in_python / max(in_python + in_operators, 1.0)


def _spelt(trace: Trace, names: NameIds) -> dict[int, tuple[str, str]]:
    """File and function of each of these names."""
    known = {n: frame_of(trace.names[n]) for n in distinct(names).tolist() if n != NO_ROW}
    return {n: (frame.file, frame.function) for n, frame in known.items() if frame is not None}


_NAMED = (GapKind.GC, GapKind.CHECKPOINT, GapKind.LOGGING, GapKind.COMPILE, GapKind.CODE_LOAD)


def _functions(trace: Trace) -> Mask:
    assert trace.host_ops is not None
    own = ~rows_named(
        trace, trace.host_ops, lambda name: name.startswith("<") or bool(FRAMEWORK.search(name))
    )
    mask: Mask = own & (trace.host_ops["kind"] == HostKind.PYTHON)
    return mask


def _own_ns(trace: Trace) -> Ints:
    """Of each row of ``host_ops`` in the judged steps, its own time as an operator."""
    assert trace.host_ops is not None
    own = np.where(rows_in_steps(trace, trace.host_ops), cpu_operators(trace).own_ns, 0)
    return own.astype(np.int64)
