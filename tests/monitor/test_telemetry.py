from pathlib import Path

import pytest

from pinchpoint.errors import UsageError
from pinchpoint.monitor.metrics import METRICS
from pinchpoint.monitor.sample import Sample
from pinchpoint.monitor.telemetry import TelemetryLog, row


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


def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with pytest.raises(UsageError, match="No such file or directory"):
        TelemetryLog(tmp_path / "nowhere" / "t.csv")
