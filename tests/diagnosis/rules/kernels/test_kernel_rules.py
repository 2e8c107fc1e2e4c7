"""All rules about profiled launches; the conditions are tested with the issues they report."""

from pathlib import Path

import pytest

import pinchpoint as pp
from analysis.launches import CLOCK, COMPUTE, DRAM, MEMORY, TIME, add_launches, launch, profiled
from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.registry import ask, rules

DATA = Path(__file__).parents[3] / "data/ncu"
WAVES = "launch__waves_per_multiprocessor"
KERNEL_RULES = sorted(id_ for id_ in rules() if id_.startswith("kernel-"))


@pytest.mark.parametrize("id_", KERNEL_RULES)
def test_without_counters_nothing_is_judged(id_):
    outcome = ask(rules()[id_], TraceBuilder().trace())
    assert outcome.answer == "not checked"
    assert "ncu" in outcome.record


@pytest.mark.parametrize("id_", KERNEL_RULES)
def test_a_launch_without_fault_is_clear(id_):
    trace = profiled(launch(metrics={"launch__grid_size": 1320, "launch__sm_count": 132}))
    assert ask(rules()[id_], trace).answer == "clear"


@pytest.mark.parametrize(
    ("id_", "metrics"),
    [
        ("kernel-fp64", {"sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed": 40.0}),
        ("kernel-spills", {"derived__local_spilling_requests_pct": 12.0}),
        ("kernel-tail-effect", {"launch__waves_per_multiprocessor": 1.1}),
        ("kernel-l2-misses", {MEMORY: 85.0, DRAM: 85.0, "lts__t_sector_hit_rate.pct": 5.0}),
    ],
)
def test_what_the_known_kernels_lack_is_found(id_, metrics):
    launched = launch("my_gemm_kernel", metrics={COMPUTE: 20.0, MEMORY: 20.0} | metrics)
    assert ask(rules()[id_], profiled(launched)).answer == "found"


def test_what_the_recording_of_known_kernels_shows():
    trace = pp.load(DATA / "kernels.raw.csv.gz")
    found = {r.id: r.finding for r in diagnose(trace).found}
    assert set(found) >= {
        "kernel-uncoalesced", "kernel-memory-bound", "kernel-compute-bound", "kernel-tensor-idle",
        "kernel-too-small", "kernel-latency-bound", "kernel-low-occupancy", "kernel-low-clock",
    }  # fmt: skip
    scattered = found["kernel-uncoalesced"]
    assert scattered.summary == "strided_copy accesses memory uncoalesced"
    assert scattered.cost_ns_per_step == pytest.approx(1_976_512, rel=1e-3)
    least, most = scattered.saving_ns_per_step
    assert least == 0
    assert most == pytest.approx(1_976_512 * 7 / 9 * 0.833, rel=0.01)
    assert "and 4 more" in found["kernel-memory-bound"].summary


def test_what_nvidia_says_is_evidence():
    trace = pp.load(DATA / "kernels.details.csv.gz")
    outcome = ask(rules()["kernel-uncoalesced"], trace)
    words = {e.what: e.value for e in outcome.findings[0].evidence}
    assert "58720256 excessive sectors" in words["Nsight Compute's rule UncoalescedGlobalAccess"]


def test_with_a_timeline_the_gain_is_replayed():
    builder = TraceBuilder()
    for i in range(4):  # the host runs ahead, the device is the limit
        at = i * 60_000
        builder.step(i, at, 50_000)
        builder.op("aten::copy_", at + 10, 100)
        builder.launch(at + 20, 10, "strided_copy", runs_at=50_000 + i * 910_000, for_ns=900_000)
    metrics = {
        COMPUTE: 3.0, MEMORY: 90.0, "memory_l2_theoretical_sectors_global": 900.0,
        "memory_l2_theoretical_sectors_global_ideal": 450.0, CLOCK: 1.6e9,
    }  # fmt: skip
    facts = add_launches(builder, launch("strided_copy", us=900, metrics=metrics))
    trace = builder.trace(**facts)
    (finding,) = ask(rules()["kernel-uncoalesced"], trace).findings
    assert finding.cost_ns_per_step == pytest.approx(900_000, rel=0.01)
    (change,) = finding.changes
    assert change.factor == pytest.approx(1 - 0.5 * 0.9)
    (best, *_) = diagnose(trace).found
    assert best.id == "kernel-uncoalesced"
    assert best.saving_ns == pytest.approx(405_000, rel=0.1)


def test_without_durations_no_cost_is_told():
    launched = launch("my_gemm_kernel", metrics={COMPUTE: 20.0, MEMORY: 20.0, WAVES: 1.1})
    del launched["metrics"][TIME]
    finding = ask(rules()["kernel-tail-effect"], profiled(launched)).findings[0]
    assert finding.consequence == "of unknown size: no duration was collected"
