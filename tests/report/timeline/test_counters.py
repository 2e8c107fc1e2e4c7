"""Which counters the timeline draws, and how they are named."""

from builders import TraceBuilder
from pinchpoint.report.timeline.counters import MOST_COUNTERS, counters_of


def sampled(**series):
    builder = TraceBuilder()
    for name, values in series.items():
        for i, value in enumerate(values):
            builder.add("counters", time_ns=100 * i, name=name, value=float(value), device=0)
    return builder.trace()


def test_only_what_varies_while_the_recording_runs_is_drawn():
    trace = sampled(power_w=[90, 90, 300, 90, 90], power_limit_w=[700] * 5, queue=[0, 0, 0, 0, 9])
    (power,) = counters_of(trace, 150, 250)
    assert power["label"] == "power · device 0"
    assert power["range"] == "90.0 W to 300 W"
    assert power["times_ns"] == [100, 200, 300]  # with the samples around the recording


def test_ratios_and_sizes_are_named_in_their_units():
    trace = sampled(sm_active_ratio=[0.25, 0.5], memory_used_bytes=[1 << 30, 2 << 30])
    ranges = [counter["range"] for counter in counters_of(trace, 0, 100)]
    assert ranges == ["25.0 % to 50.0 %", "1.00 GiB to 2.00 GiB"]


def test_what_looks_the_same_is_constant():
    assert counters_of(sampled(sm_active_ratio=[0.0, 0.0001]), 0, 100) == []


def test_the_most_telling_ones_have_room():
    names = {f"other_{i}": [0, i + 1] for i in range(9)}
    found = counters_of(sampled(**names, sm_active_ratio=[0, 1]), 0, 100)
    assert len(found) == MOST_COUNTERS
    assert found[0]["label"] == "SM active · device 0"
