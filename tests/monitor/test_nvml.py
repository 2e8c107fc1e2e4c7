from types import SimpleNamespace

import pytest

from monitor.fake_nvml import FakeNvml
from pinchpoint.monitor import nvml as under_test
from pinchpoint.monitor.nvml import SHORTEST_NS, Gpm, NoDevices, NvmlSource

SECOND = 1_000_000_000


def test_a_busy_device_is_read_in_our_units():
    source = NvmlSource(FakeNvml(gpm={2: 96.4, 5: 93.6, 10: 24.3, 21: 2.0}))
    source.read(0)
    (sample,) = source.read(SECOND)
    expected = {
        "sm_active_ratio": 0.964,
        "tensor_active_ratio": 0.936,
        "dram_active_ratio": 0.243,
        "pcie_rx_bytes_per_s": 2 * 1024**2,
        "any_kernel_ratio": 1.0,
        "memory_time_ratio": 0.31,
        "power_w": 692.0,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1305,
        "sm_clock_max_mhz": 1980,
        "event_reasons": 4,
        "temperature_c": 62,
        "pcie_width": 16,
        "remap_pending": 0,
    }
    assert {k: sample.values[k] for k in expected} == pytest.approx(expected)
    assert sample.device == "0"
    assert source.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert source.devices[0].uuid == "GPU-1"


def test_what_is_not_supported_is_absent_with_the_drivers_reason():
    source = NvmlSource(FakeNvml(fails={"nvmlDeviceGetUtilizationRates": "Not Supported"}))
    (sample,) = source.read(0)
    assert "any_kernel_ratio" not in sample.values
    assert source.missing.of("0")["any_kernel_ratio"] == "Not Supported"
    assert sample.values["power_w"] == 692.0


def test_a_device_without_activity_counters_says_so_and_asks_pcie_rates_the_slow_way():
    source = NvmlSource(FakeNvml())
    (sample,) = source.read(SECOND)
    assert "sm_active_ratio" not in sample.values
    assert "no activity counters" in source.missing.of("0")["sm_active_ratio"]
    assert sample.values["pcie_rx_bytes_per_s"] == 1024 * 1024


def test_an_old_driver_without_the_counter_calls_is_no_crash():
    fake = FakeNvml(gpm={2: 1.0}, fails={"nvmlGpmQueryDeviceSupport": "Function Not Found"})
    assert "sm_active_ratio" not in NvmlSource(fake).read(SECOND)[0].values


def test_a_mig_slice_is_a_device_of_its_own_with_its_own_counters():
    source = NvmlSource(FakeNvml(slices=1, gpm={2: 50.0}))
    source.read(0)
    samples = source.read(SECOND)
    assert [s.device for s in samples] == ["0", "0/0"]
    assert samples[1].values["sm_active_ratio"] == 0.5
    assert all(d.mig for d in source.devices)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("NVML Shared Library Not Found", "no NVIDIA driver is installed here"),
        ("Insufficient Permissions", "this user may not talk to the NVIDIA driver"),
        ("Unknown Error", "the NVIDIA driver answers: Unknown Error"),
    ],
)
def test_why_there_is_nothing_to_see(error, reason):
    with pytest.raises(NoDevices, match=reason):
        NvmlSource(FakeNvml(fails={"nvmlInit": error}))


def test_no_device_is_said():
    with pytest.raises(NoDevices, match="shows no device"):
        NvmlSource(FakeNvml(devices=0))


def test_a_lost_device_is_left_out_with_the_reason():
    fake = FakeNvml(fails={"nvmlDeviceGetHandleByIndex": "GPU is lost"})
    with pytest.raises(NoDevices):
        NvmlSource(fake)


def test_a_slow_call_is_dropped_after_three_times(monkeypatch):
    clock = iter(range(0, 10**12, under_test.CALL_LIMIT_NS + 1))
    monkeypatch.setattr(under_test.time, "perf_counter_ns", lambda: next(clock))
    fake = FakeNvml()
    source = NvmlSource(fake)
    for tick in range(5):
        (sample,) = source.read(tick * SECOND)
    assert fake.calls.count("nvmlDeviceGetPowerUsage") == 3
    assert "power_w" not in sample.values
    assert "more than 100 ms" in source.missing.of("0")["power_w"]


def test_counters_read_too_early_give_nothing_instead_of_zero():
    gpm = Gpm(FakeNvml(gpm={2: 45.0}), "handle")
    assert gpm.read(0) == {}
    assert gpm.read(SHORTEST_NS - 1) == {}
    assert gpm.read(SHORTEST_NS)["sm_active_ratio"] == pytest.approx(0.45)


def test_processes_of_others_are_counted():
    running = [
        SimpleNamespace(pid=10, usedGpuMemory=4_000),
        SimpleNamespace(pid=99, usedGpuMemory=2_000),
    ]
    source = NvmlSource(FakeNvml(processes=running), own_pids=lambda: {10})
    values = source.read(SECOND)[0].values
    assert values["process_count"] == 2
    assert values["other_process_count"] == 1
    assert values["other_memory_bytes"] == 2_000


def test_process_numbers_of_another_namespace_prove_nothing():
    running = [SimpleNamespace(pid=40_001, usedGpuMemory=None)]
    values = NvmlSource(FakeNvml(processes=running), own_pids=lambda: {10}).read(SECOND)[0].values
    assert values["process_count"] == 1
    assert "other_process_count" not in values


def test_a_forbidden_process_list_is_unknown_not_empty():
    fake = FakeNvml(fails={"nvmlDeviceGetComputeRunningProcesses": "Insufficient Permissions"})
    source = NvmlSource(fake)
    assert "process_count" not in source.read(SECOND)[0].values
    assert source.missing.of("0")["process_count"] == "Insufficient Permissions"
