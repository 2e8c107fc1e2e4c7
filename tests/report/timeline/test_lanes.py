"""What is drawn on the timeline, how it is folded, and how it is packed."""

import base64
import gzip
import json

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.report.timeline import lanes as module
from pinchpoint.report.timeline.lanes import timeline
from pinchpoint.report.timeline.pack import pack
from report_sample import full_report


def small():
    builder = TraceBuilder()
    builder.op("step", 0, 100)
    builder.op("mm", 10, 20)
    builder.launch(at=15, takes=5, kernel="gemm", runs_at=30, for_ns=40)
    return builder.trace()


def unpacked(text):
    body = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + length])
    planes = np.frombuffer(body[4 + length :], np.uint8).reshape(6, 4, head["slices"])
    columns = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u4")[:, :, 0]
    return head, dict(
        zip(("start", "duration", "name", "link", "count", "row"), columns, strict=True)
    )


def test_lanes_are_streams_and_then_threads():
    drawn = timeline(small())
    assert [lane.label for lane in drawn.lanes] == ["device 0 stream 7", "main"]
    assert drawn.slices.lane.tolist() == [0, 1, 1, 1]
    assert drawn.slices.depth.tolist() == [0, 0, 1, 2]
    assert (drawn.start_ns, drawn.end_ns) == (0, 100)


def test_a_kernel_is_linked_with_its_launch():
    assert timeline(small()).slices.link.tolist() == [3, -1, -1, -1]


def test_nothing_to_draw():
    assert timeline(TraceBuilder().trace()) is None


def test_the_pack_says_what_the_timeline_holds():
    trace = small()
    head, columns = unpacked(pack(trace, timeline(trace), full_report()))
    assert head["slices"] == 4
    assert head["tracks"] == [[0, 0, 0, 1], [1, 0, 1, 1], [1, 1, 2, 1], [1, 2, 3, 1]]
    assert [head["names"][i] for i in columns["name"]] == ["gemm", "step", "mm", "cudaLaunchKernel"]
    assert columns["start"].tolist() == [30, 0, 10, 15]
    assert columns["link"].tolist() == [3, 0, 0, 0]


def test_the_place_of_a_finding_is_the_slice_that_its_evidence_names():
    trace = small()
    report = full_report()
    fact = report.findings[0].evidence[0]
    assert fact.at_ns == 91
    head, _ = unpacked(pack(trace, timeline(trace), report))
    assert [(p["finding"], p["at_ns"], p["slice"]) for p in head["places"]] == [(0, 91, None)]


def test_long_recordings_keep_the_longest_events_and_count_the_others(monkeypatch):
    monkeypatch.setattr(module, "MOST_SLICES", 50)
    monkeypatch.setattr(module, "KEPT_SLICES", 5)
    monkeypatch.setattr(module, "FOLDED_STRETCHES", 4)
    builder = TraceBuilder()
    for i in range(100):
        builder.op("long" if i % 25 == 0 else "short", 1000 * i, 900 if i % 25 == 0 else 10)
    drawn = timeline(builder.trace())
    kept = drawn.slices.count == 0
    assert drawn.slices.duration_ns[kept].tolist() == [900] * 4
    assert int(drawn.slices.count.sum()) + int(kept.sum()) == 100
    assert len(drawn.slices) < 20
    assert drawn.left_out == (
        "96 of 100 events are shorter than 11 ns and drawn as grey stretches that say how many "
        "they stand for",
    )


@pytest.mark.parametrize("seconds", [1, 100])
def test_long_recordings_have_coarser_ticks(seconds):
    builder = TraceBuilder()
    builder.op("first", 0, 10)
    builder.op("last", seconds * 10**9 - 100, 100)
    trace = builder.trace()
    head, columns = unpacked(pack(trace, timeline(trace), full_report()))
    ticks = int(columns["start"].sum())
    assert ticks * head["tick_ns"] == pytest.approx(seconds * 1e9, abs=200)
