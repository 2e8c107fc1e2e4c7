import pytest

from kineto_documents import call, document, event, kernel, launched, op, step, written
from pinchpoint.importers.kineto import read

H100 = [{"id": 0, "name": "NVIDIA H100"}]


def facts(tmp_path, *events, text=None, **frame):
    """The facts of a trace of these events, with how many events show each."""
    frame.setdefault("deviceProperties", H100)
    trace = read(written(tmp_path, text or document(*events, **frame)))
    rows = trace.health
    return {trace.text(rows, "fact", i): int(rows["count"][i]) for i in range(len(rows))}


GOOD = [op("aten::mm", 0, 100), *launched("k", 5, 8, 2, 1), *launched("k", 15, 18, 2, 2)]


def test_a_good_recording_has_no_facts(tmp_path):
    assert facts(tmp_path, *GOOD) == {}


RANKLESS = launched("ncclDevKernel_X", 25, 28, 2, 3)
CASES = {
    "lost": ({"launches-lost": 1}, [*GOOD, call("cudaLaunchKernel", 30, 1, 9)]),
    "launch missing": ({"launches-missing": 1}, [*GOOD, kernel("k", 40, 1, 99)]),
    "early": ({"starts-before-launch": 1}, [*GOOD, *launched("k", 30, 29, 2, 3)]),
    "very early": ({"clocks-disagree": 1}, [*GOOD, *launched("k", 60, 30, 2, 3)]),
    "overlap": ({"streams-overlap": 1}, [*GOOD, *launched("k", 16, 19, 2, 3)]),
    "no start": ({"times-missing": 1}, [*GOOD, op("x", None, 5)]),
    "negative": ({"durations-negative": 1}, [*GOOD, op("x", 5, -5)]),
    "half a pair": ({"pairs-unmatched": 1}, [*GOOD, {"ph": "B", "ts": 1, "name": "x"}]),
    "asynchronous": ({"phases-unread": 1}, [*GOOD, {"ph": "b", "ts": 1, "name": "x"}]),
    "crossing operators": ({"host-misnested": 1}, [*GOOD, op("x", 50, 100)]),
    "no device": ({"cpu-only": 1}, [op("aten::mm", 0, 100)]),
    "MindSpore's streams": (
        {"device-unread": 1},
        [event("MatMul-op19", "", 0, 100), event("stream_54_parallel_0", "", 0, 100)],
    ),
    "device left out": ({"device-left-out": 1}, [op("aten::cudnn_convolution", 0, 100)]),
    "none recorded": ({"kernels-not-recorded": 1}, [op("x", 0, 9), GOOD[1]]),
    "no host": ({"no-host-activity": 1}, launched("k", 5, 8, 2, 1)),
    "rank": ({"rank-unknown": 1}, [*GOOD, *RANKLESS]),
    "overhead": ({"profiler-overhead": 1}, [*GOOD, event("Buffer Flush", "overhead", 40, 9)]),
    "queue full": ({}, [*GOOD, event("Command Buffer Full", "overhead", 40, 9)]),
}


@pytest.mark.parametrize(("expected", "events"), CASES.values(), ids=CASES)
def test_facts(tmp_path, expected, events):
    assert facts(tmp_path, *events) == expected


def test_most_launches_lost_forbids_conclusions(tmp_path):
    lost = [call("cudaLaunchKernel", 30 + i, 0.5, 10 + i) for i in range(5)]
    assert facts(tmp_path, *GOOD, *lost) == {"device-activity-lost": 5}


def test_a_device_far_behind_is_no_lost_activity(tmp_path):
    lost = [call("cudaLaunchKernel", 30 + i, 0.5, 10 + i) for i in range(5)]
    meanwhile = [kernel("k", 40 + 3 * i, 2, 90 + i) for i in range(5)]
    said = facts(tmp_path, *GOOD, *lost, *meanwhile)
    assert said == {"launches-missing": 5, "device-far-behind": 5}


def test_without_correlations_the_links_are_missing_and_not_the_launches(tmp_path):
    calls = [call("cudaLaunchKernel", 30 + i, 0.5, 10 + i) for i in range(5)]
    kernels = [kernel("k", 40 + 3 * i, 2, 0) for i in range(5)]
    assert facts(tmp_path, *calls, *kernels)["links-missing"] == 5
    assert "device-far-behind" not in facts(tmp_path, *calls, *kernels)


def test_launches_into_a_graph_are_not_lost(tmp_path):
    capture = [
        call("cudaStreamBeginCapture", 30, 1, 10),
        call("cudaLaunchKernel", 32, 1, 11),
        call("cudaStreamEndCapture", 34, 1, 12),
    ]
    assert facts(tmp_path, *GOOD, *capture) == {}


def test_an_absurd_duration(tmp_path):
    many = [part for i in range(20) for part in launched("k", i, i + 1, 0.5, 100 + i)]
    long = launched("malformed", 0, 0.9, 1000, 1)
    found = facts(tmp_path, op("x", 0, 30), *many, *long)
    assert found["duration-absurd"] == 1
    branches = [kernel("k", 1 + i, 0.5, 1) for i in range(20)]  # of one graph launch
    assert "duration-absurd" not in facts(tmp_path, op("x", 0, 30), *branches, *long)


def test_times_that_would_not_fit_into_sums_are_left_out(tmp_path):
    far = [*launched("k", 2**53, 2**53 + 3, 2, 5), op("x", -(2**53), 5), op("y", 1, 2**52)]
    assert facts(tmp_path, *GOOD, *far) == {"times-beyond": 4}


def test_longer_than_the_recording(tmp_path):
    stated = event("PyTorch Profiler (0)", "Trace", 0, 100, place=("Spans", "PyTorch Profiler"))
    found = facts(tmp_path, *GOOD, stated, *launched("k", 30, 33, 5000, 3))
    assert found == {"duration-absurd": 1}


def test_a_lost_start(tmp_path):
    hour = 3600 * 10**6
    events = [op("x", 5 * hour, 100), *launched("k", 5 * hour + 1, 5 * hour + 3, 2, 1)]
    trace_facts = facts(tmp_path, *events, kernel("lost", 0, 2, 2), baseTimeNanoseconds=10**18)
    assert trace_facts == {"starts-lost": 1}


def test_events_long_after_the_window(tmp_path):
    end = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 200}
    late = op("x", 5_000_000, 100)
    assert facts(tmp_path, *GOOD, end, late) == {"after-window": 1}


def test_no_duration_at_all(tmp_path):
    assert facts(tmp_path, op("x", 1, 0), op("y", 2, 0))["durations-zero"] == 2


def test_a_partial_last_step(tmp_path):
    events = []
    for n in range(4):
        events.append(step(n, 100 * n, 90))
        launches = 1 if n == 3 else 5
        for i in range(launches):
            events += launched("k", 100 * n + 5 * i, 100 * n + 5 * i + 2, 1, 10 * n + i + 1)
    assert facts(tmp_path, *events) == {"steps-partial": 1}


def test_no_device_properties(tmp_path):
    assert facts(tmp_path, *GOOD, deviceProperties=[]) == {"no-device-properties": 1}


def test_broken_text_and_twice_the_same_key(tmp_path):
    text = document(*GOOD, deviceProperties=H100)
    broken = text.replace('{"ph"', '{"ph": "X", "name": "say "hi" x"}, {"ph"', 1)
    assert facts(tmp_path, text=broken) == {"broken-text": 1}
    twice = text.replace('"schemaVersion": 1', '"schemaVersion": 1, "schemaVersion": 2')
    assert facts(tmp_path, text=twice) == {"duplicate-keys": 1}


def test_what_the_profiler_logged(tmp_path):
    log = ["INFO:x] Record counts: Out-of-range = 41, Blocklisted = 3, CUPTI stopped early? = 1"]
    assert facts(tmp_path, *GOOD, INFO=log) == {"outside-window": 41, "stopped-early": 1}


def broken_off(launches):
    """Steps with this many launches whose device work the file still has; then it ends."""
    events = [step(n, 100 * n, 90) for n in range(len(launches))]
    for n, count in enumerate(launches):
        for i in range(count):
            at = 100 * n + 10 * i + 1
            events += launched("k", at, at + 3, 2, 100 * n + i + 1)
    return document(*events, deviceProperties=H100).removesuffix("]}")


def test_a_file_that_breaks_off_before_any_whole_step_forbids_conclusions(tmp_path):
    assert "cut-off-steps" in facts(tmp_path, text=broken_off([5, 2, 1, 0]))
    assert "cut-off-steps" not in facts(tmp_path, text=broken_off([5, 5, 3, 0]))


def test_a_file_that_breaks_off_before_the_device_work(tmp_path):
    text = document(op("aten::mm", 0, 100), deviceProperties=H100).removesuffix("]}")
    assert facts(tmp_path, text=text).keys() == {"cut-off", "cut-off-steps"}


def test_a_file_that_is_full_may_lack_events(tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.kineto.health.MOST_WRITTEN", len(GOOD))
    assert "events-capped" in facts(tmp_path, *GOOD)
