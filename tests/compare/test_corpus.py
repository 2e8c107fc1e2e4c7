"""Slow against fixed of labelled recordings: the planted cause is the largest change."""

import os
from pathlib import Path

import pytest

from pinchpoint.compare.profiles import compare_profiles
from pinchpoint.diagnosis.difference import explained
from pinchpoint.importers import load

CORPUS = os.environ.get("PINCHPOINT_CORPUS")

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="PINCHPOINT_CORPUS is not set"),
]

# Case, the part of the largest change, and what it must name (operator or kernel of the slow side).
PLANTED = [
    ("c01_dataloader_starved", "idle-data", ""),
    ("c02_slow_transform", "idle-data", ""),
    ("c04_small_file_io", "idle-data", ""),
    ("c07_collate_slow", "idle-data", ""),
    ("c12_pageable_h2d", "exposed-copy-h2d", "Memcpy HtoD"),
    ("c14_small_h2d_copies", "idle-dispatch", "aten::to"),
    ("c15_fp64_by_accident", "gemm", "884gemm"),
    ("c16_sync_in_loop", "idle-after-sync", "aten::item"),
    ("c18_explicit_synchronize", "idle-after-sync", ""),
    ("c20_empty_cache_in_loop", "idle-malloc", ""),
    ("c21_python_gc", "idle-gc", ""),
    ("c26_checkpoint_stall", "idle-checkpoint", ""),
    ("c27_launch_bound", "idle-dispatch", "aten::linear"),
    ("c33_cudnn_autotune_churn", "idle-dispatch", "aten::conv2d"),
    ("c34_no_tensor_cores", "gemm", "sgemm"),
    ("c36_misaligned_dims", "gemm", "s1688gemm"),
    ("c38_non_contiguous", "elementwise", "aten::add"),
    ("c41_dtype_thrash", "data-movement", "aten::copy_"),
    ("c55_comm_not_overlapped", "exposed-communication", "AllReduce"),
    ("c58_nccl_slow_transport", "exposed-communication", "AllReduce"),
    ("d01_decoy_item_in_starved_loop", "idle-data", ""),
    ("d03_decoy_copies_in_fp32_gemm", "gemm", "sgemm"),
    ("t01_two_h2d_and_fp32", "exposed-copy-h2d", "Memcpy HtoD"),  # one of its two
]


def _trace(case, variant):
    one, rank0 = (
        Path(CORPUS) / "labelled/traces" / f"{case}.{variant}{rank}.json.gz"
        for rank in ("", ".rank0")
    )
    return load(one if one.exists() else rank0)


@pytest.mark.parametrize(("case", "part", "named"), PLANTED)
def test_the_planted_cause_is_the_largest_change(case, part, named):
    found = compare_profiles(_trace(case, "fixed"), _trace(case, "slow"))
    first = found.rows[0]
    assert first.change_ns > 0
    assert first.part == part
    assert named in " ".join((first.what, *first.b_kernels))
    assert sum(r.change_ns for r in found.rows) == found.change_ns
    assert sum(p.change_ns for p in found.parts) == found.change_ns


# The cause of pairs in which the largest change alone does not say it.
CAUSES = [
    ("c08_gil_contention", "gil-contention"),
    ("c10_cpu_limited", "cpu-limited"),
    ("c17_implicit_sync_indexing", "implicit-sync-indexing"),
    ("c25_heavy_logging", "heavy-logging"),
    ("c44_graph_retained", "graph-retained"),
    ("c45_eval_with_grad", "eval-with-grad"),
    ("c61_gpu_contention", "device-slower"),
    ("c55_comm_not_overlapped", "communication-exposed"),
    ("c56_straggler_rank", "collectives-longer"),
    ("c67_bench_no_sync", "bench-no-sync"),
]


@pytest.mark.parametrize(("case", "cause"), CAUSES)
def test_the_planted_cause_leads(case, cause):
    found = explained(_trace(case, "fixed"), _trace(case, "slow"))
    assert found.causes[0].id == cause


def test_two_vendors_are_matched_by_operator():
    traces = Path(CORPUS) / "public/traces"
    a = load(traces / "h100_qwen_inference.json.gz")
    b = load(traces / "mi300x_qwen_inference.json.gz")
    found = compare_profiles(a, b)
    assert any("different devices" in w for w in found.warnings)
    assert found.matched.matched > 0.9 * min(found.matched.a, found.matched.b)
    assert found.matched.kernel_changed > 50
    assert sum(r.change_ns for r in found.rows) == found.change_ns
