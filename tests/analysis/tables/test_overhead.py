import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.tables.operators import operators, overhead_ns
from pinchpoint.trace import HostKind


def recorded(at, takes):
    """Operators [0, 100) over [10, 50), a launch [20, 30) inside; another thread's [40, 90)."""
    b = TraceBuilder()
    b.op("outer", 0, 100)
    b.op("inner", 10, 40)
    b.launch(20, 10, "kernel", 200, 5)
    b.op("elsewhere", 40, 50, thread=b.thread("other"))
    b.op("Activity Buffer Request", at, takes, kind=HostKind.OVERHEAD, thread=b.thread("profiler"))
    return b.trace()


def charged(trace):
    held_up = overhead_ns(trace, trace.host_ops["kind"] == HostKind.OPERATOR)
    names = [trace.text(trace.host_ops, "name", row) for row in np.flatnonzero(held_up)]
    return dict(zip(names, held_up[held_up > 0].tolist(), strict=True))


def test_the_operator_that_began_last_was_interrupted():
    assert charged(recorded(32, 5)) == {"inner": 5}
    assert charged(recorded(5, 3)) == {"outer": 3}
    assert charged(recorded(45, 30)) == {"elsewhere": 30}
    assert charged(recorded(92, 5)) == {"outer": 5}


def test_what_lies_in_a_runtime_call_or_outside_any_operator_is_left_out():
    assert charged(recorded(22, 5)) == {}
    assert charged(recorded(95, 50)) == {}
    assert charged(recorded(500, 50)) == {}


def test_it_is_nobodys_self_time():
    rows = {row.name: row.host_self_ns for row in operators(recorded(32, 5)).rows}
    assert rows == {"outer": 60, "inner": 25, "elsewhere": 50}
