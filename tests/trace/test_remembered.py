"""What is remembered of a trace lives as long as the trace does, and does not keep it alive."""

import gc
from pathlib import Path
from weakref import ref

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.profile import causal
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.trace import once_per_trace

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
