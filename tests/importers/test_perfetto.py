"""Perfetto's protobuf, written here field by field."""

import random
import struct
from dataclasses import fields

import pytest

from fuzz.shapes import odd_fields
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.open import format_of
from pinchpoint.importers.perfetto import packets
from pinchpoint.importers.perfetto.packets import read_slices
from pinchpoint.trace import ApiKind, DeviceKind, HostKind
from xplane_messages import varint

BEGIN, END = 1, 2
HOST, QUEUE = 10, 20


def part(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def fixed(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def packet(*parts, time=None, sequence=1):
    body = b"" if time is None else part(8, time)
    return part(1, body + part(10, sequence) + b"".join(parts))


def event(kind, track, *more):
    return part(11, part(9, kind) + part(11, track) + b"".join(more))


def note(name, value):
    return part(4, part(10, name) + (part(6, value) if isinstance(value, str) else part(3, value)))


def slice_on(track, name, category, begin, end, *more):
    return packet(
        event(BEGIN, track, part(23, name), part(22, category), *more), time=begin
    ) + packet(event(END, track), time=end)


TRACKS = packet(
    part(60, part(1, HOST) + part(4, part(1, 7) + part(2, 70) + part(5, "python")))
) + packet(part(60, part(1, QUEUE) + part(2, "COMPUTE AGENT [2] QUEUE [3] (GPU)")))


def read(folder, *content, name="t.pftrace"):
    path = folder / name
    path.write_bytes(b"".join(content))
    return load(path)


def test_calls_kernels_and_what_links_them(tmp_path):
    trace = read(
        tmp_path,
        TRACKS,
        slice_on(HOST, "step", "marker_api", 1000, 9000),
        slice_on(HOST, "hipLaunchKernel", "hip_api", 2000, 2500, note("corr_id", 5)),
        slice_on(QUEUE, "gemm", "kernel_dispatch", 3000, 6000, note("corr_id", 5)),
        slice_on(QUEUE, "H2D", "memory_copy", 6500, 7000),
    )
    assert trace.source.format == "perfetto"
    assert trace.device_ops["start_ns"].tolist() == [2000, 5500]
    assert trace.device_ops["duration_ns"].tolist() == [3000, 500]
    assert trace.device_ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY]
    assert trace.device_ops["device"].tolist() == [2, 2]
    assert trace.device_ops["stream"].tolist() == [3, 3]
    assert trace.api_calls["kind"].tolist() == [ApiKind.LAUNCH]
    assert trace.device_ops.known("api_call").tolist() == [True, False]
    assert trace.host_ops["kind"].tolist() == [HostKind.ANNOTATION]
    assert trace.names[int(trace.host_ops["name"][int(trace.device_ops["host_op"][0])])] == "step"
    assert trace.threads[0].thread == "70"
    assert trace.devices[0].vendor == "amd"


def test_flows_link_where_no_number_does(tmp_path):
    trace = read(
        tmp_path,
        TRACKS,
        slice_on(HOST, "hipLaunchKernel", "rocm_hip", 2000, 2500, fixed(47, 99)),
        slice_on(QUEUE, "gemm", "device_hip", 3000, 6000, fixed(48, 99)),
    )
    assert trace.device_ops.known("api_call").all()


def test_interned_names_and_clocks_of_a_sequence(tmp_path):
    names = part(12, part(2, part(1, 1) + part(2, "work")) + part(1, part(1, 1) + part(2, "user")))
    clocks = part(
        6,
        part(1, part(1, 6) + part(2, 5_000_000))
        + part(1, part(1, 64) + part(2, 5000) + part(3, 1) + part(4, 1000)),
    )
    defaults = part(59, part(58, 64) + part(11, part(11, HOST)))
    trace = read(
        tmp_path,
        TRACKS,
        packet(clocks, defaults, part(13, 1), names, time=None),
        packet(part(11, part(9, BEGIN) + part(10, 1) + part(3, 1)), time=10),
        packet(part(11, part(9, BEGIN) + part(10, 1) + part(3, 1)), time=5),
        packet(part(11, part(9, END)), time=7),
        packet(part(11, part(9, END)), time=1),
    )
    assert [trace.names[n] for n in trace.host_ops["name"]] == ["work", "work"]
    assert trace.host_ops["start_ns"].tolist() == [0, 5000]
    assert trace.host_ops["duration_ns"].tolist() == [13_000, 7000]
    assert trace.host_ops["parent"].tolist() == [0, 0]
    assert trace.host_ops.known("parent").tolist() == [False, True]


def test_times_that_the_recorder_noted_are_believed(tmp_path):
    trace = read(
        tmp_path,
        TRACKS,
        slice_on(QUEUE, "a", "kernel_dispatch", 1, 2, note("begin_ns", 500), note("end_ns", 900)),
    )
    assert trace.device_ops["duration_ns"].tolist() == [400]


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_half_a_file_is_read_and_said(tmp_path, cut):
    content = TRACKS + b"".join(
        slice_on(QUEUE, "gemm", "kernel_dispatch", at, at + 50) for at in range(1000, 9000, 100)
    )
    trace = read(tmp_path, content[:-cut])
    assert trace.source.truncated
    assert 70 <= len(trace.device_ops) <= 80


def test_a_trace_without_slices_says_what_to_record(tmp_path):
    with pytest.raises(UnreadableFile, match="without a single slice") as caught:
        read(tmp_path, TRACKS)
    assert "rocprofv3" in caught.value.hint


def test_it_is_known_by_what_it_holds(tmp_path):
    path = tmp_path / "perfetto-trace-12.proto"
    path.write_bytes(TRACKS + slice_on(QUEUE, "gemm", "kernel_dispatch", 1, 2))
    assert format_of(path) == "perfetto"
    path.write_bytes(part(1, part(2, "/device:GPU:0") + part(1, 3)))  # a plane of XLA
    assert format_of(path) != "perfetto"


def test_a_track_that_lies_in_itself_is_no_endless_search(tmp_path):
    loop = packet(part(60, part(1, 30) + part(5, 31))) + packet(part(60, part(1, 31) + part(5, 30)))
    trace = read(tmp_path, loop, slice_on(30, "x", "user", 1, 5))
    assert len(trace.host_ops) == 1


def test_a_number_in_place_of_an_event_is_none():
    trace = packet(part(11, 3)) + packet(event(BEGIN, HOST, part(23, "aten::mm")), time=1)
    trace += packet(event(END, HOST), time=5)
    slices = read_slices(trace)
    assert (len(slices), list(slices.end_ns), slices.cut_off) == (1, [5], False)


def test_what_is_remembered_of_packets_changes_nothing(monkeypatch):
    rng = random.Random(5)
    pieces = [
        *(TRACKS, packet(part(13, 1)), packet(part(12, part(2, part(1, 3) + part(2, "told"))))),
        packet(part(59, part(11, part(11, QUEUE)))),
    ]
    for number in range(40):
        name = rng.choice(
            (part(23, "n" * rng.randrange(6)), part(10, 3), part(23, b"\xff\xba\x01"))
        )
        more = rng.choice((b"", part(22, "hip_api"), note("corr_id", 5), part(23, "again")))
        inner = [part(9, rng.choice((BEGIN, END))), part(11, rng.choice((HOST, QUEUE))), name, more]
        rng.shuffle(inner)
        pieces.append(
            packet(part(11, b"".join(inner)), time=number, sequence=rng.choice((1, 1, 2)))
        )
    for _ in range(60):
        data = b"".join(rng.choices(pieces, k=80))
        data = odd_fields(data, rng) if rng.random() < 0.5 else data
        monkeypatch.setattr(packets, "_SHORT_BYTES", 128)
        found = read_slices(data)
        monkeypatch.setattr(packets, "_SHORT_BYTES", -1)  # nothing is short
        plainly = read_slices(data)
        for each in fields(found):
            mine, other = getattr(found, each.name), getattr(plainly, each.name)
            same = (mine.freeze(), other.freeze()) if each.name == "texts" else (mine, other)
            assert same[0] == same[1], each.name
