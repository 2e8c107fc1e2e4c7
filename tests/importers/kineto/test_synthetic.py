"""The benchmark's made-up trace is a healthy one, so what is measured is ordinary work."""

import runpy
from pathlib import Path

from kineto_documents import SCANNERS, differences
from pinchpoint.importers.kineto import read

GENERATOR = Path(__file__).parents[3] / "benchmarks" / "synthetic_trace.py"


def test_the_made_up_trace(tmp_path):
    path = tmp_path / "synthetic.json.gz"
    written = runpy.run_path(str(GENERATOR))["write"](path, 500_000)
    assert 300_000 < written < 800_000
    traces = [read(path, scanner=scanner) for scanner in SCANNERS]
    assert all(differences(trace, traces[0]) == [] for trace in traces)
    trace = traces[0]
    assert not trace.source.truncated
    assert len(trace.health) == 0
    assert len(trace.steps) >= 1
    assert trace.device_ops.known("api_call").all()
    assert trace.api_calls.known("host_op").all()
