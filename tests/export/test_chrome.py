"""Chrome JSON: what is where, that slices nest, and excerpts."""

import os
from pathlib import Path

import msgspec
import pytest

from builders import TraceBuilder
from pinchpoint.errors import UsageError
from pinchpoint.export.chrome import chrome
from pinchpoint.export.excerpt import WHOLE, Excerpt, excerpt, parse_steps
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.trace import DeviceKind, HostKind
from report_sample import full_report, hostile_report
from trace_events import faults

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


def document(trace, report=None, part=WHOLE):
    report = report or full_report()
    return msgspec.json.decode(b"".join(chrome(trace, report, part)))


def of(document, **wanted):
    events = document["traceEvents"]
    return [e for e in events if all(e.get(key) == value for key, value in wanted.items())]


def test_events_keep_name_lane_and_time():
    builder = TraceBuilder()
    builder.launch(at=1500, takes=5, kernel="gemm", runs_at=3001, for_ns=40)
    (kernel,) = of(document(builder.trace()), name="gemm")
    assert (kernel["ph"], kernel["cat"], kernel["tid"]) == ("X", "kernel", 7)
    assert (kernel["ts"], kernel["dur"]) == (3.001, 0.04)


def test_arrows_lead_from_the_call_to_the_kernel():
    builder = TraceBuilder()
    builder.launch(at=1500, takes=5, kernel="gemm", runs_at=3001, for_ns=40)
    found = document(builder.trace())
    assert [e["ts"] for e in (*of(found, ph="s"), *of(found, ph="f"))] == [1.5, 3.001]
    assert faults(found) == []


def test_findings_have_a_track_each_and_say_what_to_do():
    found = document(TraceBuilder().trace())
    place, *_ = of(found, cat="finding")
    assert (place["name"], place["ph"], place["ts"]) == ("sync-in-loop", "i", 0.091)
    assert set(place["args"]) == {"summary", "gain", "where", "fix", "evidence"}
    names = [e["args"]["name"] for e in of(found, name="thread_name")]
    assert "1 sync-in-loop" in names


def test_idle_time_is_drawn_with_its_cause():
    builder = TraceBuilder()
    for i in range(3):
        builder.step(i, 100_000 * i, 100_000)
        builder.launch(100_000 * i + 10, 5, "gemm", runs_at=100_000 * i + 300, for_ns=50_000)
    found = document(builder.trace())
    idle = [e for e in of(found, cat="pinchpoint") if e["tid"] == 2]
    assert sum(round(1000 * e["dur"]) for e in idle) == 300_000 - 3 * 50_000
    assert faults(found) == []


def test_counters_are_tracks_of_their_device_or_of_ours():
    builder = TraceBuilder()
    builder.add("counters", time_ns=5000, name="sm_active_ratio", value=0.5, device=0)
    builder.add("counters", time_ns=6000, name="cpu_ratio", value=0.25)
    builder.add("counters", time_ns=7000, name="cpu_ratio", value=float("nan"))
    counters = of(document(builder.trace()), ph="C")
    assert {(e["name"], e["pid"], e["ts"], e["args"]["value"]) for e in counters} == {
        ("sm_active_ratio", 1000, 5.0, 0.5),
        ("cpu_ratio", 1_000_000, 6.0, 0.25),
    }


def test_operations_that_overlap_on_their_stream_get_tracks_of_their_own():
    builder = TraceBuilder()
    for start, end in ((0, 100), (10, 20), (50, 150), (60, 70), (120, 160)):
        builder.add(
            "device_ops",
            name="k",
            kind=DeviceKind.KERNEL,
            device=0,
            stream=7,
            start_ns=start,
            duration_ns=end - start,
        )
    found = document(builder.trace())
    assert faults(found) == []
    assert [e["tid"] for e in of(found, name="k")] == [
        7,
        1_000_007,
        1_000_007,
        2_000_007,
        2_000_007,
    ]


def test_a_call_that_reaches_into_the_next_one_ends_there():
    builder = TraceBuilder()
    builder.python("enter", 0, 20)
    builder.annotation("step", 15, 100)
    builder.op("profiler", 5, 50, kind=HostKind.OVERHEAD)
    found = document(builder.trace())
    assert faults(found) == []
    assert [e["dur"] for e in of(found, name="enter")] == [0.015]


@pytest.mark.parametrize("report", [full_report, hostile_report])
def test_hostile_names_stay_one_printable_line(report):
    builder = TraceBuilder()
    builder.op("a\x00\u202e</script>\n" + "x" * 5000, 0, 100)
    text = b"".join(chrome(builder.trace(), report()))
    assert max(map(len, text.splitlines())) < 6000
    (op,) = of(msgspec.json.decode(text), cat="operator")
    assert op["name"].isprintable()


def training(steps=6, kernels=10):
    builder = TraceBuilder()
    for i in range(steps):
        at = 100_000 * i
        builder.step(i + 1, at, 100_000)
        for k in range(kernels):
            builder.launch(at + 1000 * k, 500, f"k{k}", runs_at=at + 1000 * k + 700, for_ns=100 + k)
    return builder.trace()


def test_what_fits_is_not_cut():
    assert excerpt(training(), full_report(), None, 1000) is WHOLE


def test_chosen_steps_and_nothing_else():
    trace = training()
    part = excerpt(trace, full_report(), (3, 4), 1000)
    found = document(trace, part=part)
    assert [e["name"] for e in of(found, tid=1, cat="pinchpoint")] == ["step 3", "step 4"]
    assert len(of(found, cat="kernel")) == 20
    assert part.said.startswith("steps 3 to 4 of a recording with ")
    assert faults(found) == []


def test_a_large_recording_is_cut_to_whole_steps():
    part = excerpt(training(), full_report(), None, 50)
    assert part.shortest_ns == 0
    assert part.said.startswith("steps 1 to 2 of a recording")  # findings lie in step 1


def test_of_a_step_that_is_too_large_the_longest_events_stay():
    trace = training()
    part = excerpt(trace, full_report(), (2, 2), 8)
    found = document(trace, part=part)
    drawn = [e for e in of(found, ph="X") if e["cat"] != "pinchpoint"]
    assert 0 < len(drawn) <= 8
    assert faults(found) == []


@pytest.mark.parametrize("text", ["", "x", "3-", "-3", "3-5-7", "9" * 30, "1.5"])
def test_what_are_no_steps_is_said(text):
    with pytest.raises(UsageError):
        parse_steps(text)


def test_steps_that_are_not_there_are_named():
    with pytest.raises(UsageError) as caught:
        excerpt(training(), full_report(), (90, 99))
    assert caught.value.hint == "steps are numbered 1 to 6"
    with pytest.raises(UsageError, match="no steps"):
        excerpt(TraceBuilder().trace(), full_report(), (1, 1))


def test_the_sample_is_sound_whole_and_in_part():
    trace = load(DEMO)
    report = diagnose(trace)
    for part in (WHOLE, excerpt(trace, report, None, 3000), Excerpt(shortest_ns=20_000)):
        found = document(trace, report, part)
        assert faults(found) == []
        assert of(found, cat="finding")


@pytest.mark.corpus
def test_every_recording_is_sound():
    folder = os.environ.get("PINCHPOINT_CORPUS")
    if not folder:
        pytest.skip("PINCHPOINT_CORPUS is not set")
    for file in sorted(Path(folder, "own/traces").glob("*.json.gz")):
        trace = load(file)
        assert faults(document(trace, diagnose(trace))) == [], file.name
