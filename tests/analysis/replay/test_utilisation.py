import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.limits.roofs import with_ceilings
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.utilisation import not_modelled_ratio, throughput, utilisation
from pinchpoint.analysis.work.operator_work import operator_work
from pinchpoint.hardware.ceilings import Ceilings, Measurement
from pinchpoint.trace import Device, RunFacts
from program import Program

BF16 = '["c10::BFloat16","c10::BFloat16"]'
N = 4096
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
MS = 1_000_000


def with_steps(*, steps=3, step_ns=1 * MS, builder=None):
    """Steps that each multiply two matrices of 4096 in bf16, and add."""
    builder = builder or TraceBuilder()
    for i in range(steps):
        at = i * step_ns
        builder.step(i, at, step_ns)
        builder.op("aten::mm", at + 10, 100, shapes=f"[[{N},{N}],[{N},{N}]]", dtypes=BF16)
        builder.launch(at + 20, 10, GEMM, runs_at=at + 100_000, for_ns=300_000)
        builder.op("aten::add", at + 200, 100, shapes=f"[[{N},{N}],[{N},{N}],[]]",
                   dtypes='["c10::BFloat16","c10::BFloat16","Scalar"]')  # fmt: skip
        builder.launch(at + 210, 10, "void at::native::vectorized_elementwise_kernel<4>(x)",
                       runs_at=at + 400_000, for_ns=100_000)  # fmt: skip
    return builder


def test_the_work_of_each_call():
    work = operator_work(with_steps(steps=1).trace())
    assert work.flops.tolist() == [2 * N**3, N * N]
    assert work.bytes.tolist() == [3 * N * N * 2, 3 * N * N * 2]
    assert work.device_ns.tolist() == [300_000, 100_000]
    assert work.matrix.tolist() == [True, False]


def test_mfu_is_the_products_over_the_step():
    trace = with_steps().trace()
    found = utilisation(trace)
    assert found.step_ns == corrected_step_ns(trace)
    assert found.step_how == "estimated without the profiler"
    assert found.flops_per_step == 2 * N**3
    assert found.vector_flops_per_step == N * N
    assert found.dtype == "bf16"
    expected = 2 * N**3 / (found.step_ns * 1e-9) / 989.4e12
    assert found.mfu == found.hfu == pytest.approx(expected)
    assert found.mfu == pytest.approx(0.139 * MS / found.step_ns, abs=0.001)
    assert "H100" in found.peak.source
    assert found.measured_peak is None
    assert found.not_modelled_ratio == 0.0


def test_measured_ceilings_are_named_beside_the_data_sheet():
    ceilings = Ceilings(
        device="NVIDIA H100 80GB HBM3",
        measured_at="2026-11-28T10:00:00+00:00",
        fingerprint={},
        measurements=(
            Measurement(what="gemm", dtype="bf16", mode="burst", value=750e12, unit="FLOP/s"),
        ),
    )
    found = utilisation(with_ceilings(with_steps().trace(), ceilings))
    assert found.measured_peak.per_s == 750e12
    assert "measured on this machine, 2026-11-28" in found.measured_peak.source
    assert found.mfu_of_measured == pytest.approx(found.mfu * 989.4 / 750)


def test_steps_timed_without_the_profiler_are_preferred():
    trace = with_steps().trace(run=RunFacts(unprofiled_step_ns=(800_000, 700_000, 750_000)))
    found = utilisation(trace)
    assert found.step_ns == 750_000
    assert "without the profiler" in found.step_how


def test_without_shapes_nothing_is_modelled():
    builder = TraceBuilder()
    builder.op("aten::mm", 10, 100)
    builder.launch(20, 10, GEMM, runs_at=100, for_ns=300)
    trace = builder.trace()
    assert not_modelled_ratio(trace) == 1.0
    assert utilisation(trace).mfu is None


def test_only_kernels_of_the_steps_count_as_not_modelled():
    """What was launched before the recording began has no operator."""
    builder = TraceBuilder()
    builder.launch(0, 5, GEMM, runs_at=10, for_ns=400_000)
    for i in range(1, 4):
        builder.step(i, i * MS, MS)
        builder.op("aten::mm", i * MS + 10, 100, shapes=f"[[{N},{N}],[{N},{N}]]", dtypes=BF16)
        builder.launch(i * MS + 20, 10, GEMM, runs_at=i * MS + 100_000, for_ns=300_000)
    assert not_modelled_ratio(builder.trace()) == 0.0


def test_kernels_whose_bytes_are_known_are_modelled():
    builder = TraceBuilder()
    builder.op("aten::mm", 10, 100)
    builder.launch(20, 10, GEMM, runs_at=100, for_ns=300)
    builder.launch(30, 10, "add", runs_at=500, for_ns=100)
    assert not_modelled_ratio(builder.trace(), np.array([np.nan, 64.0])) == 0.75


def test_an_unknown_device_has_flops_and_no_mfu():
    builder = with_steps()
    builder.devices = [Device(0, "Accelerator X")]
    found = utilisation(builder.trace())
    assert found.flops_per_step == 2 * N**3
    assert found.peak is None
    assert found.mfu is None


def test_a_device_that_only_the_driver_describes():
    builder = with_steps()
    builder.devices = [Device(0, "NVIDIA H999", None, 132, (9, 0), "nvidia", clock_hz=1.83e9)]
    found = utilisation(builder.trace())
    assert found.peak.per_s == pytest.approx(989.4e12, rel=1e-3)
    assert "computed" in found.peak.source


def test_two_devices_have_two_peaks():
    one = utilisation(with_steps().trace())
    builder = with_steps()
    for row in builder.rows["device_ops"]:
        if row["name"] != GEMM:
            row["device"] = 1
    builder.devices.append(builder.devices[0])
    two = utilisation(builder.trace())
    assert two.devices == 2
    assert two.mfu == pytest.approx(one.mfu / 2)


def test_tokens_are_the_lookups_in_the_largest_embedding():
    builder = with_steps()
    for i in range(3):
        for table, offset in ((50257, 300), (1024, 320)):
            builder.op("aten::embedding", i * MS + offset, 10, shapes=f"[[{table},768],[8,512],[]]")
    trace = builder.trace()
    found = throughput(trace)
    assert (found.per_step, found.unit) == (8 * 512, "tokens")
    assert "50257" in found.basis
    used = utilisation(trace)
    assert used.items_per_s == pytest.approx(4096 / (used.step_ns * 1e-9))


def test_samples_are_the_batch_of_the_first_convolution():
    builder = with_steps()
    for i in range(3):
        builder.op("aten::conv2d", i * MS + 300, 10, shapes="[[32,64,56,56],[64,64,3,3]]")
        builder.op("aten::conv2d", i * MS + 320, 10, shapes="[[32,3,224,224],[64,3,7,7]]")
    found = throughput(builder.trace())
    assert (found.per_step, found.unit) == (32, "samples")


def test_types_are_taken_from_the_kernel_where_the_recording_lacks_them():
    builder = TraceBuilder()
    builder.op("aten::mm", 10, 100, shapes="[[64,64],[64,64]]")
    builder.launch(20, 10, GEMM, runs_at=100, for_ns=300)
    assert operator_work(builder.trace()).bytes.tolist() == [3 * 64 * 64 * 2]
    builder = TraceBuilder()
    builder.op("aten::mm", 10, 100, shapes="[[64,64],[64,64]]")
    builder.launch(20, 10, "mystery", runs_at=100, for_ns=300)
    work = operator_work(builder.trace())
    assert (work.flops.tolist(), work.bytes.tolist()) == ([2 * 64**3], [-1])


def test_sizes_that_no_memory_holds_are_not_believed():
    builder = TraceBuilder()
    huge = 10**12
    builder.op("aten::mm", 10, 100, shapes=f"[[{huge},{huge}],[{huge},{huge}]]", dtypes=BF16)
    builder.launch(20, 10, GEMM, runs_at=100, for_ns=300)
    assert operator_work(builder.trace()).flops.tolist() == [-1]


@pytest.mark.parametrize(
    ("products", "unit"),
    [
        pytest.param(["[[4096,768],[768,768]]"], "tokens", id="they work on the tokens"),
        pytest.param(
            ["[[4096,768],[768,768]]"] + ["[[512,2048],[2048,768]]"] * 8,
            "tokens",
            id="a quarter of it, beside experts",
        ),
        pytest.param(
            ["[[4096,64],[64,64]]"] + ["[[9216,3072],[3072,3072]]"] * 9,
            "samples",
            id="they work on an image, beside a text encoder",
        ),
    ],
)
def test_tokens_are_told_where_the_work_is_on_tokens(products, unit):
    builder = TraceBuilder()
    for i in range(3):
        builder.step(i, i * MS, MS - 1000)
        builder.op("aten::embedding", i * MS + 10, 10, shapes="[[50257,768],[8,512],[]]")
        builder.op("aten::conv2d", i * MS + 30, 10, shapes="[[2,3,224,224],[64,3,7,7]]")
        for at, shapes in enumerate(products):
            builder.op("aten::mm", i * MS + 100 + 20 * at, 10, shapes=shapes)
    assert throughput(builder.trace()).unit == unit


def test_fused_attention_makes_a_product_again_in_its_backward_pass():
    p = Program()
    heads = [[4, 8, 1024, 64]] * 4
    given = {"shapes": heads, "dtypes": ["c10::BFloat16"] * 4}
    for _ in p.steps(4):
        with p.row("aten::_scaled_dot_product_efficient_attention", **given):
            p.kernel("fmha_cutlassF_bf16_aligned", 200)
        with p.row("aten::_scaled_dot_product_efficient_attention_backward", **given):
            p.kernel("fmha_cutlassB_bf16_aligned", 500)
    found = utilisation(p.trace())
    product = 2 * 4 * 8 * 1024 * 1024 * 64
    assert found.flops_per_step == 7 * product
    assert found.attention_again_flops_per_step == product
    assert found.mfu == pytest.approx(found.hfu * 6 / 7)
