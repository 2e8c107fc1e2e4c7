import gzip
import json

import pytest

from pinchpoint.importers import load
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind


def complete(name, cat, ts, dur, **args):
    place = args.pop("place", (10, 10))
    event = {"ph": "X", "cat": cat, "name": name, "pid": place[0], "tid": place[1]}
    return event | {"ts": ts, "dur": dur, "args": args}


GPU = {"place": (0, 7), "device": 0, "stream": 7}
COPY = "Memcpy HtoD (Pageable -> Device)"
SHAPES = {"External id": 2, "Input Dims": [[2, 3], [3, 4]]}


EVENTS = [
    complete("ProfilerStep#3", "user_annotation", 100.0, 50.5, **{"External id": 1}),
    complete("aten::mm", "cpu_op", 101.001, 20.0, **SHAPES),
    complete("cudaLaunchKernel", "cuda_runtime", 110, 5, correlation=7),
    complete("gemm", "kernel", 130.25, 10, correlation=7, grid=[1, 2, 3], **GPU),
    complete(COPY, "gpu_memcpy", 141, 1, correlation=8, bytes=64, **GPU),
    complete("ProfilerStep#3", "gpu_user_annotation", 130.25, 10, place=(0, 7)),
]


def written(path, document):
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


@pytest.mark.parametrize("as_list", [False, True])
def test_a_small_trace(tmp_path, as_list):
    document = EVENTS if as_list else {"traceEvents": EVENTS, "baseTimeNanoseconds": 10**18}
    trace = load(written(tmp_path / "a.json.gz", document))
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert [trace.text(host, "name", i) for i in range(2)] == ["ProfilerStep#3", "aten::mm"]
    assert host["kind"].tolist() == [HostKind.ANNOTATION, HostKind.OPERATOR]
    assert host["start_ns"].tolist() == [0, 1001]
    assert host["duration_ns"].tolist() == [50_500, 20_000]
    assert host.value("parent", 0) is None
    assert host.value("parent", 1) == 0
    assert trace.text(host, "shapes", 1) == "[[2,3],[3,4]]"
    assert calls["kind"].tolist() == [ApiKind.LAUNCH]
    assert calls["host_op"].tolist() == [1]
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY]
    assert ops["api_call"][0] == 0
    assert ops["host_op"][0] == 1
    assert ops.value("api_call", 1) is None
    assert (ops.value("bytes", 0), ops.value("bytes", 1)) == (None, 64)
    assert ops["from_memory"][1] == MemoryKind.PAGEABLE
    assert trace.steps["number"].tolist() == [3]
    assert trace.text(trace.device_annotations, "name", 0) == "ProfilerStep#3"
    assert trace.origin_ns == (None if as_list else 10**18 + 100_000)


def launched(grid, block, **said):
    return complete("volta_sgemm_128x64_nn", "kernel", 10 + grid, 1, grid=[grid, 1, 1],
                    block=[block, 1, 1], **said, **GPU)  # fmt: skip


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ([launched(14400, 64, **{"warps per SM": 360.0})], [80]),
        ([launched(16, 640, **{"blocks per SM": 0.14814815, "warps per SM": 2.962963})], [108]),
        ([launched(80, 64, **{"blocks per SM": 1.0}), launched(54, 64, **{"blocks per SM": 0.5})],
         []),  # they do not agree
        ([launched(80, 64)], []),
        ([launched(80, 64, **{"blocks per SM": 0.0})], []),
    ],
)  # fmt: skip
def test_multiprocessors_of_devices_that_are_not_described(tmp_path, launches, expected):
    trace = load(written(tmp_path / "a.json.gz", launches))
    assert [device.multiprocessors for device in trace.devices] == expected
    assert all(device.name is None for device in trace.devices)


def test_what_is_described_is_not_asked_of_launches(tmp_path):
    described = [{"id": 0, "name": "Tesla T4", "numSms": 40}]
    document = {"deviceProperties": described, "traceEvents": [
        launched(80, 64, **{"blocks per SM": 1.0})
    ]}  # fmt: skip
    assert [d.multiprocessors for d in load(written(tmp_path / "a.json.gz", document)).devices] == [
        40
    ]


@pytest.mark.parametrize(("inputs", "known"), [([[], []], False), ([[], [[2, 3]]], True)])
def test_empty_shapes_of_all_operators_are_none(tmp_path, inputs, known):
    events = [
        complete(f"aten::op{i}", "Operator", 10 * i, 5, **{"Input dims": dims})
        for i, dims in enumerate(inputs)
    ]
    host = load(written(tmp_path / "a.json.gz", {"traceEvents": events})).host_ops
    assert [host.value("shapes", i) is not None for i in range(2)] == [known, known]
