import pytest

from pinchpoint.report.quantity import duration, number, quantity, rate, relative, size, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123, "0.01"),
        (0.0042, "0.004"),
        (0.00001, "0.000"),
        (0.7, "0.70"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1234.5, "1234"),
        (-12.34, "-12.3"),
    ],
)
def test_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.50 µs"),
        (22_300_000, "22.3 ms"),
        (1_240_000_000, "1240 ms"),
        (12_400_000_000, "12.4 s"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations(ns, text):
    assert duration(ns) == text


def test_a_span_has_one_unit():
    assert span(900_000, 16_000_000, "ms") == "0.90 to 16.0"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 << 30, "3.00 GiB")]
)
def test_bytes(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_500_000, "ns", "1.50 ms"),
        (74_584, "ns per step", "74.6 µs per step"),
        (110, "per step", "110 per step"),
        (2048, "bytes", "2.00 KiB"),
        (0.287, "ratio", "28.7 %"),
        (590_248_673_280, "flop", "590 GFLOP"),
        (12345, "count", "12,345"),
        (6.2, "GB/s", "6.20 GB/s"),
        ("aten::mm", "", "aten::mm"),
        (None, "ns", "not known"),
    ],
)
def test_quantities_follow_their_unit(value, unit, text):
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (787e12, "FLOP/s", "787 TFLOP/s"),
        (2.95e12, "B/s", "2.95 TB/s"),
        (1.979e15, "FLOP/s", "1.98 PFLOP/s"),
        (12.0, "FLOP", "12.0 FLOP"),
        (0.0, "B/s", "0 B/s"),
        (None, "B/s", "-"),
    ],
)
def test_powers_of_a_thousand(value, unit, text):
    assert rate(value, unit) == text


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (relative(10, 11.23), "+12.3 %"),
        (relative(10, 142), "14.2 ×"),
        (relative(142, 10), "14.2 × less"),
    ],
)
def test_from_twice_on_a_change_is_a_factor(said, text):
    assert said == text
