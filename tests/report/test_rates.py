import pytest

from pinchpoint.report.quantity import rate


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
