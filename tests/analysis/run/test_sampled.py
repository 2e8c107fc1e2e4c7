import pytest

from builders import TraceBuilder
from pinchpoint.analysis.run import sampled_metrics, sampled_sentences
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.report import diagnose


def log(*looks, device=0):
    """A trace of telemetry alone."""
    builder = TraceBuilder()
    for i, values in enumerate(looks):
        for name, value in values.items():
            builder.add("counters", time_ns=i, name=name, value=float(value), device=device)
    return builder.trace(host_ops=None, api_calls=None, device_ops=None, steps=None)


BUSY = {"any_kernel_ratio": 1.0, "sm_clock_mhz": 1305, "sm_clock_max_mhz": 1980}
FREE = BUSY | {"event_reasons": 0}


def test_spreads_of_every_metric():
    rows = sampled_metrics(log({"power_w": 100}, {"power_w": 700}, {"power_w": 600, "own": 1}))
    first, second = rows
    assert (first.label, first.median, first.least, first.most) == ("power", 600, 100, 700)
    assert (second.label, second.unit, second.looks) == ("own", "", 1)


def test_a_log_alone_gets_a_verdict_and_a_table():
    report = diagnose(log(*[BUSY | {"event_reasons": 4}] * 10))
    said = "Power-capped 100 % of the time sampled: SM clock 1305 of 1980 MHz. Sampled"
    assert report.verdict.startswith(said)
    assert report.tables["telemetry"].rows[0][1] == "time with any kernel"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param(FREE, "The devices worked, and nothing held them down.", id="fine"),
        pytest.param(
            BUSY,
            "The devices worked; whether anything held them down was not sampled"
            " (no reasons of the clocks).",
            id="no-reasons",
        ),
        pytest.param(
            {"power_w": 22.5},
            "Neither whether the devices worked nor whether anything held them down was sampled.",
            id="power-alone",
        ),
        pytest.param(
            BUSY | {"power_capped_ratio": 0.9},
            "Power-capped 90 % of the time sampled: SM clock down to 1305 MHz.",
            id="dmon",
        ),
        pytest.param(
            {"any_kernel_ratio": 0.2},
            "No kernel ran in 80 % of the time sampled: the host feeds it too slowly.",
            id="starved",
        ),
    ],
)
def test_what_a_log_says(values, said):
    assert verdict(log(*[values] * 4)).partition(" Sampled, ")[0] == said


def test_what_a_log_has_is_shown_in_units_that_people_read():
    looks = [{"any_kernel_ratio": 0.99, "memory_used_bytes": 2**31, "power_w": w} for w in (60, 70)]
    assert verdict(log(*looks)).endswith(
        "Sampled, median (least to most): time with any kernel 99 %, memory 2 GiB,"
        " power 65 W (60 to 70)."
    )


def test_no_telemetry_no_sentence():
    assert sampled_sentences(TraceBuilder().trace()) == ()
    assert sampled_metrics(TraceBuilder().trace()) == ()
