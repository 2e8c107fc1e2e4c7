"""XPlane files: a message written here with known times, two real ones, and damaged ones."""

import gzip
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.xplane import claims
from pinchpoint.importers.xplane.space import Event, device_row
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind
from pinchpoint.trace.kinds import UNRECORDED_WAIT
from xplane_messages import event, message, meta

DATA = Path(__file__).parents[2] / "data/xplane"
H100, CPU = DATA / "h100_train.xplane.pb.gz", DATA / "cpu_train.xplane.pb.gz"


def space(base_ns=1000):
    host = message(
        (2, "/host:CPU"),
        *(meta(4, i, n) for i, n in enumerate(("train", "$a.py:7 f", "cuLaunchKernel (x)"), 1)),
        meta(5, 1, "step_num"),
        meta(5, 2, "correlation_id"),
        (
            3,
            message(
                (1, 9),
                (2, "python"),
                (3, base_ns),
                event(1, 0, 9_000_000, message((1, 1), (4, 3))),
                event(2, 1_000_999, 5_000_001),
                event(3, 2_000_000, 1_000_000, message((1, 2), (3, 77))),
            ),
        ),
    )
    device = message(
        (2, "/device:GPU:1"),
        meta(4, 1, "fusion_1"),
        meta(4, 2, "MemcpyH2D"),
        meta(5, 2, "correlation_id"),
        meta(5, 3, "kernel_details"),
        meta(5, 4, "regs:32 static_shared:16 dynamic_shared:4 grid:8,1,1 block:128,1,1 occ_pct:50"),
        meta(5, 5, "memcpy_details"),
        meta(5, 6, "kind_src:pinned kind_dst:device size:64 dest:0 async:1"),
        (
            3,
            message(
                (1, 14),
                (2, "Stream #14(Compute)"),
                (3, base_ns),
                event(1, 4_000_000, 2_000_000, message((1, 2), (3, 77)), message((1, 3), (7, 4))),
                event(2, 7_000_000, 500_000, message((1, 5), (7, 6))),
            ),
        ),
        (3, message((1, 15), (2, "XLA Modules"), (3, base_ns), event(1, 0, 9_000_000))),
    )
    return message((1, host), (1, device))


def test_host_events_become_rows_steps_and_calls(written):
    trace = written(space())
    host = trace.host_ops
    assert [trace.names[i] for i in host["name"]] == ["train", "a.py(7): f"]
    assert host["kind"].tolist() == [HostKind.ANNOTATION, HostKind.PYTHON]
    assert host["start_ns"].tolist() == [1000, 2000]
    assert host["duration_ns"].tolist() == [9000, 5001]  # both ends are rounded down
    assert [host.value("parent", i) for i in range(2)] == [None, 0]
    assert [trace.steps.value("number", i) for i in range(1)] == [3]
    assert trace.api_calls["kind"].tolist() == [ApiKind.LAUNCH]
    assert trace.api_calls.value("host_op", 0) == 1


def test_streams_become_device_operations_and_other_lines_do_not(written):
    trace = written(space())
    ops = trace.device_ops
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY]
    assert ops["start_ns"].tolist() == [5000, 8000]
    assert (ops.value("device", 0), ops.value("stream", 0)) == (1, 14)
    assert (ops.value("api_call", 0), ops.value("host_op", 0)) == (0, 1)
    assert (ops.value("api_call", 1), ops.value("host_op", 1)) == (None, None)
    assert (ops.value("registers", 0), ops.value("shared_bytes", 0)) == (32, 20)
    assert (trace.text(ops, "grid", 0), trace.text(ops, "block", 0)) == ("[8, 1, 1]", "[128, 1, 1]")
    assert (ops.value("bytes", 1), ops.value("from_memory", 1)) == (64, 2)


def test_times_since_1970_are_counted_from_the_first(written):
    trace = written(space(base_ns=1_700_000_000_000_000_000))
    assert trace.origin_ns == 1_700_000_000_000_000_000
    assert trace.host_ops["start_ns"].tolist() == [0, 1000]


def test_what_the_recordings_hold():
    trace = load(H100)
    assert (trace.source.format, trace.source.producer) == ("xplane", "jax 0.11.2")
    assert (trace.devices[0].name, trace.devices[0].multiprocessors) == (
        "NVIDIA H100 80GB HBM3",
        132,
    )
    assert len(trace.device_ops) == 140
    assert trace.device_ops.known("api_call").all()
    assert trace.steps["number"].tolist() == [0, 1, 2, 3, 4]
    cpu = load(CPU)
    assert len(cpu.host_ops) == 2626 + 10  # waits that no event shows
    assert len(cpu.device_ops) == 0


@pytest.mark.parametrize("file", [H100, CPU], ids=["h100", "cpu"])
def test_events_equal_those_of_jaxs_own_reader(file):
    profiler = pytest.importorskip("jax.profiler", reason="jax is not installed")
    data = profiler.ProfileData.from_serialized_xspace(gzip.decompress(file.read_bytes()))
    asked_ns = [
        int(e.start_ns)
        for plane in data.planes
        for line in plane.lines
        for e in line.events
        if e.name.endswith(" stop_trace")
    ]
    end_ns = max(asked_ns, default=1 << 62)  # frames later than that are the recorder's
    theirs = sorted(
        (int(e.start_ns), e.name.partition(" (CudaGraph")[0].removeprefix("$"))
        for plane in data.planes
        for line in plane.lines
        if plane.name == "/host:CPU" or line.name.startswith("Stream")
        for e in line.events
        if not e.name.startswith("$") or e.start_ns < end_ns
    )
    trace = load(file)
    ours = sorted(
        (int(start), _as_jax_spells(trace.names[name], int(kind)))
        for rows in (trace.host_ops, trace.api_calls, trace.device_ops)
        for start, name, kind in zip(rows["start_ns"], rows["name"], _python(rows), strict=True)
        if trace.names[name] != UNRECORDED_WAIT
    )
    assert len(ours) == len(theirs)
    assert ours == theirs


def _python(rows):
    return rows["kind"] == HostKind.PYTHON if rows.name == "host_ops" else np.zeros(len(rows), bool)


def _as_jax_spells(name, is_python):
    if not is_python or "): " not in name:
        return name
    place, _, function = name.partition("): ")
    return f"{place.replace('(', ':')} {function}"


@pytest.mark.parametrize(
    ("head", "claimed"),
    [
        (space()[:4096], True),
        (b'\n{"traceEvents": [], "x": "/host:CPU"}', False),
        (b"\n", False),
        (b"", False),
    ],
)
def test_only_messages_that_begin_with_a_plane_are_claimed(head, claimed):
    assert claims(Path("x"), head) is claimed


def test_damaged_files_are_refused_or_read_and_nothing_else(tmp_path):
    whole = space()
    chance = random.Random(1)
    file = tmp_path / "x.xplane.pb"
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(2, len(broken))] = chance.randrange(256)
        file.write_bytes(broken[: chance.randint(20, len(broken))])
        with suppress(UnreadableFile):
            load(file)


def test_a_message_without_events_is_refused(written):
    with pytest.raises(UnreadableFile, match="without a single event"):
        written(message((1, message((2, "/host:CPU")))))


def test_threads_of_pinchpoint_run_are_none_of_the_programs(written):
    """When they begin to close the recording, the program's frames end: it is held up then."""
    names = (
        "$a.py:7 step",
        "$quiet_watch.py:341 _wait_while_it_fits",
        "$recording.py:159 close",
        "$pace.py:44 woke",
    )
    watch = event(2, 0, 500_000_000), event(3, 500_000_000, 300_000_000)
    host = message(
        (2, "/host:CPU"),
        *(meta(4, i, n) for i, n in enumerate(names, 1)),
        (3, message((1, 9), (2, "python"), (3, 0), event(1, 0, 900_000_000))),
        (3, message((1, 8), (2, ""), (3, 0), *watch)),
        (3, message((1, 7), (2, ""), (3, 0), event(4, 0, 100))),
    )
    trace = written(message((1, host)))
    assert [thread.label for thread in trace.threads] == ["python"]
    assert trace.host_ops["duration_ns"].tolist() == [500_000]


def test_frames_end_where_the_recording_was_asked_to_end(written):
    names = ("$a.py:7 step", "$profiler.py:271 stop_trace", "$a.py:9 next_step", "op")
    host = message(
        (2, "/host:CPU"),
        *(meta(4, i, n) for i, n in enumerate(names, 1)),
        (
            3,
            message((1, 9), (2, "python"), (3, 0), event(1, 0, 900_000_000), event(3, 500_000, 10)),
        ),
        (3, message((1, 8), (2, "recorder"), (3, 0), event(2, 400_000, 800_000_000))),
        (3, message((1, 7), (2, "tf_XLAEigen"), (3, 0), event(4, 600_000, 100_000))),
    )
    trace = written(message((1, host)))
    rows = trace.host_ops
    found = [
        (trace.names[n], s, d)
        for n, s, d in zip(rows["name"], rows["start_ns"], rows["duration_ns"], strict=True)
    ]
    assert found == [("a.py(7): step", 0, 400), ("op", 600, 100)]


def reading(*, on_device):
    """A thread that reads an array (in frames of JAX) and waits for two others, in µs."""
    names = (
        "np.asarray(jax.Array)", "$array.py:629 _value", "$api.py:3209 block_until_ready",
        "$array.py:400 block_until_ready", "$mine.py:4 block_until_ready",
    )  # fmt: skip
    spans = ((1, 1, 9), (2, 2, 7), (3, 20, 10), (4, 21, 8), (5, 40, 10))
    host = message(
        (2, "/host:CPU"),
        *(meta(4, i, n) for i, n in enumerate(names, 1)),
        (
            3,
            message(
                (1, 9),
                (2, "python"),
                (3, 0),
                *(event(i, at * 1_000_000, us * 1_000_000) for i, at, us in spans),
            ),
        ),
    )
    line = message((1, 14), (2, "Stream #14(Compute)"), (3, 0), event(1, 0, 5_000_000))
    device = message((2, "/device:GPU:0"), meta(4, 1, "fusion_1"), (3, line))
    return message((1, host), (1, device)) if on_device else message((1, host))


def test_where_jax_waits_for_arrays_is_a_call_that_waits(written):
    trace = written(reading(on_device=True))
    calls, host = trace.api_calls, trace.host_ops
    assert calls["kind"].tolist() == [ApiKind.SYNC_EVENT] * 2
    assert list(zip(calls["start_ns"], calls["duration_ns"], strict=True)) == [
        (1_000, 9_000),
        (20_000, 10_000),
    ]
    assert trace.names[calls["name"][0]] == "np.asarray(jax.Array)"
    assert [calls.value("host_op", i) for i in range(2)] == [0, 2]
    assert not calls.known("correlation").any()
    assert len(host) == 5
    assert not len(written(reading(on_device=False)).api_calls)


def test_calls_are_named_after_what_they_start(written):
    """A launch and a copy of the thread that launches; a copy of one of XLA's own threads, and one
    that is put into a graph."""
    names = ("input_fusion_9", "MemcpyD2D", "MemcpyD2H")
    host = message(
        (2, "/host:CPU"),
        *(meta(4, i, n) for i, n in enumerate(names, 1)),
        meta(5, 2, "correlation_id"),
        (
            3,
            message(
                (1, 9),
                (2, "python"),
                (3, 0),
                event(1, 1_000_000, 2_000_000, message((1, 2), (3, 7))),
                event(2, 4_000_000, 1_000_000, message((1, 2), (3, 8))),
                event(2, 6_000_000, 1_000_000, message((1, 2), (3, 10))),
            ),
        ),
        (
            3,
            message(
                (1, 8),
                (2, "pool"),
                (3, 0),
                event(3, 5_000_000, 1_000_000, message((1, 2), (3, 9))),
            ),
        ),
    )
    ran = (
        event(i, at * 1_000_000, 1_000, message((1, 2), (3, at)))
        for i, at in ((1, 7), (2, 8), (3, 9))
    )
    device = message(
        (2, "/device:GPU:0"),
        *(meta(4, i, n) for i, n in enumerate(names, 1)),
        meta(5, 2, "correlation_id"),
        (3, message((1, 14), (2, "Stream #14(Compute)"), (3, 0), *ran)),
    )
    calls = written(message((1, host), (1, device))).api_calls
    assert calls["kind"].tolist() == [ApiKind.LAUNCH, ApiKind.COPY]
    assert calls["correlation"].tolist() == [7, 8]


def test_copies_by_the_drivers_kernels_are_copies_within_the_device():
    """In graphs: ``memcpy32_post`` with a launch and without sizes."""
    details = {"kernel_details": "regs:32 static_shared:0 dynamic_shared:0 grid:8,1,1 block:64,1,1"}
    row = device_row(Event("memcpy32_post", 0, 5, details), 0, 5, 0, 7)
    assert (row["kind"], row["bytes"]) == (DeviceKind.COPY, None)
    assert row["from_memory"] == row["to_memory"] == MemoryKind.DEVICE
    unknown = device_row(Event("MemcpyP2P", 0, 5, {}), 0, 5, 0, 7)
    assert unknown["from_memory"] is None
