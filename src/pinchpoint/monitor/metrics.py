"""What can be sampled: the one list of names that sampler, logs, importers and views share.

A name carries its unit. Ratios run from 0 to 1. What a device does not tell is left out, never 0.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A sampled quantity: short label, unit and what it really means."""

    label: str
    unit: str
    meaning: str


DEVICE_METRICS: dict[str, Metric] = {
    "sm_active_ratio": Metric(
        "SM active", "ratio", "share of multiprocessors with at least one warp, averaged over time"
    ),
    "tensor_active_ratio": Metric(
        "tensor active", "ratio", "share of cycles in which the matrix units worked"
    ),
    "dram_active_ratio": Metric(
        "DRAM active", "ratio", "memory bandwidth used, of the theoretical maximum"
    ),
    "sm_occupancy_ratio": Metric("occupancy", "ratio", "warps resident, of what would fit"),
    "any_kernel_ratio": Metric(
        "time with any kernel", "ratio", "time in which at least one kernel ran, however small"
    ),
    "memory_time_ratio": Metric(
        "time with memory traffic", "ratio", "time in which device memory was used; not bandwidth"
    ),
    "memory_used_bytes": Metric("memory", "bytes", "device memory held by all processes"),
    "memory_total_bytes": Metric("memory in total", "bytes", "device memory there is"),
    "power_w": Metric("power", "W", "power drawn"),
    "power_limit_w": Metric("power limit", "W", "power at which clocks are lowered"),
    "sm_clock_mhz": Metric("SM clock", "MHz", "present clock of the multiprocessors"),
    "sm_clock_max_mhz": Metric("highest SM clock", "MHz", "clock the device can reach"),
    "memory_clock_mhz": Metric("memory clock", "MHz", "present clock of the device memory"),
    "temperature_c": Metric("temperature", "°C", "temperature of the chip"),
    "memory_temperature_c": Metric("memory temperature", "°C", "temperature of device memory"),
    "event_reasons": Metric("clock reasons", "bits", "why the clock is where it is; reasons.py"),
    "pcie_rx_bytes_per_s": Metric("PCIe in", "bytes/s", "host to device traffic"),
    "pcie_tx_bytes_per_s": Metric("PCIe out", "bytes/s", "device to host traffic"),
    "pcie_generation": Metric("PCIe generation", "", "present; links idle lower"),
    "pcie_generation_max": Metric("highest PCIe generation", "", "what device and slot can do"),
    "pcie_width": Metric("PCIe lanes", "", "present"),
    "pcie_width_max": Metric("most PCIe lanes", "", "what device and slot can do"),
    "nvlink_rx_bytes_per_s": Metric("NVLink in", "bytes/s", "traffic from other devices"),
    "nvlink_tx_bytes_per_s": Metric("NVLink out", "bytes/s", "traffic to other devices"),
    "process_count": Metric("processes", "", "processes with a context on the device"),
    "other_process_count": Metric("other processes", "", "those that are not part of this run"),
    "other_memory_bytes": Metric("memory of others", "bytes", "held by processes not of this run"),
    "ecc_corrected_count": Metric("corrected memory errors", "", "since the driver was loaded"),
    "ecc_uncorrected_count": Metric("uncorrected memory errors", "", "since the driver was loaded"),
    "remapped_rows_count": Metric("remapped memory rows", "", "after uncorrectable errors"),
    "remap_pending": Metric("row remap pending", "", "1: takes effect at the next reset"),
    "remap_failed": Metric("row remap failed", "", "1: the device should be replaced"),
}

HOST_METRICS: dict[str, Metric] = {
    "cpu_ratio": Metric("CPU", "ratio", "use of all cores of the machine"),
    "cpu_cores_used": Metric(
        "cores used by the run", "cores", "CPU time a second, run's processes"
    ),
    "runnable_count": Metric("runnable threads", "", "threads of the machine that run or wait to"),
    "context_switches_per_s": Metric("context switches", "1/s", "of the whole machine"),
    "cpu_pressure_ratio": Metric("CPU pressure", "ratio", "time in which a task waited for a core"),
    "cgroup_throttled_ratio": Metric("CPU quota", "ratio", "time the control group was stopped"),
    "host_memory_used_bytes": Metric("host memory", "bytes", "in use"),
    "host_memory_total_bytes": Metric("host memory in total", "bytes", "or the group's limit"),
    "swap_used_bytes": Metric("swap", "bytes", "in use"),
    "run_memory_bytes": Metric("memory of the run", "bytes", "resident, processes of the run"),
    "disk_read_bytes_per_s": Metric("disk read", "bytes/s", "of the whole machine"),
    "disk_reads_per_s": Metric("disk reads", "1/s", "of the whole machine"),
}

METRICS: dict[str, Metric] = DEVICE_METRICS | HOST_METRICS

LOGGED_METRICS: dict[str, Metric] = {
    "power_capped_ratio": Metric("power-capped", "ratio", "time in which power held it down"),
    "thermal_slowdown_ratio": Metric("slowed for heat", "ratio", "time in which heat did"),
}
"""What logs of other tools have and we do not sample."""

KNOWN_METRICS: dict[str, Metric] = METRICS | LOGGED_METRICS
