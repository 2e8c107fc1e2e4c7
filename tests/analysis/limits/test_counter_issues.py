from pathlib import Path

import pytest

import pinchpoint as pp
from analysis.launches import (
    CLOCK,
    COMPUTE,
    DRAM,
    ISSUE,
    LATENCY,
    MEMORY,
    launch,
    profiled,
    stall,
)
from pinchpoint.analysis.limits.counter_issues import examined_launches
from pinchpoint.analysis.limits.counter_marks import marks

DATA = Path(__file__).parents[2] / "data/ncu"


def issues(**metrics):
    more = {k: metrics.pop(k) for k in ("grid", "block", "rules", "name", "us") if k in metrics}
    (examined,) = examined_launches(profiled(launch(metrics=metrics.pop("m"), **more)))
    return {i.id: i for i in examined.issues}


BUSY = {COMPUTE: 90.0, MEMORY: 50.0, "launch__sm_count": 132, "launch__grid_size": 1320}


def test_kernels_of_known_character():
    seen = [
        {i.id for i in e.issues} for e in examined_launches(pp.load(DATA / "kernels.raw.csv.gz"))
    ]
    gemm, simt_gemm, scale, add, _softmax, norm, flash, tiny, strided, total = seen
    assert "kernel-compute-bound" in gemm
    assert {"kernel-compute-bound", "kernel-tensor-idle", "kernel-bank-conflicts"} <= simt_gemm
    for memory_bound in (scale, add, norm, strided, total):
        assert "kernel-memory-bound" in memory_bound
    assert {"kernel-latency-bound", "kernel-low-occupancy"} <= flash
    assert "kernel-too-small" in tiny
    assert "kernel-uncoalesced" in strided
    assert not any("kernel-uncoalesced" in s for s in seen if s is not strided)
    assert "kernel-low-clock" in gemm  # the tensor cores draw the most power


def test_the_details_page_tells_the_main_things_too():
    seen = [
        {i.id for i in e.issues}
        for e in examined_launches(pp.load(DATA / "kernels.details.csv.gz"))
    ]
    assert "kernel-compute-bound" in seen[0]
    assert "kernel-memory-bound" in seen[2] & seen[9]
    assert "kernel-too-small" in seen[7]
    assert "kernel-uncoalesced" in seen[8]


def test_a_product_with_few_warps_is_fine_while_it_is_busy():
    occupancy = {
        "sm__warps_active.avg.pct_of_peak_sustained_active": 14.6,
        "sm__maximum_warps_per_active_cycle_pct": 18.75,
        ISSUE: 0.12,
    }
    assert "kernel-low-occupancy" not in issues(m=BUSY | occupancy)
    limits = {"launch__occupancy_limit_registers": 1, "launch__occupancy_limit_shared_mem": 3}
    waits = issues(m=BUSY | {COMPUTE: 30.0, MEMORY: 20.0} | occupancy | limits)
    assert "limited by registers" in waits["kernel-low-occupancy"].text


def test_too_small_and_latency_bound_exclude_each_other():
    idle = {COMPUTE: 5.0, MEMORY: 5.0, "launch__sm_count": 132}
    small = issues(m=idle | {"launch__grid_size": 33})
    assert small["kernel-too-small"].won_ratio == 0.75
    assert "kernel-latency-bound" not in small
    assert "kernel-latency-bound" in issues(m=idle | {"launch__grid_size": 132})


@pytest.mark.parametrize(
    ("waves", "found"),
    [(1.6, True), (1.0, False), (1.95, False), (3.5, True), (9.5, False), (0.5, False)],
)
def test_tail(waves, found):
    assert (
        "kernel-tail-effect" in issues(m=BUSY | {"launch__waves_per_multiprocessor": waves})
    ) == found


def test_stalls_need_idle_schedulers():
    waits = {
        LATENCY: 10.0,
        stall("barrier"): 4.0,
        stall("selected"): 1.0,
        stall("not_selected"): 5.0,
    }
    idle = {COMPUTE: 40.0, MEMORY: 30.0}
    found = issues(m=BUSY | idle | waits | {ISSUE: 0.3})
    assert found["kernel-warp-stalls"].unit == "ratio:barrier"
    assert "kernel-warp-stalls" not in issues(m=BUSY | idle | waits | {ISSUE: 0.9})
    assert "kernel-warp-stalls" not in issues(m=BUSY | waits | {ISSUE: 0.3})


def test_spills():
    assert "kernel-spills" in issues(m=BUSY | {"derived__local_spilling_requests_pct": 12.0})
    assert "kernel-spills" not in issues(m=BUSY | {"derived__local_spilling_requests_pct": 1.0})
    assert "kernel-spills" in issues(m=BUSY | {"sass__inst_executed_register_spilling": 40.0})


def test_a_stream_may_miss_in_l2_and_a_product_may_not():
    misses = {COMPUTE: 20.0, MEMORY: 85.0, DRAM: 85.0, "lts__t_sector_hit_rate.pct": 5.0}
    assert "kernel-l2-misses" not in issues(m=BUSY | misses, name="reduce_kernel")
    assert "kernel-l2-misses" in issues(m=BUSY | misses, name="my_gemm_kernel")


def test_double_precision():
    busy = "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed"
    assert "kernel-fp64" in issues(m=BUSY | {busy: 40.0})
    assert "kernel-fp64" not in issues(m=BUSY | {busy: 10.0})


def test_clocks_are_compared_within_a_report():
    trace = profiled(
        launch("slow", metrics={CLOCK: 1.3e9}),
        launch("fast", metrics={CLOCK: 1.6e9}),
        launch("short", us=3, metrics={CLOCK: 1.0e9}),
    )
    found = [{i.id for i in e.issues} for e in examined_launches(trace)]
    assert found == [{"kernel-low-clock"}, set(), set()]


def test_the_word_of_nvidias_rule_where_metrics_are_missing():
    rule = {"rule": "UncoalescedGlobalAccess", "kind": "OPT", "text": "…", "speedup_percent": 70.0}
    found = issues(m=BUSY, rules=(rule,))
    assert found["kernel-uncoalesced"].won_ratio == 0.7
    assert "kernel-uncoalesced" not in issues(m=BUSY, rules=(rule | {"kind": "INF"},))


def test_nothing_is_said_of_nothing():
    (examined,) = examined_launches(profiled(launch()))
    assert examined.issues == ()
    assert {m.mark for m in marks(examined)} == {None}


def test_marks():
    trace = pp.load(DATA / "kernels.raw.base.csv.gz")
    gemm, *_, total = examined_launches(trace)
    found = {m.metric: m.mark for m in marks(gemm)}
    assert found["SM throughput"] == "good"
    assert found["memory throughput"] is None  # compute-bound: no matter
    assert found["achieved occupancy"] == "poor"
    found = {m.metric: m.mark for m in marks(total)}
    assert found["memory throughput"] == "good"
    assert found["memory stalls"] == "poor"
    assert found["L2 hit rate"] == "poor"


def test_a_float32_product_would_win_what_the_tensor_cores_are_faster():
    """On an H100 by its data sheet: 0.8 · 494.7 / 66.9 TFLOP/s; 83 % of the time."""
    launches = examined_launches(pp.load(DATA / "kernels.raw.base.csv.gz"))
    (idle,) = [i for i in launches[1].issues if i.id == "kernel-tensor-idle"]
    assert idle.won_ratio == pytest.approx(1 - 66.9 / (0.8 * 494.7), abs=1e-3)
