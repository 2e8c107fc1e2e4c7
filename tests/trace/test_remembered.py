"""What is remembered of a trace lives as long as the trace does, and does not keep it alive."""

import gc
from pathlib import Path
from weakref import ref

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.profile import causal
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.trace import once_per_table, once_per_trace

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


@pytest.fixture
def without_collector():
    """What only the collector of cycles frees is not freed in time: a worker reads thousands."""
    gc.disable()
    yield
    gc.enable()


def test_an_answer_may_be_the_trace_itself(without_collector):
    asked = []

    @once_per_trace
    def question(trace):
        asked.append(1)
        return trace

    trace = TraceBuilder().trace()
    assert question(trace) is question(trace) is trace
    assert len(asked) == 1
    kept = ref(trace)
    del trace
    assert kept() is None


def test_a_trace_that_was_diagnosed_is_freed(without_collector):
    trace = load(DEMO)
    kept = ref(trace)
    assert diagnose(trace).findings
    assert causal(trace).pieces
    del trace
    assert kept() is None


def test_what_is_worked_out_of_a_table_is_its_own_and_read_only(without_collector):
    asked = []

    @once_per_table
    def ends(table):
        asked.append(1)
        return table["start_ns"] + table["duration_ns"]

    b = TraceBuilder()
    b.op("a", 10, 10)
    host = b.trace().host_ops
    assert ends(host) is ends(host)
    assert (ends(host).tolist(), len(asked)) == ([20], 1)
    with pytest.raises(ValueError, match="read-only"):
        ends(host)[0] = 0
    kept = ref(host)
    del host, b
    assert kept() is None
