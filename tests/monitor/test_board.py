import json

from monitor.fake_nvml import FakeNvml
from pinchpoint.monitor.board import Board


def test_one_document_says_what_is_known_and_what_is_not():
    fake = FakeNvml(gpm={2: 96.4}, fails={"nvmlDeviceGetTemperature": "Not Supported"})
    with Board(interval_s=1.0, nvml=fake) as board:
        board.refresh()
        document = board.document()
    (device,) = document["devices"]
    assert device["name"] == "NVIDIA H100 80GB HBM3"
    assert device["values"]["any_kernel_ratio"] == 1.0
    assert device["clock_reasons"] == ["power-capped"]
    assert device["not_supported"]["temperature_c"] == "Not Supported"
    assert "temperature_c" not in device["values"]
    assert "power-capped 100 % of this look: SM clock 1305 of 1980 MHz" in device["sentences"]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_without_a_driver_the_host_is_still_shown():
    with Board(interval_s=1.0, nvml=FakeNvml(fails={"nvmlInit": "Driver Not Loaded"})) as board:
        board.refresh()
        assert board.no_devices == "the NVIDIA driver is installed and not loaded"
        assert board.document()["devices"] == []
        assert board.latest(None)["host_memory_total_bytes"] > 0


def test_only_the_devices_that_were_asked_for():
    with Board(interval_s=1.0, only=frozenset({"1"}), nvml=FakeNvml(devices=3)) as board:
        assert [d.device for d in board.devices] == ["1"]


def test_history_is_kept_for_a_minute():
    with Board(interval_s=30.0, nvml=FakeNvml()) as board:
        for _ in range(5):
            board.refresh()
        assert board.history("0", "power_w") == [692.0, 692.0]
