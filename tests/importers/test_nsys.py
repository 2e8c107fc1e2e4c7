import gzip
import struct

import numpy as np
import pytest

import pinchpoint as pp
from importers.nsys_export import PID_A, PID_B, call, copy, kernel, nvtx, pid, strings, tid, write
from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.trace import ApiKind, DeviceKind, FlowKind, HostKind, MemoryKind

NAMES = strings(
    "void gemm<float>(int)", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "loader",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "cudaGraphLaunch_v10000", "read", "main",
)  # fmt: skip
SIZES = "sizes = [[4, 8], [8, 2]]"
GEMM, LAUNCH, COPY, LOADER, NCCL, GRAPH, READ, MAIN = range(8)


def small(tmp_path, **tables):
    tables.setdefault("StringIds", NAMES)
    return pp.load(write(tmp_path / "small.sqlite", tables))


def column(trace, table, name):
    rows = getattr(trace, table)
    return [trace.text(rows, name, i) for i in range(len(rows))]


def values(trace, table, name):
    rows = getattr(trace, table)
    return [rows.value(name, i) for i in range(len(rows))]


UNNAMED = {"no-device-properties": 1}  # these exports do not describe their device


def facts(trace):
    return dict(zip(column(trace, "health", "fact"), values(trace, "health", "count"), strict=True))


def test_a_kernel_and_its_launch(tmp_path):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1_500, 2_500, 9)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1_000, 1_200, 9, LAUNCH)],
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 10**18}],
        META_DATA_EXPORT=[{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.1.3.140"}],
    )
    assert trace.origin_ns == 10**18 + 1_000
    assert trace.source.producer == "nsys 2025.1.3.140"
    assert column(trace, "device_ops", "name") == ["void gemm<float>(int)"]
    assert values(trace, "device_ops", "start_ns") == [500]
    assert values(trace, "device_ops", "duration_ns") == [1_000]
    assert column(trace, "device_ops", "grid") == ["[2,3,1]"]
    assert column(trace, "device_ops", "block") == ["[128,1,1]"]
    assert values(trace, "device_ops", "shared_bytes") == [1_040]
    assert values(trace, "device_ops", "api_call") == [0]
    assert values(trace, "device_ops", "bytes") == [None]
    assert column(trace, "api_calls", "name") == ["cudaLaunchKernel"]
    assert values(trace, "api_calls", "kind") == [ApiKind.LAUNCH]
    assert (trace.threads[0].process, trace.threads[0].thread) == ("111", "111")
    assert trace.host_ops is None
    assert facts(trace) == UNNAMED


def test_correlations_of_two_processes_do_not_mix(tmp_path):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(10, 20, 9),
            kernel(30, 40, 9, globalPid=pid(PID_B), deviceId=0),
            kernel(50, 60, 8, globalPid=pid(PID_B)),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            call(1, 2, 9, LAUNCH),
            call(3, 4, 9, LAUNCH, globalTid=tid(PID_B)),
        ],
        TARGET_INFO_CUDA_DEVICE=[
            {"gpuId": 5, "cudaId": 0, "pid": PID_A},
            {"gpuId": 6, "cudaId": 0, "pid": PID_B},
        ],
    )
    assert values(trace, "device_ops", "api_call") == [0, 1, None]
    assert values(trace, "device_ops", "device") == [5, 6, 6]
    correlations = values(trace, "device_ops", "correlation")
    assert len(set(correlations)) == 3
    assert correlations[:2] == values(trace, "api_calls", "correlation")
    assert facts(trace) == {"launches-missing": 1, "processes-several": 2} | UNNAMED


def test_equal_stream_numbers_of_two_processes_on_one_device_are_two_streams(tmp_path):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(10, 20, 1), kernel(10, 20, 1, globalPid=pid(PID_B))],
    )
    assert len(set(values(trace, "device_ops", "stream"))) == 2


def test_copies_know_their_ends(tmp_path):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            copy(1, 2, 1, 1, srcKind=0, dstKind=2),
            copy(3, 4, 2, 2, srcKind=2, dstKind=1),
            copy(5, 6, 3, 1),
            copy(7, 8, 4, 8, srcKind=2, dstKind=2, srcDeviceId=0, dstDeviceId=1),
        ],
        CUPTI_ACTIVITY_KIND_MEMSET=[
            {"start": 9, "end": 10, "deviceId": 0, "streamId": 7, "bytes": 64, "memKind": 1}
        ],
    )
    assert values(trace, "device_ops", "kind") == [DeviceKind.COPY] * 4 + [DeviceKind.MEMSET]
    assert values(trace, "device_ops", "from_memory") == [
        MemoryKind.PAGEABLE, MemoryKind.DEVICE, MemoryKind.HOST, MemoryKind.DEVICE, None
    ]  # fmt: skip
    assert values(trace, "device_ops", "to_memory") == [
        MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.DEVICE, MemoryKind.PEER, MemoryKind.PINNED
    ]  # fmt: skip
    assert column(trace, "device_ops", "name")[0] == "Memcpy HtoD (Pageable -> Device)"
    assert values(trace, "device_ops", "bytes") == [4096] * 4 + [64]


def test_pages_of_unified_memory_come_from_the_host_and_go_there(tmp_path):
    managed = {"srcKind": 4, "dstKind": 4}
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            copy(1, 2, 1, 11, srcKind=7, dstKind=7),
            copy(3, 4, 2, 12, **managed),
        ],
    )
    ends = (MemoryKind.HOST, MemoryKind.UNIFIED)
    assert values(trace, "device_ops", "from_memory") == list(ends)
    assert values(trace, "device_ops", "to_memory") == list(reversed(ends))


def test_a_graph_recorded_as_a_whole_is_busy_time_and_said_to_be_opaque(tmp_path):
    replay = {
        "start": 100, "end": 900, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": 4, "globalPid": pid(PID_A), "graphId": 3, "graphExecId": 1,
    }  # fmt: skip
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[replay],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(0, 50, 4, GRAPH)],
    )
    assert column(trace, "device_ops", "name") == ["CUDA graph 3"]
    assert values(trace, "device_ops", "duration_ns") == [800]
    assert values(trace, "device_ops", "api_call") == [0]
    assert facts(trace) == {"graphs-opaque": 1} | UNNAMED
    both = pp.load(
        write(
            tmp_path / "both.sqlite",
            {
                "StringIds": NAMES,
                "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [replay],
                "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 900, 4, graphNodeId=77)],
                "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 50, 4, GRAPH)],
            },
        )
    )
    assert values(both, "device_ops", "graph_node") == [77]
    assert facts(both) == UNNAMED


def test_impossible_times_are_left_out_and_counted(tmp_path):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(0, 0, 1),
            kernel(50, 40, 2),
            kernel(-(2**62), 2**62, 3),
            kernel(60, 70, 4),
        ],
    )
    assert values(trace, "device_ops", "duration_ns") == [10]
    assert facts(trace)["times-unsound"] == 3


def test_ranges_nest_and_own_what_is_launched_inside(tmp_path):
    trace = small(
        tmp_path,
        NVTX_EVENTS=[
            nvtx(0, 1_000, "forward"),
            nvtx(100, 300, f"aten::mm, seq = 12, op_id = 7, {SIZES}, input_op_ids = [(6,0)]"),
            nvtx(50, 700, "outer", eventType=60),
            nvtx(40, None, None, textId=LOADER, globalTid=tid(PID_A, 5)),
            nvtx(0, None, "a domain", eventType=75),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            call(150, 200, 1, LAUNCH),
            call(400, 450, 2, LAUNCH),
            call(400, 450, 3, LAUNCH, globalTid=tid(PID_A, 5)),
        ],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(500, 600, 1), kernel(700, 900, 2), kernel(900, 950, 3)],
    )  # fmt: skip
    assert column(trace, "host_ops", "name") == ["forward", "loader", "outer", "aten::mm"]
    assert values(trace, "host_ops", "kind") == [HostKind.ANNOTATION] * 3 + [HostKind.OPERATOR]
    assert values(trace, "host_ops", "parent") == [None, None, 0, 0]
    assert values(trace, "host_ops", "sequence") == [None, None, None, 12]
    assert column(trace, "host_ops", "shapes") == [None, None, None, "[[4,8],[8,2]]"]
    assert values(trace, "api_calls", "host_op") == [3, 0, 1]
    assert values(trace, "device_ops", "host_op") == [3, 0, 1]
    assert facts(trace) == {"ranges-unclosed": 1} | UNNAMED
    projected = trace.device_annotations
    seen = {
        trace.text(projected, "name", i): (projected["start_ns"][i], projected.end_ns[i])
        for i in range(len(projected))
    }
    assert seen == {"forward": (500, 900), "outer": (500, 900), "loader": (900, 950)}


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["ProfilerStep#3", "ProfilerStep#4"], [3, 4]),
        (["step 7", "step 8", "batch 1", "batch 2"], [7, 8]),
        (["train_step", "train_step", "forward"], [None, None]),
        (["iteration_0", "iteration_1"], [0, 1]),
        (["Iter: 5", "Iter: 6"], [5, 6]),
        (["step 1", "forward"], []),
        (["stepping", "stepping"], []),
    ],
)
def test_steps_are_read_from_the_names_of_ranges(tmp_path, texts, numbers):
    rows = [nvtx(i * 100, i * 100 + 90, text) for i, text in enumerate(texts)]
    trace = small(tmp_path, NVTX_EVENTS=rows)
    assert values(trace, "steps", "number") == numbers


def test_os_calls_samples_and_overhead(tmp_path):
    trace = small(
        tmp_path,
        NVTX_EVENTS=[nvtx(0, 100, "load")],
        OSRT_API=[{"start": 10, "end": 60, "globalTid": tid(PID_A), "nameId": READ}],
        COMPOSITE_EVENTS=[
            {"id": 1, "start": 30, "globalTid": tid(PID_A)},
            {"id": 2, "start": 70, "globalTid": tid(PID_A)},
        ],
        SAMPLING_CALLCHAINS=[
            {"id": 1, "symbol": MAIN, "stackDepth": 1},
            {"id": 1, "symbol": READ, "stackDepth": 0},
        ],
        CUPTI_ACTIVITY_KIND_OVERHEAD=[
            {"start": 80, "end": 90, "globalTid": tid(PID_A), "overheadType": 8}
        ],
        PROFILER_OVERHEAD=[{"start": 91, "end": 95, "globalTid": tid(PID_A), "nameId": LOADER}],
    )
    assert column(trace, "host_ops", "name") == [
        "load", "read", "read", "(unknown function)", "Command Buffer Full", "loader"
    ]  # fmt: skip
    assert values(trace, "host_ops", "duration_ns") == [100, 50, 0, 0, 10, 4]
    assert values(trace, "host_ops", "kind")[1:] == [HostKind.OS_CALL] * 3 + [HostKind.OVERHEAD] * 2
    assert values(trace, "host_ops", "parent") == [None, 0, 0, 0, 0, 0]


def test_streams_that_wait_know_what_they_wait_for(tmp_path):
    wait = {
        "start": 10, "end": 20, "deviceId": 0, "streamId": 9, "globalPid": pid(PID_A),
        "syncType": 2, "eventSyncId": 5,
    }  # fmt: skip
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[wait, wait | {"syncType": 3, "start": 15}],
        CUPTI_ACTIVITY_KIND_CUDA_EVENT=[
            {"globalPid": pid(PID_A), "correlationId": 3, "eventSyncId": 5}
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1, 2, 3, LAUNCH)],
    )
    assert values(trace, "flows", "kind") == [FlowKind.EVENT_WAIT, FlowKind.DEVICE_SYNC]
    assert values(trace, "flows", "from_correlation") == [3, None]
    assert values(trace, "flows", "to_stream") == [9, 9]


def test_gpu_metrics_become_counters(tmp_path):
    trace = small(
        tmp_path,
        GPU_METRICS=[
            {"timestamp": 50, "typeId": 2**40 + 1, "metricId": 4, "value": 77},
            {"timestamp": 40, "typeId": 2**40 + 1, "metricId": 9, "value": 5},
        ],
        TARGET_INFO_GPU_METRICS=[
            {"typeId": 2**40 + 1, "metricId": 4, "metricName": "SMs Active [Throughput %]"}
        ],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(30, 60, 1)],
    )  # fmt: skip
    assert column(trace, "counters", "name") == ["GPU metric 9", "SMs Active [Throughput %]"]
    assert values(trace, "counters", "value") == [5.0, 77.0]
    assert values(trace, "counters", "time_ns") == [10, 20]
    assert values(trace, "counters", "device") == [1, 1]


def test_nccl_payloads_give_ranks_and_message_sizes(tmp_path):
    def payload(schema, body):
        return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body

    def entry(schema, code, name, offset):
        return {"domainId": 1, "schemaId": schema, "type": code, "name": name, "offset": offset}

    trace = small(
        tmp_path,
        NVTX_EVENTS=[
            nvtx(0, 5, "ncclCommInitRank", binaryData=payload(1, struct.pack("<Qiii", 9, 8, 3, 0))),
            nvtx(10, 20, "ncclAllReduce", binaryData=payload(2, struct.pack("<QQ", 9, 4096))),
        ],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=[
            entry(1, 18, "NCCL communicator ID", 0), entry(1, 5, "No. of ranks", 8),
            entry(1, 5, "Rank", 12), entry(1, 5, "CUDA device", 16),
            entry(2, 18, "NCCL communicator ID", 0), entry(2, 22, "Message size [bytes]", 8),
        ],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(12, 15, 1, LAUNCH)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(30, 60, 1, NCCL)],
    )  # fmt: skip
    assert (trace.rank, trace.world_size) == (3, 8)
    assert values(trace, "device_ops", "kind") == [DeviceKind.COLLECTIVE]
    assert column(trace, "device_ops", "collective") == ["allreduce"]
    assert column(trace, "device_ops", "collective_args") == [
        '{"communicator":9,"message_bytes":4096}'
    ]
    assert values(trace, "device_ops", "rank") == [3]


def test_devices_and_what_the_driver_says_of_them(tmp_path):
    trace = small(
        tmp_path,
        TARGET_INFO_GPU=[
            {
                "id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalMemory": 42 * 10**9, "smCount": 108,
                "computeMajor": 8, "computeMinor": 0, "clockRate": 1_410_000_000,
                "memoryBandwidth": 1_555_200_000_000, "l2CacheSize": 41_943_040,
            }
        ],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1, deviceId=1)],
    )  # fmt: skip
    assert [(d.number, d.name) for d in trace.devices] == [(0, "NVIDIA A100-SXM4-40GB"), (1, None)]
    assert trace.devices[0].compute_capability == (8, 0)
    assert trace.devices[0].memory_bytes_per_s == 1_555_200_000_000


def test_the_environment_of_the_recording_does_not_get_into_the_trace(tmp_path):
    trace = small(
        tmp_path,
        META_DATA_CAPTURE=[
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE|TOKEN", "value": "s3cret"},
            {"name": "CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": "Node"},
        ],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1)],
    )
    assert trace.source.options["graph_mode"] == "Node"
    assert "s3cret" not in repr(trace)


def test_exports_of_2020_have_fewer_tables_and_columns(tmp_path):
    row = kernel(10, 20, 3)
    for column_name in ("globalPid", "graphNodeId"):
        del row[column_name]
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[row],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(1, 2, 3, LAUNCH)],
        TARGET_INFO_CUDA_GPU=[{"id": 0, "name": "GeForce GTX 1080"}],
    )
    assert values(trace, "device_ops", "api_call") == [0]
    assert trace.devices[0].name == "GeForce GTX 1080"
    assert trace.source.producer is None


def test_exports_of_2021_describe_devices_in_other_words(tmp_path):
    fact = {"deviceId": 0, "name": "RTX 3080", "numMultiprocessors": 68, "globalMemorySize": 10}
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(10, 20, 3)],
        TARGET_INFO_GPU=[{"deviceId": 0, "name": "RTX 3080", "busLocation": "0000:02:00.0"}],
        TARGET_INFO_CUDA_GPU=[fact | {"computeCapabilityMajor": 8, "computeCapabilityMinor": 6}],
    )
    (device,) = trace.devices
    assert (device.name, device.multiprocessors) == ("RTX 3080", 68)
    assert (device.memory_bytes, device.compute_capability) == (10, (8, 6))


def test_an_export_without_events_says_so(tmp_path):
    assert "nothing-recorded" in facts(small(tmp_path, ThreadNames=[{"globalTid": 1, "nameId": 0}]))


def test_copies_that_left_no_operation_are_lost_work(tmp_path):
    names = strings("cudaMemcpy_v3020")
    calls = [call(1, 2, 1, 0)]
    trace = small(tmp_path, StringIds=names, CUPTI_ACTIVITY_KIND_RUNTIME=calls)
    assert "kernels-not-recorded" in facts(trace)


def test_a_gzipped_export_reads_the_same(tmp_path):
    tables = {"StringIds": NAMES, "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 1)]}
    plain = write(tmp_path / "a.sqlite", tables)
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert values(pp.load(packed), "device_ops", "duration_ns") == [1]
    packed.write_bytes(gzip.compress(plain.read_bytes())[:-200])
    with pytest.raises(UnreadableFile, match=r"cut-off gzip|damaged"):
        pp.load(packed)


def test_many_kernels_at_once(tmp_path):
    rng = np.random.default_rng(1)
    starts = np.sort(rng.integers(0, 10**9, 500))
    rows = [kernel(int(s), int(s) + 5, i) for i, s in enumerate(starts)]
    calls = [call(int(s) - 3, int(s) - 1, i, LAUNCH) for i, s in enumerate(starts)]
    trace = small(tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=rows, CUPTI_ACTIVITY_KIND_RUNTIME=calls)
    calls_of_ops = trace.device_ops["api_call"]
    assert (trace.api_calls["correlation"][calls_of_ops] == trace.device_ops["correlation"]).all()


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        pytest.param([], "kernels-not-recorded", id="no table of kernels"),
        pytest.param([kernel(10, 20, 1)], "device-activity-lost", id="most of them lost"),
        pytest.param(
            [kernel(10 + 20 * i, 20 + 20 * i, 90 + i) for i in range(5)],
            "device-far-behind",
            id="launched before",
        ),
        pytest.param(
            [kernel(10 + 20 * i, 20 + 20 * i, 0) for i in range(5)],
            "links-missing",
            id="without correlations",
        ),
    ],
)
def test_launches_without_kernels_are_said(tmp_path, kernels, said):
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(i, i + 1, 1 + i, LAUNCH) for i in range(5)],
        **({"CUPTI_ACTIVITY_KIND_KERNEL": kernels} if kernels else {}),
    )
    assert said in facts(trace)


def test_a_table_of_a_newer_form_is_named(tmp_path):
    trace = small(tmp_path, CUPTI_ACTIVITY_KIND_KERNEL_V2=[kernel(10, 20, 1)])
    assert facts(trace)["tables-unread"] == 1


def test_what_nsys_warns_of_helpers_is_not_said_of_the_program(tmp_path):
    said = "No CUDA events collected. Does the process use CUDA?"
    rows = [
        {"severity": 2, "text": said, "globalPid": pid(PID_B)},
        {"severity": 2, "text": "Dropped events.", "globalPid": pid(PID_A)},
        {"severity": 3, "text": "Of no process.", "globalPid": None},
    ]
    tables = {
        "StringIds": strings("gemm"),
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200, 1)],
        "DIAGNOSTIC_EVENT": rows,
    }
    told = read_session_warnings(pp.load(write(tmp_path / "a.sqlite", tables)))
    assert told == ["Dropped events.", "Of no process."]
    alone = {"StringIds": strings("x"), "NVTX_EVENTS": [nvtx(1, 2, "r")], "DIAGNOSTIC_EVENT": rows}
    first, *others = read_session_warnings(pp.load(write(tmp_path / "b.sqlite", alone)))
    assert first.startswith(f"{said} (let nsys start the program itself")
    assert others == ["Dropped events.", "Of no process."]


def test_warnings_of_an_export_without_kernels_come_with_what_to_do(tmp_path, capsys):
    texts = (
        "Failed to load symbols for VMA 0x7f-0x8f from '/usr/lib/x.so'",
        "No NVTX events collected. Does the process use NVTX?",
        "No OpenGL events collected. Does the process use OpenGL?",
        "Not all OS runtime libraries events might have been collected.",
        "Unable to collect CPU kernel IP/backtrace samples. perf event paranoid level is 2.\nTry\n",
        "Installed CUDA driver version (12.9) is not supported by this build of Nsight Systems."
        " CUDA trace will be collected using libraries for driver version 12.8",
    )
    trace = small(
        tmp_path,
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(i, i + 1, 1 + i, LAUNCH) for i in range(5)],
        DIAGNOSTIC_EVENT=[{"severity": 2, "text": text} for text in texts],
    )
    driver, ranges = read_session_warnings(trace)
    assert driver.startswith("Installed CUDA driver version (12.9)")
    assert "install an Nsight Systems that is newer" in driver
    assert "mark steps" in ranges
    assert main(["diagnose", trace.source.path]) == 0
    assert "the profiler says: Installed CUDA driver" in " ".join(capsys.readouterr().out.split())


def read_session_warnings(trace):
    health = trace.health
    return [
        trace.text(health, "detail", row)
        for row in range(len(health))
        if trace.text(health, "fact", row) == "profiler-warning"
    ]
