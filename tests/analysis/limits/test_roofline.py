from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from analysis.launches import COMPUTE, DRAM, MEMORY, launch, profiled
from builders import TraceBuilder
from pinchpoint.analysis.limits.roofline import launch_roofline, operator_roofline, roofline
from pinchpoint.analysis.limits.roofs import roofs, with_ceilings
from pinchpoint.hardware.ceilings import Ceilings, Measurement
from pinchpoint.trace import Device

DATA = Path(__file__).parents[2] / "data/ncu"
N = 4096
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ADD = "void at::native::vectorized_elementwise_kernel<4>(x)"


def two_operators(gemm_ns=200_000, add_ns=40_000):
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 50, shapes=f"[[{N},{N}],[{N},{N}]]",
               dtypes='["c10::BFloat16","c10::BFloat16"]')  # fmt: skip
    builder.launch(10, 5, GEMM, runs_at=100, for_ns=gemm_ns)
    builder.op("aten::add", 60, 50, shapes=f"[[{N},{N}],[{N},{N}]]", dtypes='["float","float"]')
    builder.launch(70, 5, ADD, runs_at=300_000, for_ns=add_ns)
    return builder


def test_operators_under_their_roofs():
    found = operator_roofline(two_operators().trace())
    gemm, add = found.points
    assert gemm.flops == 2 * N**3
    assert gemm.intensity == pytest.approx(1365.3, abs=0.1)
    assert gemm.balance == pytest.approx(295.3, abs=0.1)
    assert gemm.bound == "compute"
    assert gemm.flop_per_s == pytest.approx(687e12, rel=1e-3)
    assert gemm.roof_ratio == pytest.approx(687.2 / 989.4, rel=1e-3)
    assert gemm.won_ns == pytest.approx(200_000 * (1 - 687.2 / 989.4), rel=1e-3)
    assert add.bound == "memory"
    assert add.intensity == pytest.approx(1 / 12)
    assert add.bytes_per_s == pytest.approx(3 * N * N * 4 / 40e-6)
    assert not add.waits
    assert found.not_placed_ratio == 0


def test_an_operator_without_a_cost_is_placed_by_what_its_kernels_need():
    builder = TraceBuilder()
    builder.op("aten::_index_put_impl_", 0, 50, shapes="[[8,4]]", dtypes='["float"]')
    builder.launch(10, 5, "sort", runs_at=100, for_ns=10_000)
    builder.launch(20, 5, "put", runs_at=20_000, for_ns=30_000)
    trace = builder.trace()
    (point,) = operator_roofline(trace, np.array([1e6, 3.6e6])).points
    assert (point.bytes, point.bound, point.flops) == (4.6e6, "memory", None)
    assert point.bytes_per_s == pytest.approx(4.6e6 / 40e-6)
    (unknown,) = operator_roofline(trace, np.array([1e6, np.nan])).points
    assert (unknown.bytes, unknown.bound) == (None, None)


def test_far_below_both_roofs():
    gemm, *_ = operator_roofline(two_operators(gemm_ns=2_000_000).trace()).points
    assert gemm.waits


def test_measured_ceilings_are_the_roofs_where_there_are_some():
    ceilings = Ceilings(
        device="NVIDIA H100 80GB HBM3",
        measured_at="2026-11-28T10:00:00+00:00",
        fingerprint={},
        measurements=(
            Measurement(what="gemm", dtype="bf16", mode="burst", value=750e12, unit="FLOP/s"),
            Measurement(what="copy", value=3.0e12, unit="bytes/s"),
        ),
    )
    trace = with_ceilings(two_operators().trace(), ceilings)
    known = roofs(trace)
    assert known.compute["bf16"].measured
    assert not known.compute["tf32"].measured
    assert known.memory.per_s == 3.0e12
    gemm, _ = operator_roofline(trace).points
    assert gemm.balance == pytest.approx(250)
    other = with_ceilings(two_operators().trace(), pp_other(ceilings))
    assert not roofs(other).memory.measured


def pp_other(ceilings):
    import msgspec

    return msgspec.structs.replace(ceilings, device="NVIDIA A100-SXM4-40GB")


def test_an_unknown_device_has_no_bound():
    builder = two_operators()
    builder.devices = [Device(0, "Accelerator X")]
    found = operator_roofline(builder.trace())
    assert found.roofs is None
    assert {p.bound for p in found.points} == {None}
    assert found.not_placed_ratio == 1


def test_a_product_faster_than_float32_must_be_tf32():
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 50, shapes=f"[[{N},{N}],[{N},{N}]]", dtypes='["float","float"]')
    builder.launch(10, 5, "mystery_gemm", runs_at=100, for_ns=400_000)
    (point,) = operator_roofline(builder.trace()).points
    assert point.dtype == "tf32"
    builder.rows["device_ops"][0]["duration_ns"] = 4_000_000
    (point,) = operator_roofline(builder.trace()).points
    assert point.dtype == "fp32"


def test_launches_of_known_character():
    found = {p.number: p for p in roofline(pp.load(DATA / "kernels.raw.base.csv.gz")).points}
    assert found[0].flops == 2 * N**3
    assert found[0].bound == "compute"
    assert found[0].dtype == "bf16"
    assert found[0].roof_ratio == pytest.approx(0.903, abs=2e-3)  # ncu says 90.27 % too
    assert found[1].bound == "compute"
    for elementwise_or_reduction in (2, 3, 4, 5, 9):
        assert found[elementwise_or_reduction].bound == "memory"
    assert found[2].roof_ratio == pytest.approx(0.879, abs=2e-3)
    assert found[7].waits
    assert not found[4].waits  # softmax: its instructions keep the cores busy
    assert [level.name for level in found[0].levels] == ["device memory", "L2"]
    assert found[0].levels[1].intensity == pytest.approx(160.5, abs=0.1)


def test_without_flops_the_busier_half_decides():
    found = launch_roofline(pp.load(DATA / "kernels.details.csv.gz")).points
    bounds = {p.number: p.bound for p in found}
    assert [bounds[i] for i in (0, 1, 2, 3, 8, 9)] == [
        "compute",
        "compute",
        "memory",
        "memory",
        "memory",
        "memory",
    ]


def test_a_balanced_launch_is_undecided():
    trace = profiled(launch(metrics={COMPUTE: 50.0, MEMORY: 55.0, DRAM: 20.0}))
    (point,) = launch_roofline(trace).points
    assert point.bound is None
    assert launch_roofline(trace).not_placed_ratio == 1
