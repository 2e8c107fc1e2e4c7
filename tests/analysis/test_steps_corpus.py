"""Steps and accounting on real recordings: known figures."""

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pinchpoint.analysis.device.activity import device_activity
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.importers import load

CORPUS = Path(os.environ.get("PINCHPOINT_CORPUS", "/nonexistent"))
TRUTH = CORPUS / "labelled/truth.jsonl"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not TRUTH.exists(), reason="PINCHPOINT_CORPUS is not set"),
]


@cache
def typical_ms(path):
    """The typical step of a recording."""
    return steps(load(path)).typical_ns / 1e6


@pytest.mark.parametrize(
    ("name", "idle_percent"),
    [
        ("public/traces/v100_graphs_overlap", 3.66),
        ("public/traces/mi210_gpu_only", 10.64),
        ("public/traces/a100_graphs", 64.40),
        ("public/traces/vllm_decode_graph", 0.24),
    ],
)
def test_device_idle_time_is_that_of_the_union_of_all_operations(name, idle_percent):
    found = device_activity(load(CORPUS / f"{name}.json.gz")).idle_ratio
    assert 100 * found == pytest.approx(idle_percent, abs=0.01)


def test_the_typical_step_is_the_unprofiled_one_within_three_percent_at_the_median():
    errors = []
    for row in map(json.loads, TRUTH.read_text("utf-8").splitlines()):
        unprofiled = row["step_ms_unprofiled"]
        quiet = abs(unprofiled[0] - unprofiled[1]) / min(unprofiled) < 0.05
        if row["trace"] and quiet:
            found = typical_ms(CORPUS / "labelled" / row["trace"])
            errors.append(abs(found / min(unprofiled) - 1))
    assert len(errors) > 50
    assert np.median(errors) <= 0.03


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        ("c01_dataloader_starved.slow", GapKind.DATA, 0.85),
        ("c16_sync_in_loop.slow", GapKind.AFTER_SYNC, 0.25),
        ("c21_python_gc.slow", GapKind.GC, 0.9),
        ("c26_checkpoint_stall.slow", GapKind.CHECKPOINT, 0.7),
        ("c27_launch_bound.slow", GapKind.DISPATCH, 0.4),
        ("c59_wrong_backend.slow.rank0", GapKind.HOST_COLLECTIVE, 0.7),
    ],
)
def test_the_largest_cause_of_idle_time_is_the_one_that_was_planted(name, kind, share):
    trace = load(CORPUS / f"labelled/traces/{name}.json.gz")
    told = breakdown(trace)
    of_kind = {k: told.of_part(k.id) for k in GapKind}
    assert max(of_kind, key=lambda k: of_kind[k]) == kind
    assert of_kind[kind] >= share * told.typical_ns


@pytest.mark.parametrize(
    ("name", "basis", "count"),
    [
        ("own/traces/decode_cudagraph", "decode_step", 8),
        ("own/traces/cupy_mix", "cupy_step", 5),
        ("own/traces/item_sync", "launches repeat", 10),
        ("public/traces/rtx2080_linear", "Optimizer", 40),
        ("public/traces/mi300x_ddp_resnet18", "Optimizer.step#SGD.step", 5),
        ("public/traces/b200_eager", "execute_context_", 1),  # rounds of vLLM
        ("public/traces/vllm_piecewise_graph", "execute_", 1),
    ],
)
def test_steps_without_markers(name, basis, count):
    found = steps(load(CORPUS / f"{name}.json.gz"))
    assert basis in found.basis
    assert len(found) == count
