import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.host.frames import copies_to_host, functions_doing, numeric_on_host
from program import Program

WRITE, CLIP = "torch/utils/tensorboard/writer.py(1): add", "numpy/core/fromnumeric.py(1): clip"


def doing(writes_us, numpy_us, own_us):
    """One function of the program with these parts, inside another one that does more."""
    p = Program()
    with p.frame("train.py(1): main"):
        with p.frame("train.py(9): log"):
            p.host(WRITE, writes_us)
            p.host(CLIP, numpy_us)
            p.busy(own_us)
        p.busy(1_000)
    trace = p.trace()
    writes = np.array([n == WRITE for n in trace.names])[trace.host_ops["name"]]
    found = functions_doing(trace, writes, numeric_on_host(trace), 0.2)
    return [trace.text(trace.host_ops, "name", i) for i in np.flatnonzero(found)]


def test_a_function_that_mostly_works_and_helps():
    assert doing(30, 40, 20) == ["train.py(9): log"]


def test_not_one_that_mostly_does_something_else():
    assert doing(30, 10, 60) == []


def test_not_one_that_mostly_helps():
    assert doing(10, 85, 5) == []


def test_nested_work_counts_once():
    p = Program()
    with p.frame("train.py(9): log"):
        with p.frame(WRITE):
            p.host(WRITE, 40)
        p.busy(60)
    trace = p.trace()
    writes = np.array([n == WRITE for n in trace.names])[trace.host_ops["name"]]
    assert not functions_doing(trace, writes, writes, 0.2).any()


def test_numeric_work_and_copies_are_told_by_name():
    p = Program()
    p.host(CLIP, 1)
    p.host("<built-in method dot of numpy.ndarray object at 0x7f>", 1)
    p.host("<built-in method cpu of Tensor object at 0x7f>", 1)
    p.host("train.py(1): main", 1)
    trace = p.trace()
    assert numeric_on_host(trace).tolist() == [True, True, False, False]
    assert copies_to_host(trace).tolist() == [False, False, True, False]


def test_nothing_is_recorded():
    trace = TraceBuilder().trace(host_ops=None)
    nothing = np.zeros(0, bool)
    assert not len(functions_doing(trace, nothing, nothing, 0.2))
    assert not len(numeric_on_host(trace))
    assert not len(copies_to_host(trace))
