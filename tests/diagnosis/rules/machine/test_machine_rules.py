"""Rules that judge the machine: telemetry and run facts with known answers."""

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import RemoveHostTime, ScaleDeviceOps
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.host import cpu_limited, thread_oversubscription
from pinchpoint.diagnosis.rules.machine import (
    clock_throttled,
    gpu_contention,
    gpu_hardware_fault,
    numa_remote,
    pcie_degraded,
)
from pinchpoint.diagnosis.rules.synchronising import launch_blocking_env
from pinchpoint.trace import DeviceSetting, LoaderWorker, MemoryKind, NodeShares, RunFacts

MS = 1_000_000


def sampled(builder, looks=10, device=0, **values):
    """``looks`` looks at a device (None: the host) that all show these values."""
    for i in range(looks):
        for name, value in values.items():
            builder.add("counters", time_ns=i * MS, name=name, value=float(value), device=device)
    return builder


def training(kernel="ampere_sgemm_128x64_nn", kernel_ms=8, steps=6):
    """Steps of 10 ms with one kernel each."""
    builder = TraceBuilder()
    for i in range(steps):
        builder.step(i, i * 10 * MS, 10 * MS)
        builder.op("aten::mm", i * 10 * MS, MS)
        builder.launch(i * 10 * MS, 5_000, kernel, i * 10 * MS + 10_000, kernel_ms * MS)
    return builder


def with_copies(builder, steps=6):
    for i in range(steps):
        at = i * 10 * MS + 8 * MS
        pinned, device = MemoryKind.PINNED, MemoryKind.DEVICE
        builder.copy(
            at, 5_000, "Memcpy HtoD", at + 9_000, MS, size=10**7, source=pinned, target=device
        )
    return builder


BUSY = {"any_kernel_ratio": 1.0, "sm_clock_max_mhz": 1980}


def test_heat_that_lowers_the_clock_is_found_and_priced():
    builder = sampled(training(), **BUSY, event_reasons=0x40, sm_clock_mhz=990, temperature_c=91)
    (finding,) = clock_throttled.check(builder.trace())
    assert "slowed by hardware for heat 100 % of the time it works" in finding.summary
    assert "990 of 1980 MHz" in finding.summary
    (change,) = finding.changes
    assert isinstance(change, ScaleDeviceOps)
    assert change.factor == 0.5
    assert finding.cost_ns_per_step == 4 * MS  # half of 8 ms of matrix products


def test_a_power_cap_at_the_full_limit_is_how_the_device_works():
    builder = sampled(
        training(), **BUSY, event_reasons=4, sm_clock_mhz=1305, power_w=692, power_limit_w=700
    )
    facts = RunFacts(device=DeviceSetting(power_limit_default_w=700.0))
    assert list(clock_throttled.check(builder.trace(run=facts))) == []


def test_a_lowered_power_limit_is_found():
    builder = sampled(training(), **BUSY, event_reasons=4, sm_clock_mhz=1000, power_limit_w=400)
    facts = RunFacts(device=DeviceSetting(power_limit_default_w=700.0))
    (finding,) = clock_throttled.check(builder.trace(run=facts))
    assert "power-capped" in finding.summary
    assert "-pl" in finding.fix


def test_the_low_clock_of_a_resting_device_is_normal():
    builder = sampled(
        training(), any_kernel_ratio=0.0, event_reasons=1, sm_clock_mhz=345, sm_clock_max_mhz=1980
    )
    assert list(clock_throttled.check(builder.trace())) == []


def test_a_log_alone_tells_of_throttling_without_steps():
    builder = sampled(TraceBuilder(), **BUSY, event_reasons=0x20, sm_clock_mhz=1320)
    (finding,) = clock_throttled.check(builder.trace(device_ops=None))
    assert finding.consequence == "computing takes 1.50 times as long"


@pytest.mark.parametrize("rule", [clock_throttled, pcie_degraded, gpu_hardware_fault])
def test_nothing_sampled_is_not_checked(rule):
    trace = sampled(training(), power_w=100).trace()
    with pytest.raises(NotChecked):
        list(rule.check(trace))


LINK = {"pcie_width_max": 16, "pcie_generation_max": 5}


def test_half_the_lanes_under_load_are_found_and_priced():
    builder = sampled(with_copies(training()), **BUSY, **LINK, pcie_width=8, pcie_generation=5)
    (finding,) = pcie_degraded.check(builder.trace())
    assert "lanes 8 of 16 under load" in finding.summary
    assert finding.changes[0].factor == 0.5
    assert finding.cost_ns_per_step == MS // 2


@pytest.mark.parametrize(
    ("busy", "generation"), [pytest.param(0.0, 1, id="rests"), pytest.param(1.0, 5, id="full")]
)
def test_links_that_rest_or_run_in_full_are_fine(busy, generation):
    builder = sampled(
        training(), any_kernel_ratio=busy, **LINK, pcie_width=16, pcie_generation=generation
    )
    assert list(pcie_degraded.check(builder.trace())) == []


def test_memory_faults_have_a_consequence_and_no_price():
    builder = sampled(training(), ecc_uncorrected_count=2, ecc_corrected_count=0, remap_pending=1)
    (finding,) = gpu_hardware_fault.check(builder.trace())
    assert "2 uncorrected memory errors, 1 rows that wait for a reset" in finding.summary
    assert finding.cost_ns_per_step is None
    assert finding.consequence == "wrong numbers or a crash"


def test_healthy_memory_is_clear():
    builder = sampled(training(), ecc_uncorrected_count=0, ecc_corrected_count=1, remap_pending=0)
    assert list(gpu_hardware_fault.check(builder.trace())) == []


def blocking(call_ms, launches=30):
    builder = TraceBuilder()
    builder.step(0, 0, launches * 2 * MS)
    for i in range(launches):
        at = i * 2 * MS
        builder.launch(at, int(call_ms * MS), "gemm", at + 10_000, MS)
    return builder


def test_launches_that_last_until_their_kernel_ends_are_found():
    (finding,) = launch_blocking_env.check(blocking(1.02).trace())
    (change,) = finding.changes
    assert isinstance(change, RemoveHostTime)
    assert int((change.end_ns - change.start_ns)[0]) == int(1.02 * MS) - 6_000
    assert finding.confidence == "medium"


def test_the_variable_itself_makes_it_certain():
    facts = RunFacts(variables={"CUDA_LAUNCH_BLOCKING": "1"})
    (finding,) = launch_blocking_env.check(blocking(1.02).trace(run=facts))
    assert "CUDA_LAUNCH_BLOCKING=1" in finding.summary
    assert finding.confidence == "high"


def test_launches_that_return_at_once_are_fine():
    assert list(launch_blocking_env.check(blocking(0.006).trace())) == []


def test_a_slow_call_that_outlasts_a_tiny_kernel_is_another_matter():
    builder = TraceBuilder()
    builder.step(0, 0, 60 * MS)
    for i in range(30):
        builder.launch(i * 2 * MS, 70_000, "tanh", i * 2 * MS + 60_000, 1_000)
    assert list(launch_blocking_env.check(builder.trace())) == []


def run_facts(*, cores, threads=1, workers=8, wait_ms=6, alive=100, busy=95):
    worker = LoaderWorker(workers, busy_ns=busy, alive_ns=alive, torch_threads=threads)
    return RunFacts(
        cores_allowed=cores,
        cores_there=16,
        loader_workers=(worker,) * workers,
        unprofiled_step_ns=(10 * MS,) * 10,
        data_wait_ns=(wait_ms * MS,) * 10,
    )


@pytest.mark.parametrize(("kernel_ms", "most_ms"), [(4, 6), (8, 2)], ids=["idle", "mostly busy"])
def test_a_job_with_one_core_for_eight_workers_is_cpu_limited(kernel_ms, most_ms):
    trace = training(kernel_ms=kernel_ms).trace(run=run_facts(cores=1))
    (finding,) = cpu_limited.check(trace)
    assert "1 of 16 cores for 8 loader workers" in finding.summary
    assert finding.saving_ns_per_step == (most_ms * MS // 2, most_ms * MS)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(run_facts(cores=16), id="all cores"),
        pytest.param(run_facts(cores=1, wait_ms=0), id="nothing waits"),
        pytest.param(run_facts(cores=1, busy=10), id="workers rest"),
    ],
)
def test_enough_cores_or_no_wait_is_not_cpu_limited(outcome, facts):
    assert outcome("cpu-limited", training().trace(run=facts)).answer in ("clear", "not checked")


def test_a_run_that_uses_all_its_cores_is_cpu_limited_whatever_its_workers_say():
    builder = sampled(training(), device=None, cpu_cores_used=0.98)
    (finding,) = cpu_limited.check(builder.trace(run=run_facts(cores=1, busy=10)))
    assert any(e.what == "cores used by the run" and e.value == 0.98 for e in finding.evidence)


def test_a_quota_that_stops_the_program_is_cpu_limited():
    builder = sampled(training(), device=None, cgroup_throttled_ratio=0.4)
    facts = run_facts(cores=2)
    (finding,) = cpu_limited.check(builder.trace(run=facts))
    assert "2 of 16 cores" in finding.summary


def test_many_threads_in_many_workers_are_oversubscription():
    builder = sampled(training(), device=None, runnable_count=90)
    facts = run_facts(cores=16, threads=16)
    (finding,) = thread_oversubscription.check(builder.trace(run=facts))
    assert "8 loader workers with 16 compute threads each share 16 cores" in finding.summary


@pytest.mark.parametrize(
    ("threads", "runnable"),
    [pytest.param(1, 90, id="one thread each"), pytest.param(16, 8, id="threads sleep")],
)
def test_threads_that_fit_or_sleep_are_fine(threads, runnable):
    builder = sampled(training(), device=None, runnable_count=runnable)
    facts = run_facts(cores=16, threads=threads)
    assert list(thread_oversubscription.check(builder.trace(run=facts))) == []


def test_cores_that_are_not_recorded_are_not_checked():
    with pytest.raises(NotChecked):
        list(thread_oversubscription.check(training().trace()))


def numa(process_nodes, device_node=1):
    return RunFacts(device=DeviceSetting(numa_node=device_node), cpu_nodes=tuple(process_nodes))


def test_a_process_on_the_other_socket_is_remote():
    trace = with_copies(training()).trace(run=numa([0]))
    (finding,) = numa_remote.check(trace)
    assert finding.summary == (
        "The process runs on memory node 0, its device is attached to node 1"
    )
    assert finding.cost_ns_per_step == MS // 5


@pytest.mark.parametrize("facts", [numa([0, 1]), numa([0], device_node=-1)])
def test_a_process_that_may_run_beside_its_device_is_fine(facts):
    assert list(numa_remote.check(training().trace(run=facts))) == []


def on_cpus(memory, time, pinned=1.0, nodes=(0, 1)):
    """Steps of 10 ms of a program without a device, its memory and threads so over nodes."""
    builder = TraceBuilder()
    builder.devices = []
    for i in range(6):
        builder.step(i, i * 10 * MS, 10 * MS)
        builder.op("aten::mm", i * 10 * MS, 9 * MS)
    shares = NodeShares(memory, time, pinned, 10 / 20)
    return builder.trace(run=RunFacts(cpu_nodes=nodes, node_shares=shares))


def test_threads_that_are_bound_beside_their_memory_use_it_over_the_link():
    (finding,) = numa_remote.check(on_cpus({0: 0.2, 1: 0.8}, {0: 1.0}, nodes=(0,)))
    assert finding.summary == "Threads run on memory node 0, and 80 % of its memory is on node 1"
    assert finding.saving_ns_per_step == (0, 4 * MS)  # 0.8 × (1 - 10/20) of 10 ms
    assert "--cpunodebind=0 --membind=0" in finding.hint


def test_threads_of_the_node_that_has_no_memory_use_the_others():
    (finding,) = numa_remote.check(on_cpus({0: 0.97, 1: 0.03}, {0: 0.5, 1: 0.5}))
    assert finding.saving_ns_per_step == (0, 2.5 * MS)
    assert "--interleave=all" in finding.hint


def test_threads_and_memory_that_are_nearly_all_on_one_node_are_fine(outcome):
    said = outcome("numa-remote", on_cpus({0: 0.95, 1: 0.05}, {0: 1.0}, nodes=(0,)))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the accesses: 5.0 %")


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (on_cpus({0: 0.97}, {0: 0.6, 1: 0.4}, pinned=0.1), "97 % of its memory is on node 0"),
        (on_cpus({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}), "which thread uses which memory"),
    ],
)
def test_whose_memory_is_remote_is_not_always_known(trace, why):
    with pytest.raises(NotChecked) as said:
        list(numa_remote.check(trace))
    assert why in said.value.why
    assert "numactl --cpunodebind=0 --membind=0 COMMAND" in said.value.record.phrase


def stretched(**sampled_values):
    """Steps of one kernel each; every fourth takes 3 ms in place of 0.2."""
    builder = TraceBuilder()
    for i in range(24):
        takes = 3 * MS if i % 4 == 0 else MS // 5
        builder.step(i, i * 4 * MS, 4 * MS)
        builder.launch(i * 4 * MS, 5_000, "gemm", i * 4 * MS + 10_000, takes)
    return sampled(builder, **sampled_values).trace()


def test_another_process_on_the_device_takes_its_turns():
    (finding,) = gpu_contention.check(stretched(process_count=2))
    assert finding.confidence == "high"


def test_nobody_else_on_the_device_takes_none():
    assert list(gpu_contention.check(stretched(process_count=1))) == []


def test_stretched_kernels_alone_show_no_other_process():
    with pytest.raises(NotChecked):
        list(gpu_contention.check(stretched(power_w=300)))


def products(operator="aten::mm", turns_ms=(3.0,), company=False):
    """Steps of four launches of one operator and shape; the first of each loses a turn."""
    builder = TraceBuilder()
    for i in range(24):
        at, lost = i * 8 * MS, round(turns_ms[i % len(turns_ms)] * MS)
        builder.step(i, at, 8 * MS)
        builder.op(operator, at, MS, shapes="[[512, 512], [512, 512]]", dtypes='["float", "float"]')
        for k in range(4):
            begin = at + 10_000 + k * MS // 4 + (lost if k else 0)
            takes = MS // 5 + (0 if k else lost)
            builder.launch(at + k * 10_000, 5_000, "gemm", begin, takes)
        if company:
            builder.launch(at + 50_000, 5_000, "copy", at + MS, MS // 2, stream=9)
    return builder.trace()


def test_dense_products_that_all_lose_the_same_turn_are_said_to_look_like_it():
    with pytest.raises(NotChecked, match=r"lose the same 3\.0 ms, 3\.0 ms a step in all"):
        list(gpu_contention.check(products()))


@pytest.mark.parametrize(
    "other", [{"operator": "aten::sort"}, {"turns_ms": (1.0, 3.0, 6.0)}, {"company": True}]
)
def test_work_that_data_or_company_or_clocks_can_stretch_looks_like_nothing_yet(other):
    with pytest.raises(NotChecked, match="far longer than others like them"):
        list(gpu_contention.check(products(**other)))


def test_the_rules_of_the_machine_are_pure():
    trace = sampled(training(), **BUSY, event_reasons=0x40, sm_clock_mhz=990).trace()
    before = trace.device_ops["duration_ns"].copy()
    list(clock_throttled.check(trace))
    assert np.array_equal(before, trace.device_ops["duration_ns"])
