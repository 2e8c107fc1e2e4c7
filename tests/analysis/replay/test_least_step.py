"""Fixes whose remaining work can be added up in one's head; microseconds."""

from dataclasses import replace

import numpy as np
import pytest

from pinchpoint.analysis.limits.roofs import with_ceilings
from pinchpoint.analysis.replay import (
    DropDeviceOps,
    GraphLaunches,
    MergeDeviceOps,
    MoveToOwnStream,
    RemoveHostTime,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.least_step import at_power_limit_ns, device_ns
from pinchpoint.analysis.replay.merging import KERNEL_START_NS
from pinchpoint.analysis.replay.predict import after_saving, what_if
from pinchpoint.hardware import find_spec
from pinchpoint.hardware.ceilings import Ceilings, Measurement
from pinchpoint.trace import Device, MemoryKind, RunFacts
from program import Program

STEPS = 6
H100 = Device(0, "NVIDIA H100 80GB HBM3")
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
SQUARE = 8192
PRODUCT = {
    "shapes": [[SQUARE, SQUARE], [SQUARE, SQUARE]],
    "dtypes": ["c10::BFloat16", "c10::BFloat16"],
}


def rows(trace, table, name):
    """Positions of the rows with a name."""
    found = getattr(trace, table)
    return np.flatnonzero([trace.names[n] == name for n in found["name"]])


def training(*, device=None, product_us=1_000, tail_us=2_000, **more):
    """A product, an elementwise kernel of half its time, a wait, and host work of its own."""
    p = Program()
    if device is not None:
        p.builder.devices[:] = [device]
    for _ in p.steps(STEPS):
        with p.row("aten::mm", **more):
            p.kernel(GEMM, product_us)
        p.kernel("elementwise", product_us / 2)
        p.sync()
        p.host("train.py(7): log", tail_us)
    return p.trace()


def test_nothing_on_the_host_makes_a_step_shorter_than_its_device_work():
    trace = training()
    found = what_if(trace, [RemoveHostTime(np.array([0]), np.array([10**12]))])
    assert found.bound_ns == 1_500_000
    assert found.range_ns[0] >= found.bound_ns
    assert found.step_ns >= 1_500_000
    assert found.step_ns == pytest.approx(1_500_000, rel=0.02)
    assert found.raw_ns == pytest.approx(found.step_ns, rel=0.02)


def test_streams_that_take_turns_do_not_run_at_once_for_being_launched_earlier():
    p = Program()
    for _ in p.steps(STEPS):
        for i in range(20):
            p.busy(90)
            p.kernel("cell", 20, stream=7 + i % 2)
    trace = p.trace()
    found = what_if(trace, [GraphLaunches(rows(trace, "device_ops", "cell"))])
    assert found.step_ns == pytest.approx(20 * 20_000, rel=0.02)
    assert found.range_ns[0] >= 0.97 * 20 * 20_000


def test_a_step_that_was_timed_is_not_shorter_than_the_device_works():
    """Recording made a wait of 200 µs one of 500; the device works 1,500 µs of a step anyhow."""
    p = Program()
    for _ in p.steps(STEPS):
        p.kernel("work", 1_500)
        p.sync()
        p.host("train.py(7): log", 500)
    timed = RunFacts(unprofiled_step_ns=(1_700_000,) * 20)
    trace = replace(p.trace(), run=timed)
    found = what_if(trace, [RemoveHostTime(np.array([0]), np.array([10**12]))])
    assert found.base_ns == 1_700_000
    assert found.step_ns == pytest.approx(1_500_000, rel=0.01)
    assert found.step_ns >= 1_500_000


def test_a_product_that_nothing_else_computes_is_not_dropped():
    trace = training(tail_us=0)
    found = what_if(trace, [DropDeviceOps(rows(trace, "device_ops", GEMM))])
    assert found.raw_ns < 600_000  # the replay believes the rule
    assert found.step_ns >= 1_500_000
    assert found.bound_ns == 0.97 * 1_500_000  # other clocks


def test_a_product_computed_twice_may_go_once():
    p = Program()
    for _ in p.steps(STEPS):
        for _ in range(2):
            with p.row("aten::mm", **PRODUCT):
                p.kernel(GEMM, 1_000)
    trace = p.trace()
    found = what_if(trace, [DropDeviceOps(rows(trace, "device_ops", GEMM)[1::2])])
    assert found.raw_ns == found.step_ns == pytest.approx(1_000_000, rel=0.02)


def test_other_kernels_of_attention_are_no_products():
    p = Program()
    for _ in p.steps(STEPS):
        with p.row("aten::scaled_dot_product_attention"):
            p.kernel(GEMM, 1_000)
            p.kernel("void at::native::vectorized_elementwise_kernel<4>", 1_000)
    trace = p.trace()
    mask = rows(trace, "device_ops", "void at::native::vectorized_elementwise_kernel<4>")
    assert what_if(trace, [DropDeviceOps(mask)]).step_ns == pytest.approx(1_000_000, rel=0.02)


def test_another_format_is_held_against_the_roof():
    flops, spec = 2 * SQUARE**3, find_spec(H100.name)
    roof_ns = flops / spec.peak_flop_per_s("bf16") * 1e9
    trace = training(device=H100, product_us=2 * roof_ns / 1e3, tail_us=0, **PRODUCT)
    product = rows(trace, "device_ops", GEMM)
    for factor, left in ((0.8, 1.6), (0.25, 1.0)):
        found = what_if(trace, [ScaleDeviceOps(product, factor)])
        assert found.step_ns == pytest.approx((1 + left) * roof_ns, rel=0.02)
    less = what_if(trace, [ScaleDeviceOps(product, 0.25, flops_left=0.5, bytes_left=0.5)])
    assert less.raw_ns == less.step_ns == pytest.approx(1.5 * roof_ns, rel=0.02)


def warm_ns(*, of_products=1.0):
    """A product at the rate that an H100 keeps up."""
    rate = find_spec(H100.name).sustained_flop_per_s["bf16"]
    return of_products * 2 * SQUARE**3 / rate * 1e9


def cool(**more):
    """Products that take a tenth less than that, and leave the device to rest."""
    return training(device=H100, product_us=0.9 * warm_ns() / 1e3, tail_us=5_000, **more)


def test_products_without_a_pause_are_as_slow_as_the_power_limit_makes_them():
    p = Program()
    p.builder.devices[:] = [H100]
    for _ in p.steps(STEPS):
        with p.row("aten::mm", **PRODUCT):
            p.kernel(GEMM, 0.9 * warm_ns() / 1e3)
        p.sync()
        p.host("train.py(7): log", 5_000)
    trace = p.trace()
    found = what_if(trace, [RemoveHostTime(np.array([0]), np.array([10**12]))])
    assert found.step_ns == found.raw_ns == pytest.approx(warm_ns(), rel=0.001)
    assert found.bound_ns == pytest.approx(0.9 * warm_ns(), rel=0.001)
    assert found.range_ns[0] == found.bound_ns  # zeros take less power
    saved = after_saving(trace, (5_000_000, 6_000_000))
    assert saved.step_ns == pytest.approx(warm_ns(), rel=0.001)
    assert at_power_limit_ns(trace) == pytest.approx(warm_ns(), rel=0.001)


def test_a_device_that_rests_for_other_kernels_keeps_its_clock():
    trace = cool(**PRODUCT)  # half as long again in an elementwise kernel
    found = what_if(trace, [RemoveHostTime(np.array([0]), np.array([10**12]))])
    assert found.step_ns == pytest.approx(1.5 * 0.9 * warm_ns(), rel=0.01)


def test_what_is_not_multiplied_any_more_takes_no_power():
    trace = cool(**PRODUCT)
    product = rows(trace, "device_ops", GEMM)
    half = ScaleDeviceOps(product, 0.5, flops_left=0.5)
    assert at_power_limit_ns(trace, [half]) == pytest.approx(warm_ns(of_products=0.5), rel=0.001)
    faster = ScaleDeviceOps(product, 0.5)
    assert at_power_limit_ns(trace, [faster]) == pytest.approx(warm_ns(), rel=0.001)
    assert at_power_limit_ns(trace, [DropDeviceOps(product)]) == 0


def test_without_shapes_or_a_measured_rate_nothing_is_said_of_power():
    assert at_power_limit_ns(cool()) == 0
    other = training(device=Device(0, "NVIDIA A10"), product_us=10 * warm_ns() / 1e3, **PRODUCT)
    assert at_power_limit_ns(other) == 0
    wrong = training(device=H100, product_us=0.5 * warm_ns() / 1e3, **PRODUCT)
    assert at_power_limit_ns(wrong) == 0  # more than the peak


def test_the_rate_that_this_machine_was_measured_to_keep_up_counts_first():
    measured = Ceilings(
        device=H100.name,
        measured_at="2026-01-01",
        fingerprint={},
        measurements=(
            Measurement(what="gemm", value=5e14, unit="FLOP/s", dtype="bf16", mode="sustained"),
        ),
    )
    trace = with_ceilings(cool(**PRODUCT), measured)
    assert at_power_limit_ns(trace) == pytest.approx(2 * SQUARE**3 / 5e14 * 1e9, rel=0.001)


def test_host_work_before_a_dropped_copy_stays():
    p = Program()
    for _ in p.steps(STEPS):
        p.host("data.py(3): decode", 3_000)
        with p.row("aten::copy_"):
            p.copy(1 << 20, 50, MemoryKind.PINNED, MemoryKind.DEVICE)
        p.kernel("work", 100)
    trace = p.trace()
    copies = np.flatnonzero(trace.device_ops.filled("bytes", 0) > 0)
    found = what_if(trace, [DropDeviceOps(copies)])
    assert found.raw_ns == found.step_ns == pytest.approx(2_900_000, rel=0.05)


def test_time_that_two_findings_blame_is_saved_once():
    trace = training()
    log = ScaleHostSpans(rows(trace, "host_ops", "train.py(7): log"), 0.5)
    once, twice = what_if(trace, [log]), what_if(trace, [log, log])
    assert once.saving_ns == pytest.approx(1_000_000, rel=0.02)
    assert twice.saving_ns == pytest.approx(1_500_000, rel=0.02)
    span = trace.host_ops["start_ns"][log.host_ops], trace.host_ops.end_ns[log.host_ops]
    all_of_it = what_if(trace, [log, RemoveHostTime(*span), RemoveHostTime(*span)])
    assert all_of_it.saving_ns == pytest.approx(2_000_000, rel=0.02)


def test_launches_of_work_that_stays_take_host_time():
    p = Program()
    for _ in p.steps(STEPS):
        with p.frame("model.py(2): forward"):
            for _ in range(100):
                p.busy(20)
                p.kernel("tiny", 1)
    trace = p.trace()
    forward = rows(trace, "host_ops", "model.py(2): forward")
    found = what_if(trace, [ScaleHostSpans(forward, 0.0)])
    assert found.step_ns == pytest.approx(100 * 2_000, rel=0.01)
    assert found.raw_ns == pytest.approx(found.step_ns, abs=1)


def served(*, blocks, us=100, shapes=None, device=H100):
    """Four requests a step, one kernel each."""
    p = Program()
    p.builder.devices[:] = [device]
    for _ in p.steps(STEPS):
        for _ in range(4):
            with p.row("aten::mm", **({} if shapes is None else shapes)):
                p.kernel(GEMM, us, grid=f"[{blocks}, 1, 1]")
    trace = p.trace()
    found = rows(trace, "device_ops", GEMM)
    return what_if(trace, [MergeDeviceOps(found, np.arange(len(found)) // 4)])


DEVICE = Device(0, H100.name, multiprocessors=132)


@pytest.mark.parametrize(
    ("blocks", "shapes", "merged_ns"),
    [
        pytest.param(132, None, 400_000, id="one fills the device"),
        pytest.param(13, None, 100_000, id="four fit beside each other"),
        pytest.param(66, None, 200_000, id="two fit"),
        pytest.param(
            1000,
            {"shapes": [[1, 4096], [4096, 4096]], "dtypes": ["c10::BFloat16"] * 2},
            100_000,
            id="all read the same weights",
        ),
        pytest.param(1000, PRODUCT, 400_000, id="computing adds up"),
    ],
)
def test_a_batch_takes_what_its_work_takes(blocks, shapes, merged_ns):
    found = served(blocks=blocks, shapes=shapes, device=DEVICE)
    assert found.step_ns == pytest.approx(merged_ns, abs=5 * KERNEL_START_NS)
    assert found.raw_ns == found.step_ns


def test_pieces_of_a_copy_take_the_link_as_long_as_their_bytes_do():
    p = Program()
    for _ in p.steps(STEPS):
        for us in (10, 20, 20):
            p.copy(1_000_000, us, MemoryKind.PINNED, MemoryKind.DEVICE)
    trace = p.trace()
    copies = np.arange(len(trace.device_ops))
    found = what_if(trace, [MergeDeviceOps(copies, copies // 3)])
    assert found.step_ns == pytest.approx(30_000, rel=0.1)  # three times the best rate


def test_what_moves_to_another_stream_adds_nothing_to_the_first():
    p = Program()
    for _ in p.steps(STEPS):
        p.kernel("work", 300)
        p.copy(1_000_000, 200, MemoryKind.PINNED, MemoryKind.DEVICE)
    trace = p.trace()
    copies = np.flatnonzero(trace.device_ops.filled("bytes", 0) > 0)
    assert device_ns(trace, ()) == pytest.approx(500_000, rel=0.01)
    assert device_ns(trace, (MoveToOwnStream(copies),)) == pytest.approx(300_000, rel=0.01)


def test_a_saving_from_elsewhere_leaves_the_device_its_work():
    trace = training(tail_us=500)
    found = after_saving(trace, (100_000, 1_900_000))
    assert (found.step_ns, found.bound_ns) == (1_500_000, 1_500_000)
    assert found.range_ns[0] == 1_500_000
    assert found.raw_ns < found.step_ns
    freed = after_saving(trace, (100_000, 1_900_000), leaves_ns=0)
    assert freed.step_ns == freed.raw_ns == found.raw_ns


def test_a_step_of_nothing_at_the_end_does_not_swallow_the_device_work_before_it():
    p = Program()
    for step in p.steps(STEPS + 1):
        if step < STEPS:
            p.host("data.py(3): batch", 2_000)
            p.kernel("work", 1_000)
            p.sync()
    trace = p.trace()
    batches = ScaleHostSpans(rows(trace, "host_ops", "data.py(3): batch"), 0.0)
    found = what_if(trace, [batches], every_step=True)
    assert found.raw_ns >= found.bound_ns > 0.8 * 1_000_000


def test_a_host_that_is_ahead_hides_most_of_what_replay_leaves_of_it():
    """Of 3 ms in which the device waits, half a millisecond is left: a third of that shows."""
    p = Program()
    for _ in p.steps(STEPS):
        p.kernel("work", 1_500)
        p.sync()
        p.host("train.py(7): log", 2_500)
        p.host("train.py(8): next", 500)
    trace = p.trace()
    log = [ScaleHostSpans(rows(trace, "host_ops", "train.py(7): log"), 0.0)]
    replayed, likely = what_if(trace, log), what_if(trace, log, runs_ahead=True)
    assert replayed.step_ns == pytest.approx(2_000_000, rel=0.02)
    left_ns = replayed.step_ns - 1_500_000
    assert likely.step_ns == pytest.approx(1_500_000 + left_ns / 3, rel=0.01)
    assert likely.raw_ns == replayed.raw_ns
    assert likely.range_ns[0] <= replayed.range_ns[0]
    assert likely.range_ns[1] >= replayed.step_ns


def test_a_device_that_works_for_little_of_the_step_does_not_set_its_pace():
    p = Program()
    for _ in p.steps(STEPS):
        p.kernel("work", 500)
        p.sync()
        p.host("train.py(7): log", 4_000)
        p.host("train.py(8): next", 1_500)
    trace = p.trace()
    log = [ScaleHostSpans(rows(trace, "host_ops", "train.py(7): log"), 0.0)]
    assert what_if(trace, log, runs_ahead=True) == what_if(trace, log)
