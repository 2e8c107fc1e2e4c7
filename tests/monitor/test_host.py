"""The host side of telemetry where the system tells nothing."""

import os

import psutil

from pinchpoint.monitor.host import HostSource


def test_where_there_is_no_proc_what_is_unknown_is_left_out(monkeypatch):
    def gone(*_, **__):
        raise FileNotFoundError("/proc/stat")

    for name in ("cpu_times", "cpu_stats", "disk_io_counters", "virtual_memory", "swap_memory"):
        monkeypatch.setattr(psutil, name, gone)
    source = HostSource(os.getpid())
    (sample,) = source.read(1)
    assert "cpu_ratio" not in sample.values
    assert "host_memory_total_bytes" not in sample.values
