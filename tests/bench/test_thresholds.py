import pytest

from pinchpoint.bench.measures import (
    MEASURES,
    Threshold,
    parse_gate,
    parse_percent,
    parse_threshold,
)
from pinchpoint.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("5%", "step_time_ms", Threshold(ratio=0.05)),
        ("10ms", "step_time_ms", Threshold(absolute=10.0)),
        ("0.5 s", "step_time_ms", Threshold(absolute=500.0)),
        ("200MiB", "device_peak_bytes", Threshold(absolute=200 * 2**20)),
    ],
)
def test_thresholds(text, name, expected):
    assert parse_threshold(text, MEASURES[name]) == expected


@pytest.mark.parametrize("text", ["", "5", "-5%", "0%", "200%", "5MiB", "ms", "five%"])
def test_not_a_threshold(text):
    with pytest.raises(UsageError, match="no threshold"):
        parse_threshold(text, MEASURES["step_time_ms"])


def test_a_gate():
    name, threshold = parse_gate("throughput_per_s:5%", MEASURES)
    assert (name, threshold.as_ratio(1000.0)) == ("throughput_per_s", 0.05)
    assert Threshold(absolute=10.0).as_ratio(200.0) == 0.05


@pytest.mark.parametrize("text", ["speed:5%", "throughput_per_s"])
def test_not_a_gate(text):
    with pytest.raises(UsageError):
        parse_gate(text, MEASURES)


def test_percent():
    assert parse_percent("3%") == 0.03
    with pytest.raises(UsageError):
        parse_percent("3")
