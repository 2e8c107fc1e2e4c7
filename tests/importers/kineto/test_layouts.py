"""Every spelling of a trace that recorders and tools have written since 2021."""

import gzip
import json

import pytest

from kineto_documents import SCANNERS, call, document, event, kernel, launched, op, step, written
from pinchpoint.importers.kineto import read
from pinchpoint.trace import ApiKind, DeviceKind, FlowKind, HostKind, MemoryKind

EVENTS = [
    step(1, 100, 50),
    op("aten::mm", 101.001, 20, External_id=2, Input_Dims=[[2, 3]]),
    *launched("gemm", 110, 115.5, 7, 5),
]


def names(trace, table):
    rows = getattr(trace, table)
    return [trace.text(rows, "name", row) for row in range(len(rows))]


def check(trace):
    assert names(trace, "host_ops") == ["ProfilerStep#1", "aten::mm"]
    assert trace.host_ops["start_ns"].tolist() == [0, 1001]
    assert trace.device_ops["start_ns"].tolist() == [15_500]
    assert trace.device_ops["host_op"].tolist() == [1]
    assert trace.text(trace.host_ops, "shapes", 1) == "[[2,3]]"
    assert trace.steps["number"].tolist() == [1]


WHOLE = document(*EVENTS)
PRETTY = json.dumps(json.loads(WHOLE), indent=4)
SPELLINGS = {
    "compact": json.dumps(json.loads(WHOLE), separators=(",", ":")),
    "one key a line": PRETTY,
    "windows lines": PRETTY.replace("\n", "\r\n"),
    "bare list": json.dumps(EVENTS),
    "keys sorted": json.dumps(json.loads(WHOLE), sort_keys=True),
    "byte order mark": "\ufeff" + WHOLE,
    "header after the events": WHOLE[:-1].replace('"schemaVersion": 1, ', "")
    + ', "schemaVersion": 1}',
    "trailing commas": WHOLE.replace("}]", "},]").replace("}}", "},}"),
    "missing comma": WHOLE.replace('"ts": 101.001, ', '"ts": 101.001\n'),
    "not a number": WHOLE.replace(
        '"External id": 2', '"External id": NaN, "x": N/A, "y": -Infinity'
    ),
    "control characters": WHOLE.replace('"args": {}', '"args": {"a": "\x01\t\n"}'),
    "quoted numbers": WHOLE.replace("101.001", '"101.001"'),
    "exponents": WHOLE.replace("101.001", "1.01001E2"),
    "null parents": WHOLE.replace('"External id": 2', '"Python parent id": null'),
    "text around the list": "  " + WHOLE + "\n\n",
}


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_spellings(tmp_path, spelling, name, scanner):
    check(read(written(tmp_path, SPELLINGS[spelling], name), scanner=scanner))


@pytest.mark.parametrize("scanner", SCANNERS)
def test_every_cut_keeps_the_whole_events_before_it(tmp_path, scanner):
    ends = [i + 1 for i in range(len(WHOLE)) if WHOLE[: i + 1].endswith("}}")]
    for cut in range(ends[0], len(WHOLE) - 1, 7):
        trace = read(written(tmp_path, WHOLE[:cut]), scanner=scanner)
        rows = sum(len(t) for t in (trace.host_ops, trace.api_calls or (), trace.device_ops or ()))
        assert rows == sum(end <= cut for end in ends)
        assert trace.source.truncated == (cut < WHOLE.rindex("]") + 1)


@pytest.mark.parametrize("scanner", SCANNERS)
def test_a_cut_gzip_keeps_what_it_holds(tmp_path, scanner):
    many = json.dumps([op(f"op {i}", 100 + i, 0.5) for i in range(20_000)])
    raw = gzip.compress(many.encode())
    path = tmp_path / "trace.json.gz"
    path.write_bytes(raw[: len(raw) // 2])
    trace = read(path, scanner=scanner)
    assert 5_000 < len(trace.host_ops) < 15_000
    assert trace.source.truncated
    assert trace.text(trace.health, "fact", 0) == "cut-off"
    path.write_bytes(
        gzip.compress(many[:900_000].encode()) + gzip.compress(many[900_000:].encode())
    )
    assert len(read(path, scanner=scanner).host_ops) == 20_000


def test_categories_and_ids_of_2021(tmp_path):
    host, device = (10, "4093687616"), (0, "stream 7")
    trace = read(
        written(
            tmp_path,
            json.dumps(
                [
                    event("aten::mm", "Operator", 100, 50, place=host, Input_dims=[[2]], Device=0),
                    event("cudaLaunchKernel", "Runtime", 110, 5, place=host, correlation=5),
                    event("gemm", "Kernel", 120, 7, place=device, correlation=5, external_id=0),
                    event(
                        "Memset (Device)", "Memset", 130, 1, place=device, correlation=6, bytes=8
                    ),
                    {
                        "ph": "s",
                        "id": 5,
                        "pid": 10,
                        "tid": 1,
                        "ts": 110,
                        "cat": "async",
                        "name": "launch",
                    },
                ]
            ),
        )
    )
    assert trace.host_ops["kind"].tolist() == [HostKind.OPERATOR]
    assert trace.text(trace.host_ops, "shapes", 0) == "[[2]]"
    assert trace.threads[0].thread == "4093687616"
    assert trace.device_ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.MEMSET]
    assert trace.device_ops["stream"].tolist() == [7, 7]
    assert trace.device_ops["host_op"][0] == 0
    assert len(trace.flows) == 0


def test_calls_of_other_vendors(tmp_path):
    trace = read(
        written(
            tmp_path,
            document(
                call("hipExtModuleLaunchKernel", 1, 1, 1),
                event("zeCommandListAppendMemoryCopy", "xpu_runtime", 3, 1, correlation=2),
                event("cuLaunchKernelEx_ptsz", "cuda_driver", 5, 1, correlation=3),
                event("synchronizeStream", "mtia_runtime", 7, 1),
                kernel("k", 9, 1, 1),
            ),
        )
    )
    kinds = [ApiKind.LAUNCH, ApiKind.COPY, ApiKind.LAUNCH, ApiKind.SYNC_STREAM]
    assert trace.api_calls["kind"].tolist() == kinds
    assert names(trace, "api_calls")[2] == "cuLaunchKernelEx"


def test_xpu_kernels_without_stream_or_grid(tmp_path):
    trace = read(written(tmp_path, document(event("k", "kernel", 1, 2, place=(1, 3), device=1))))
    ops = trace.device_ops
    assert (ops.value("device", 0), ops.value("stream", 0), ops.value("grid", 0)) == (1, 3, None)


def test_correlation_zero_means_none(tmp_path):
    events = [call("hipLaunchKernel", 1, 1, 0), kernel("ncclDevKernel_Generic", 3, 1, 0)]
    trace = read(written(tmp_path, document(*events)))
    assert trace.device_ops.value("api_call", 0) is None


def test_processes_that_share_a_file_and_correlations(tmp_path):
    events = [
        call("cudaLaunchKernel", 1, 1, 5),
        kernel("first", 3, 1, 5),
        call("cudaLaunchKernel", 11, 1, 5),
        kernel("second", 13, 1, 5),
    ]
    trace = read(written(tmp_path, document(*events)))
    assert trace.device_ops["api_call"].tolist() == [0, 1]


def test_external_id_tells_the_operator_where_the_launch_is_missing(tmp_path):
    events = [op("aten::mm", 1, 5, External_id=9), kernel("k", 8, 1, 77, External_id=9)]
    trace = read(written(tmp_path, document(*events)))
    assert trace.device_ops["host_op"].tolist() == [0]


def test_kernels_go_to_the_operator_above_a_python_frame(tmp_path):
    events = [
        op("MyFunction", 0, 50),
        event("model.py(3): forward", "python_function", 1, 40),
        *launched("k", 5, 8, 2, 4),
    ]
    trace = read(written(tmp_path, document(*events)))
    assert trace.api_calls["host_op"].tolist() == [1]
    assert trace.device_ops["host_op"].tolist() == [0]


def test_graph_launches_own_all_their_nodes(tmp_path):
    nodes = [kernel("k", 5 + i, 1, 3, graph_node_id=100 + i) for i in range(3)]
    trace = read(written(tmp_path, document(call("cudaGraphLaunch", 1, 2, 3), *nodes)))
    assert trace.api_calls["kind"].tolist() == [ApiKind.GRAPH_LAUNCH]
    assert trace.device_ops["api_call"].tolist() == [0, 0, 0]
    assert trace.device_ops["graph_node"].tolist() == [100, 101, 102]


def test_collectives_keep_their_arguments(tmp_path):
    said = {"Collective_name": "_allgather_base", "In_msg_nelems": 4, "dtype": "Float"}
    trace = read(written(tmp_path, document(kernel("ncclDevKernel_AllGather", 1, 2, 3, **said))))
    ops = trace.device_ops
    assert ops["kind"].tolist() == [DeviceKind.COLLECTIVE]
    assert trace.text(ops, "collective", 0) == "allgather"
    arguments = json.loads(trace.text(ops, "collective_args", 0))
    assert arguments == {"In msg nelems": 4, "dtype": "Float"}


def test_flows(tmp_path):
    arrow = {"pid": 10, "cat": "fwdbwd", "name": "fwdbwd", "id": 4}
    wait = event("Stream Wait Event", "cuda_sync", 30, 5, place=(0, 7), stream=7, device=0)
    wait["args"]["wait_on_cuda_event_record_corr_id"] = 88
    trace = read(
        written(
            tmp_path,
            document(
                op("x", 0, 100),
                arrow | {"ph": "s", "tid": 10, "ts": 1},
                arrow | {"ph": "f", "tid": 11, "ts": 20},
                wait,
                event("Stream Sync", "cuda_sync", 40, 5, place=(0, 7), stream=9, correlation=6),
            ),
        )
    )
    flows = trace.flows
    kinds = [FlowKind.FORWARD_BACKWARD, FlowKind.EVENT_WAIT, FlowKind.DEVICE_SYNC]
    assert flows["kind"].tolist() == kinds
    assert flows["start_ns"].tolist() == [1000, 30_000, 40_000]
    assert flows["end_ns"].tolist() == [20_000, 35_000, 45_000]
    assert [trace.threads[i].thread for i in (flows["from_thread"][0], flows["to_thread"][0])] == [
        "10",
        "11",
    ]
    assert flows.value("from_correlation", 1) == 88
    assert flows.value("to_stream", 2) == 9
    assert trace.device_ops is None or len(trace.device_ops) == 0


def test_memory_events_of_both_forms(tmp_path):
    place = {"ph": "i", "name": "[memory]", "s": "t", "pid": 10, "tid": 10}
    old = place | {"ts": 2, "args": {"Device Type": 0, "Device Id": -1, "Bytes": 64}}
    sums = {"Total Allocated": 500, "Total Reserved": 900, "Addr": 2**64 - 512}
    new = place | {"ts": 3, "args": {"Device Type": 1, "Device Id": 2, "Bytes": -64, **sums}}
    rows = read(written(tmp_path, document(op("x", 1, 9), old, new))).allocations
    assert rows["time_ns"].tolist() == [1000, 2000]
    assert rows["bytes"].tolist() == [64, -64]
    assert [rows.value("address", i) for i in (0, 1)] == [None, 2**64 - 512]
    assert [rows.value("device", i) for i in (0, 1)] == [None, 2]
    assert [rows.value("allocated_bytes", i) for i in (0, 1)] == [None, 500]


def test_counters(tmp_path):
    sample = {
        "ph": "C",
        "name": "DRAM",
        "pid": "GPU 1 Counters",
        "ts": 5,
        "args": {"read": 1.5, "x": "y"},
    }
    ranges = event("k", "cuda_profiler_range", 9, 1, place=(0, 0), sm_active=3)
    trace = read(written(tmp_path, document(op("x", 1, 9), sample, ranges)))
    assert trace.text(trace.counters, "name", 0) == "DRAM: read"
    assert trace.counters["value"].tolist() == [1.5]
    assert trace.counters["device"].tolist() == [1]
    assert trace.text(trace.kernel_counters, "metric", 0) == "sm active"


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize("broken", [False, True])
def test_counters_of_all_spellings(tmp_path, scanner, broken):
    """In order of time; what has no time, no object or no number is no sample."""
    at = {"ph": "C", "pid": 0, "name": "power"}
    samples = (
        at | {"ts": 9, "args": {"power": 2, "on": True, "no": None}},
        at | {"ts": "5.5", "args": {"W": 3.25, "value": 1}},
        at | {"ts": 6, "args": [1, 2]},
        at | {"args": {"W": 3}},
    )
    text = document(op("x", 1, 9), *samples)
    if broken:  # the values of one sample are no JSON
        text = text.replace('"args": [1, 2]', '"args": {"W": nan}')
    trace = read(written(tmp_path, text), scanner=scanner)
    rows = trace.counters
    said = [trace.text(rows, "name", row) for row in range(len(rows))]
    assert said == ["power: W", "power", "power"]
    assert rows["value"].tolist() == [3.25, 1.0, 2.0]
    assert rows["time_ns"].tolist() == [4500, 4500, 8000]
    assert rows["device"].tolist() == [0, 0, 0]


def test_facts_of_the_header(tmp_path):
    properties = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80, "numSms": 132,
                   "computeMajor": 9, "computeMinor": 0}]  # fmt: skip
    labels = ["thread 10 (python3)", "thread 10 (pt_autograd_0)"]
    meta = [
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 10, "args": {"name": n}}
        for n in labels
    ]
    meta.append(
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": "python3"}}
    )
    trace = read(
        written(
            tmp_path,
            document(
                op("x", 1, 9),
                *meta,
                deviceProperties=properties,
                distributedInfo={"rank": 3, "world_size": 8},
                baseTimeNanoseconds=10**18,
                with_stack=1,
            ),
        )
    )
    device = trace.devices[0]
    assert (device.name, device.multiprocessors, device.vendor) == ("NVIDIA H100", 132, "nvidia")
    assert device.compute_capability == (9, 0)
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.host_ops["rank"].tolist() == [3]
    assert trace.origin_ns == 10**18 + 1000
    assert trace.threads[0].label == "thread 10 (pt_autograd_0)"
    assert trace.source.options["with_stack"] is True
    assert trace.source.recorder == "torch.profiler"


def test_absolute_times_keep_their_nanoseconds(tmp_path):
    text = document(op("a", 7777, 1), op("b", 8888, 1))
    text = text.replace("7777", "1712169113264587.123").replace("8888", "1712169113264588.001")
    trace = read(written(tmp_path, text))
    assert trace.origin_ns == 1712169113264587123
    assert trace.host_ops["start_ns"].tolist() == [0, 878]


def test_streams_of_a_jax_trace_are_the_device_side(tmp_path):
    labels = {
        ("process_name", 1, 0): "/device:GPU:2",
        ("process_name", 7, 0): "/host:CPU",
        ("thread_name", 1, 14): "Stream #14(Compute)",
        ("thread_name", 1, 15): "XLA Modules",
    }
    meta = [
        {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
        for (what, pid, tid), name in labels.items()
    ]
    spans = [("fusion_1", 1, 14), ("MemcpyH2D", 1, 14), ("jit_step", 1, 15), ("train", 7, 3)]
    events = [
        {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": 10 + i, "dur": 1.5}
        for i, (name, pid, tid) in enumerate(spans)
    ]
    for scanner in SCANNERS:
        text = document(*meta, *events, {})
        trace = read(written(tmp_path, text, "x.trace.json.gz"), scanner=scanner)
        assert names(trace, "host_ops") == ["train"]
        assert names(trace, "device_ops") == ["fusion_1", "MemcpyH2D"]
        assert trace.device_ops["device"].tolist() == [2, 2]
        assert trace.device_ops["stream"].tolist() == [14, 14]
        assert trace.device_ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY]
        assert not trace.device_ops.known("external_id").any()


def test_streams_of_a_timeline_of_tensorflow_1_are_the_device_side(tmp_path):
    processes = {
        1: "/device:GPU:1/stream:14 Compute",
        2: "/device:GPU:1/stream:all Compute",
        3: "/device:GPU:1/memcpy Compute",
        4: "/device:GPU:1/stream:14 Tensors",
        5: "/job:localhost/replica:0/task:0/device:CPU:0 Compute",
        6: "/device:GPU:0/stream:all Compute",
    }
    meta = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in processes.items()
    ]
    spans = [("Conv2D", 1), ("MEMCPYHtoD", 1), ("Conv2D", 2), ("MEMCPYHtoD", 3), ("x", 4)]
    spans += [("NoOp", 5), ("MatMul", 6)]
    events = [
        {"ph": "X", "cat": "Op", "name": name, "pid": pid, "tid": 0, "ts": 10 + i, "dur": 1}
        for i, (name, pid) in enumerate(spans)
    ]
    for scanner in SCANNERS:
        trace = read(written(tmp_path, document(*meta, *events)), scanner=scanner)
        assert names(trace, "host_ops") == ["NoOp"]
        assert trace.host_ops["kind"].tolist() == [HostKind.OPERATOR]
        assert names(trace, "device_ops") == ["Conv2D", "MEMCPYHtoD", "MatMul"]
        assert trace.device_ops["device"].tolist() == [1, 1, 0]
        assert trace.device_ops["stream"].tolist()[:2] == [14, 14]
        copy = trace.device_ops["kind"].tolist()[1]
        assert copy == DeviceKind.COPY
        assert trace.device_ops.value("from_memory", 1) == MemoryKind.HOST
        assert trace.source.recorder == "TensorFlow 1 timeline"


def test_the_first_timelines_of_tensorflow_say_gpu_alone(tmp_path):
    processes = {
        1: "/gpu:0/stream:12 Compute",
        2: "/gpu:0/stream:all Compute",
        3: "/gpu:0/memcpy Compute",
        4: "/job:localhost/replica:0/task:0/gpu:0 Compute",
        5: "/job:localhost/replica:0/task:0/cpu:0 Compute",
    }
    meta = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in processes.items()
    ]
    spans = [("MatMul", 1), ("MatMul", 2), ("MEMCPYHtoD", 3), ("Add", 4), ("NoOp", 5)]
    events = [
        {"ph": "X", "cat": "Op", "name": name, "pid": pid, "tid": 0, "ts": 10 + i, "dur": 1}
        for i, (name, pid) in enumerate(spans)
    ]
    for scanner in SCANNERS:
        trace = read(written(tmp_path, document(*meta, *events)), scanner=scanner)
        assert names(trace, "host_ops") == ["Add", "NoOp"]
        assert names(trace, "device_ops")[0] == "MatMul"
        assert trace.device_ops["stream"].tolist()[0] == 12
        assert trace.source.recorder == "TensorFlow 1 timeline"


@pytest.mark.parametrize("category", ["FEE", "fee"])
def test_functions_of_viztracer_are_python_frames(tmp_path, category):
    events = [
        event("step (D:\\a b\\train.py:29)", category, 1, 9),
        event("builtins.len", category, 2, 1),
        event("epoch", "", 1, 9),
    ]
    for scanner in SCANNERS:
        trace = read(written(tmp_path, json.dumps(events)), scanner=scanner)
        kinds = dict(zip(names(trace, "host_ops"), trace.host_ops["kind"].tolist(), strict=True))
        assert kinds == {
            "D:\\a b\\train.py(29): step": HostKind.PYTHON,
            "<built-in function len>": HostKind.PYTHON,
            "epoch": HostKind.ANNOTATION,
        }


def test_kernels_beside_copies_of_a_driver_are_read_as_of_the_device(tmp_path):
    """As tracers of one's own write them, without a category."""
    events = [
        event("[MEMCPY] HtoD", "", 1, 9),
        event("void at::kernel<int>(int*)", "", 12, 1),
        event("epoch", "", 0, 20, place=(1, 1)),
    ]
    for some in (events, [{k: v for k, v in e.items() if k != "cat"} for e in events]):
        for scanner in SCANNERS:
            trace = read(written(tmp_path, json.dumps(some)), scanner=scanner)
            assert trace.device_ops["kind"].tolist() == [DeviceKind.COPY, DeviceKind.KERNEL]
            assert names(trace, "host_ops") == ["epoch"]


def test_signatures_without_copies_may_be_of_functions_of_the_host(tmp_path):
    trace = read(written(tmp_path, json.dumps([event("void a::f<int>(int*)", "", 12, 1)])))
    assert "device-unread" in [trace.names[fact] for fact in trace.health["fact"].tolist()]
    assert names(trace, "host_ops") == ["void a::f<int>(int*)"]


def test_calls_of_a_driver_without_a_category_are_calls(tmp_path):
    """What is only called alike stays a range: cudaTraining gives the device no work."""
    some = ("cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cudaTraining", "step")
    events = [event(name, "", 10 * n, 5) for n, name in enumerate(some)]
    trace = read(written(tmp_path, json.dumps({"traceEvents": events})))
    assert names(trace, "api_calls") == ["cuLaunchKernel", "cuMemcpyDtoHAsync"]
    assert names(trace, "host_ops") == ["cudaTraining", "step"]
    facts = [trace.names[fact] for fact in trace.health["fact"].tolist()]
    assert "kernels-not-recorded" in facts
    assert "cpu-only" not in facts


def test_a_marker_that_is_written_twice_counts_once(tmp_path):
    again = step(1, 100, 50) | {"cat": "cpu_op"}
    trace = read(written(tmp_path, document(step(1, 100, 50), again, step(2, 160, 50))))
    assert trace.steps["number"].tolist() == [1, 2]
