"""Every recording of the corpus with known truth: peaks, categories, first finding."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from pinchpoint.analysis.memory.history import histories
from pinchpoint.analysis.memory.owners.owners import MemoryCategory

CORPUS = Path(os.environ.get("PINCHPOINT_CORPUS", "/nonexistent"))
FILES = sorted((CORPUS / "own" / "memory").glob("*.truth.json"))

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FILES, reason="PINCHPOINT_CORPUS is not set"),
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.removesuffix(".truth.json"))
def test_peaks_and_categories(path):
    truth = json.loads(path.read_text())
    trace = pp.load(path.with_name(path.name.replace(".truth.json", ".pickle.gz")))
    history = histories(trace)[0]
    for curve in ("requested", "allocated", "active", "reserved"):
        assert history.replay.peak(curve).bytes == truth[f"{curve}_peak"], curve
    times = history.replay.time_us
    for mark in truth["marks"]:
        if mark["time_us"] < times[0]:
            continue
        event = int(np.searchsorted(times, mark["time_us"], "right")) - 1
        held = history.bytes_of(event)
        assert held[MemoryCategory.PARAMETER] == mark["params"], mark["label"]
        assert held[MemoryCategory.GRADIENT] == mark["grads"], mark["label"]
        assert held[MemoryCategory.OPTIMIZER_STATE] == mark["optim"], mark["label"]
