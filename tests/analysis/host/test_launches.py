"""Which thread runs the steps, where nothing marks them."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.trace import Thread


@pytest.mark.parametrize(
    ("python_thread", "main"),
    [
        pytest.param(0, 0, id="XLA computes on a thread of its own"),
        pytest.param(1, 1, id="the thread that computes runs Python"),
        pytest.param(None, 1, id="no Python was recorded"),
    ],
)
def test_the_thread_that_runs_python_leads(python_thread, main):
    b = TraceBuilder(threads=[Thread("1", "1", "python"), Thread("1", "2", "pool")])
    b.devices = []
    if python_thread is not None:
        b.python("train.py(3): step", 0, 50, thread=python_thread)
    b.op("dot", 60, 400, thread=1)
    assert main_thread(b.trace()) == main
