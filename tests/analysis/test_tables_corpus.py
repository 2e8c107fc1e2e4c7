"""The tables on real recordings: against torch's own numbers, and against what was planted."""

import json
import os
from functools import cache
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.kernel_precision import (
    MatrixUnits,
    Precision,
    alignment_of_kernel_name,
    precision_of_device_ops,
)
from pinchpoint.analysis.host.frames import PythonFrame
from pinchpoint.analysis.tables.call_tree import SourceTable, source_table
from pinchpoint.analysis.tables.kernels import kernels
from pinchpoint.analysis.tables.launch_statistics import launch_statistics
from pinchpoint.analysis.tables.modules import Modules, modules
from pinchpoint.analysis.tables.operators import operators
from pinchpoint.analysis.tables.transfers import transfers
from pinchpoint.trace import DeviceKind, HostKind

CORPUS = Path(os.environ.get("PINCHPOINT_CORPUS", "/nonexistent"))
RECORDINGS = sorted(p for f in ("own", "public") for p in (CORPUS / f).glob("traces/*.json.gz"))
FACTS = json.loads((CORPUS / "own/facts.json").read_text()) if RECORDINGS else {}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not RECORDINGS, reason="PINCHPOINT_CORPUS has no traces"),
]


@cache
def load(name):
    return pp.load(CORPUS / f"{name}.json.gz")


def labelled(case):
    return load(f"labelled/traces/{case}")


def share(values, weights):
    return float(weights[values].sum() / weights.sum())


@pytest.mark.parametrize("name", [n for n in FACTS if "key_averages" in FACTS[n]])
def test_operators_agree_with_torch(name):
    """Known differences: see the module's docstring. Torch also counts the kernel twice that was
    launched while it asked for a buffer, so device totals are held against self times here."""
    ours = {r.name: r for r in operators(load(f"own/traces/{name}")).rows}
    compared = 0
    for theirs in FACTS[name]["key_averages"]:
        row = ours.get(theirs["name"])
        if row is None or row.kind != HostKind.OPERATOR or not theirs["cpu_us"]:
            continue  # a runtime call, a kernel or a range on the device
        compared += 1
        assert row.calls == theirs["calls"]
        assert row.host_total_ns == pytest.approx(theirs["cpu_us"] * 1e3, rel=1e-4, abs=200)
        assert row.host_self_ns == pytest.approx(theirs["self_cpu_us"] * 1e3, rel=0.01, abs=500)
        assert row.device_self_ns == pytest.approx(
            theirs["self_device_us"] * 1e3, rel=1e-3, abs=100
        )
        assert row.device_total_ns <= theirs["device_us"] * 1e3 + 100
    assert compared > 0


def test_a_resnet_training_step():
    """1 x 1 convolutions run as CUTLASS products; by their operator they are convolutions."""
    trace = load("own/traces/resnet50_train")
    ops, category = trace.device_ops, category_of_device_ops(trace)
    kernel = ops["kind"] == DeviceKind.KERNEL
    shares = {
        c: share(category[kernel] == c, ops["duration_ns"][kernel])
        for c in (Category.CONVOLUTION, Category.NORMALISATION, Category.GEMM)
    }
    assert shares[Category.CONVOLUTION] == pytest.approx(0.1902 + 0.1714 - 0.0023, abs=2e-4)
    assert shares[Category.NORMALISATION] == pytest.approx(0.3182, abs=1e-4)
    assert shares[Category.GEMM] == pytest.approx(0.0023, abs=1e-4)


def test_the_modules_of_a_resnet_cover_its_device_time():
    tree = modules(load("own/traces/resnet50_train"))
    assert isinstance(tree, Modules)
    roots = [r for r in tree.rows if r.depth == 0]
    assert [r.path for r in roots] == ["ResNet_0", "CrossEntropyLoss_0"]
    covered = sum(r.device_forward_ns + r.device_backward_ns for r in roots)
    assert covered / (covered + tree.outside_device_ns) > 0.99
    selves = sum(r.device_forward_self_ns + r.device_backward_self_ns for r in tree.rows)
    assert selves == covered


def test_the_function_with_the_item_call_bears_its_wait():
    trace = load("own/traces/item_sync")
    table = source_table(trace)
    assert isinstance(table, SourceTable)
    assert table.rows[0].frame == PythonFrame("record_gpu.py", 65, "forward")
    first = launch_statistics(trace).syncs[0]
    assert (first.operator, first.calls) == ("aten::_local_scalar_dense", 100)
    assert first.frame == PythonFrame("record_gpu.py", 65, "forward")


@pytest.mark.parametrize(
    ("case", "precision", "units"),
    [
        ("c15_fp64_by_accident.slow", Precision.FP64, MatrixUnits.YES),
        ("c15_fp64_by_accident.fixed", Precision.TF32, MatrixUnits.YES),
        ("c34_no_tensor_cores.slow", Precision.FP32, MatrixUnits.NO),
        ("c34_no_tensor_cores.fixed", Precision.TF32, MatrixUnits.YES),
        ("c36_misaligned_dims.slow", Precision.BF16, MatrixUnits.YES),
        ("c36_misaligned_dims.fixed", Precision.BF16, MatrixUnits.YES),
    ],
)
def test_products_compute_in_the_planted_format(case, precision, units):
    trace = labelled(case)
    formats = precision_of_device_ops(trace)
    products = category_of_device_ops(trace) == Category.GEMM
    lasted = trace.device_ops["duration_ns"][products]
    assert share(formats.precision[products] == precision, lasted) > 0.99
    assert share(formats.matrix_units[products] == units, lasted) > 0.99


def test_misaligned_sizes_show_in_the_kernels_alignment():
    alignments = {}
    for variant in ("slow", "fixed"):
        rows = kernels(labelled(f"c36_misaligned_dims.{variant}")).rows
        products = [r for r in rows if r.category is Category.GEMM]
        alignments[variant] = alignment_of_kernel_name(products[0].name)
    assert alignments == {"slow": 1, "fixed": None}


def test_pageable_copies_are_slow_and_block_the_host_and_pinned_ones_are_neither():
    (slow,), (fixed,) = (transfers(labelled(f"c12_pageable_h2d.{v}")) for v in ("slow", "fixed"))
    assert slow.blocking == slow.count == fixed.count
    assert slow.host_blocked_ns > 0.9 * slow.total_ns
    assert fixed.blocking == fixed.host_blocked_ns == 0
    assert fixed.bytes_per_s > 5 * slow.bytes_per_s
