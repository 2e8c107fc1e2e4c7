"""What is drawn on the timeline, how it is folded, and how it is packed."""

import base64
import gzip
import json

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.report import diagnose
from pinchpoint.report.timeline.fold import folded
from pinchpoint.report.timeline.full_steps import full_steps
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
    planes = np.frombuffer(body[4 + length :], np.uint8).reshape(-1, head["slices"])
    names = ("start", "duration", "name", "link", "count", "row", "detail", "source")
    columns, at = {}, 0
    for name, own in zip(names, head["planes"], strict=True):
        columns[name] = np.zeros(head["slices"], np.uint32)
        for plane in own:
            columns[name] |= planes[at].astype(np.uint32) << np.uint32(8 * plane)
            at += 1
    assert at == len(planes)
    return head, columns


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


def steps_of(builder, count=10, operators=20):
    """Steps of 1 ms; the seventh takes three times as long. Each operator takes 10 ns, every fifth
    900 ns, and launches a kernel."""
    at = 0
    for number in range(count):
        lasts = 3_000_000 if number == 6 else 1_000_000
        builder.step(number, at, lasts - 100)
        for i in range(operators):
            begin = at + 1000 + i * 2000
            builder.op("long" if i % 5 == 0 else "short", begin, 900 if i % 5 == 0 else 10)
            builder.launch(begin + 1, 5, "gemm", runs_at=begin + 20, for_ns=700)
        builder.launch(at + 900_000, 5, "last", runs_at=at + lasts - 2000, for_ns=1500)
        at += lasts
    return builder.trace()


def test_long_recordings_have_some_steps_in_full_and_count_everything_else():
    trace = steps_of(TraceBuilder())
    whole, report = timeline(trace), diagnose(trace)
    chosen = full_steps(trace, report)
    assert [step.why[0] for step in chosen[:2]] == ["typical", "exceptional"]
    assert chosen[1].number == 6
    shown = folded(trace, whole, chosen, 350)
    drawn = shown.drawn
    assert shown.in_full == chosen[:2]
    for step in shown.in_full:
        inside = (drawn.slices.start_ns >= step.start_ns) & (drawn.slices.start_ns < step.end_ns)
        assert not drawn.slices.count[inside].any()
        assert int(inside.sum()) >= 62
    alone = int((drawn.slices.count == 0).sum())
    assert int(drawn.slices.count.sum()) + alone == len(whole.slices)
    assert len(drawn.slices) <= 350 < len(whole.slices)
    assert f"{len(whole.slices) - alone:,} of {len(whole.slices):,} events" in drawn.left_out[0]
    head, _ = unpacked(pack(trace, drawn, report))
    counted = dict(
        zip(head["names"], zip(head["events"], head["total_ns"], strict=True), strict=True)
    )
    assert counted["short"] == (160, 1600)
    assert counted["long"] == (40, 36_000)
    assert counted["gemm"] == (200, 140_000)


def test_all_arguments_of_an_event_and_its_line_are_on_the_page():
    builder = TraceBuilder()
    builder.python("train.py(12): step", 0, 1000)
    builder.op("aten::mm", 10, 200, shapes="[[8, 8], [8, 8]]")
    builder.launch(20, 5, "void at::native::f<float>(int)", runs_at=100, for_ns=40)
    trace = builder.trace()
    head, columns = unpacked(pack(trace, timeline(trace), full_report()))
    names = [head["names"][i] for i in columns["name"]]
    operator, kernel = names.index("aten::mm"), 0
    assert head["details"][columns["detail"][operator] - 1]["shapes"] == "[[8, 8], [8, 8]]"
    assert head["sources"][columns["source"][kernel] - 1] == "train.py:12 in step"
    assert head["short"][str(columns["name"][kernel])] == "f"


@pytest.mark.parametrize("seconds", [1, 100])
def test_long_recordings_have_coarser_ticks(seconds):
    builder = TraceBuilder()
    builder.op("first", 0, 10)
    builder.op("last", seconds * 10**9 - 100, 100)
    trace = builder.trace()
    head, columns = unpacked(pack(trace, timeline(trace), full_report()))
    ticks = int(columns["start"].sum())
    assert ticks * head["tick_ns"] == pytest.approx(seconds * 1e9, abs=200)
