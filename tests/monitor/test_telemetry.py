from pathlib import Path

import pytest

from pinchpoint.errors import UsageError
from pinchpoint.monitor import telemetry
from pinchpoint.monitor.nvml import NoDevices
from pinchpoint.monitor.sample import METRICS, DeviceFacts, Missing, Sample
from pinchpoint.monitor.telemetry import Rhythm, Telemetry, TelemetryLog, row


def cells(sample):
    return dict(zip(("unix_ns", "device", *METRICS), row(sample)[:-1].split(","), strict=True))


def test_unknown_cells_stay_empty_and_numbers_stay_short():
    line = cells(Sample(7, "0", {"power_w": 692.123456, "memory_used_bytes": 1.781e9}))
    assert line["power_w"] == "692.12"
    assert line["memory_used_bytes"] == "1781000000"
    assert line["sm_active_ratio"] == ""
    assert cells(Sample(7, None, {}))["device"] == ""


def test_each_tick_is_on_disk_at_once(tmp_path):
    log = TelemetryLog(tmp_path / "t.csv")
    log.add([Sample(7, "0", {"power_w": 1.0})])
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 2
    log.close()


def test_a_full_disk_stops_the_log_and_nothing_else():
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    log = TelemetryLog(full)
    log.add([Sample(7, "0", {})])
    log.close()
    assert "No space left" in log.problem


def test_a_log_that_another_writes_is_left_alone(tmp_path):
    first = TelemetryLog(tmp_path / "t.csv")
    first.add([Sample(7, "0", {"power_w": 1.0})])
    before = (tmp_path / "t.csv").read_text()
    with pytest.raises(UsageError, match="another process writes this log"):
        TelemetryLog(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == before
    first.close()
    TelemetryLog(tmp_path / "t.csv").close()
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 1


def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory"):
        TelemetryLog(tmp_path / "nowhere" / "t.csv")


class OneDevice:
    """A device that tells its power, and not its temperature."""

    devices = (DeviceFacts("0", "A device"),)

    def __init__(self, **asked):
        self.asked, self.missing = asked, Missing()
        self.missing.note("0", ("temperature_c",), "it has no sensor")

    def read(self, unix_ns):
        return [Sample(unix_ns, "0", {"power_w": 250.0})]

    def close(self):
        pass


def rows(path):
    return [line.split(",")[:2] for line in path.read_text().splitlines()[1:]]


def test_devices_and_host_share_their_ticks_or_keep_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry, "NvmlSource", OneDevice)
    together = Telemetry(tmp_path / "a.csv", Rhythm(1.0, 1.0)).stop()
    (first, device), (second, host) = rows(tmp_path / "a.csv")[:2]
    assert (first == second, device, host) == (True, "0", "")
    assert together.devices == ("A device",)
    assert together.missing["0"] == {"temperature_c": "it has no sensor"}
    assert together.summary.devices()[0]["power_w"] == {"mean": 250.0, "min": 250.0, "max": 250.0}
    taken = []
    apart = Telemetry(
        tmp_path / "b.csv", Rhythm(0.5, 1.0, counters=False), own_pids=set, take=taken.extend
    )
    apart.stop()
    assert {device for _, device in rows(tmp_path / "b.csv")} == {"0", ""}
    assert {sample.device for sample in taken} == {"0", None}
    assert apart.devices.asked == {"counters": False, "own_pids": set}


def test_a_machine_without_devices_has_its_host_sampled(tmp_path, monkeypatch):
    def none(**asked):
        raise NoDevices("no driver")

    monkeypatch.setattr(telemetry, "NvmlSource", none)
    sampled = Telemetry(tmp_path / "a.csv", Rhythm(0.5, 1.0)).stop()
    assert (sampled.devices, sampled.no_devices) == ((), "no driver")
    assert sampled.summary.host()
