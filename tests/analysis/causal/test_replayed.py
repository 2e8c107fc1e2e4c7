"""Limits of kernels of graph replays, by the operators that were captured."""

import numpy as np
import pytest

from kineto_documents import call, document, kernel, op, written
from pinchpoint.analysis.causal.limits import MEMORY_REACHED, needed_limits
from pinchpoint.analysis.causal.pieces import Cut, pieces
from pinchpoint.analysis.host.graph_replays import with_captures
from pinchpoint.hardware import find_spec
from pinchpoint.importers import load

NAME = "NVIDIA H100 80GB HBM3"
RATE = find_spec(NAME).memory_bytes_per_s * MEMORY_REACHED
N = 4096
FRAME = {"deviceProperties": [{"id": 0, "name": NAME, "numSms": 132}]}
SUM = {"Input Dims": [[N, N], [N, N], []], "Input type": ["float", "float", "Scalar"]}
NORM = {"Input Dims": [[2 * N, N]], "Input type": ["float"]}


def captured():
    """A sum, and an operator of two kernels; nothing runs."""
    return [
        call("cudaStreamBeginCapture", 100, 1, 1),
        op("aten::add", 110, 8, **SUM),
        call("cudaLaunchKernel", 112, 2, 2),
        op("aten::relu", 120, 15, **NORM),
        call("cudaLaunchKernel", 122, 2, 3),
        call("cudaLaunchKernel", 128, 2, 4),
        call("cudaStreamEndCapture", 190, 1, 5),
    ]


def replayed(at, number):
    """Kernels of 500, 300 and 100 µs."""
    return [
        call("cudaGraphLaunch", at, 5, number),
        kernel("one", at + 20, 500, number),
        kernel("two", at + 520, 300, number),
        kernel("three", at + 820, 100, number),
    ]


def loaded(folder, *events):
    return load(written(folder, document(*events, **FRAME)))


def check(trace):
    limit = needed_limits(trace).limit_ns
    added, rectified = 3 * 4 * N * N / RATE * 1e9, 2 * 4 * 2 * N * N / RATE * 1e9
    each = [added, rectified * 0.75, min(rectified * 0.25, 100_000)]
    assert limit.tolist() == pytest.approx(each * 2)
    names = [trace.names[at] for at in pieces(trace, Cut.OPERATOR).device.tolist()]
    assert names == ["aten::add", "aten::relu", "aten::relu"] * 2


def test_each_replay_has_the_limits_of_what_was_captured(tmp_path):
    check(loaded(tmp_path, *captured(), *replayed(1_000, 50), *replayed(3_000, 60)))


def test_what_another_recording_captured_counts_as_well(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    capture = loaded(tmp_path / "one", *captured(), *replayed(1_000, 50))
    served = loaded(
        tmp_path / "two", op("serve", 990, 3), *replayed(1_000, 50), *replayed(3_000, 60)
    )
    assert np.isnan(needed_limits(served).limit_ns).all()
    joined, count = with_captures(served, capture)
    assert count == 6
    check(joined)


def test_a_replay_of_another_graph_has_none(tmp_path):
    trace = loaded(tmp_path, *captured(), *replayed(1_000, 50)[:-1])
    assert np.isnan(needed_limits(trace).limit_ns).all()
