import os
import subprocess
import sys
import threading

from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.sample import (
    HOST_METRICS,
    SHORTEST_S,
    Missing,
    Sample,
    Sampler,
    exposition,
    write_textfile,
)


class Scripted:
    def __init__(self):
        self.missing, self.closed = Missing(), False

    def read(self, unix_ns):
        return [Sample(unix_ns, "0", {"power_w": 1.0})]

    def close(self):
        self.closed = True


def test_the_sampler_looks_until_stopped_and_closes_its_sources():
    source, seen, looked = Scripted(), [], threading.Event()

    def sink(samples):
        seen.extend(samples)
        looked.set()

    sampler = Sampler([source], interval_s=0.001, sink=sink)
    assert sampler.interval_s == SHORTEST_S
    sampler.start()
    assert looked.wait(10)
    sampler.stop()
    assert seen
    assert source.closed


def test_the_host_knows_its_memory_and_the_run():
    (sample,) = HostSource(os.getpid()).read(7)
    assert sample.device is None
    assert set(sample.values) <= set(HOST_METRICS)
    assert sample.values["run_memory_bytes"] > 1 << 20
    assert sample.values["host_memory_total_bytes"] > sample.values["host_memory_used_bytes"] > 0


def test_a_run_that_has_ended_has_no_processes():
    assert HostSource(2**22 + 1).run_processes() == []


def test_a_process_of_the_run_stays_one_after_its_end():
    host = HostSource(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert {os.getpid(), child.pid} <= host.run_pids()
    child.communicate(b"\n")
    assert child.pid in host.run_pids()


def test_prometheus_gets_only_what_is_known(tmp_path):
    samples = [Sample(1, "0", {"power_w": 692.5}), Sample(1, None, {"cpu_ratio": 0.25})]
    text = exposition(samples, {"0": 'H100 "80GB"'})
    assert 'pinchpoint_power_w{device="0",name="H100 \\"80GB\\""} 692.5' in text
    assert "pinchpoint_cpu_ratio 0.25" in text
    assert "sm_active" not in text
    write_textfile(tmp_path / "p.prom", text)
    assert [p.name for p in tmp_path.iterdir()] == ["p.prom"]


def test_before_a_program_is_followed_the_run_is_not_nobody():
    """Else each process on a device would be another's."""
    assert HostSource().run_pids() == {os.getpid()}
