"""rocprofv3: JSON, CSV of both generations, and folders of CSV."""

import gzip
import json

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind


def xyz(x, y=1, z=1):
    return {"x": x, "y": y, "z": z}


def stamp(start, end, correlation, **more):
    return {
        "start_timestamp": start,
        "end_timestamp": end,
        "correlation_id": {"internal": correlation, "external": 0},
        "thread_id": 70,
        **more,
    }


DISPATCH = {
    "agent_id": {"handle": 900},
    "queue_id": {"handle": 4},
    "kernel_id": 8,
    "workgroup_size": xyz(256),
    "grid_size": xyz(1024, 2),
}
PROCESS = {
    "metadata": {"pid": 7},
    "agents": [
        {"id": {"handle": 899}, "type": 1, "name": "EPYC"},
        {
            "id": {"handle": 900},
            "type": 2,
            "name": "gfx950",
            "product_name": "AMD Instinct MI350X",
            "logical_node_type_id": 3,
            "cu_count": 256,
        },
    ],
    "kernel_symbols": [
        {"kernel_id": 8, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm()"}
    ],
    "strings": {
        "buffer_records": [
            {"kind": "HIP", "operations": ["hipInit", "hipLaunchKernel"]},
            {"kind": "COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
        ],
        "marker_api": [{"key": 11, "value": "step 0"}],
    },
    "buffer_records": {
        "kernel_dispatch": [
            stamp(3000, 6000, 5, dispatch_info=DISPATCH, stream_id={"handle": 1}),
            stamp(6500, 6600, 0, dispatch_info=DISPATCH),
        ],
        "hip_api": [stamp(2000, 2500, 5, kind=0, operation=1)],
        "memory_copy": [
            stamp(
                7000,
                8000,
                0,
                kind=1,
                operation=1,
                bytes=4096,
                src_agent_id={"handle": 899},
                dst_agent_id={"handle": 900},
            )
        ],
        "marker_api": [stamp(1000, 9000, 11, kind=0, operation=0)],
        "hsa_api": [],
    },
}


def written(folder, name, text):
    path = folder / name
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def test_json_has_both_sides(tmp_path):
    document = json.dumps({"rocprofiler-sdk-tool": [PROCESS]})
    trace = load(written(tmp_path, "7_results.json.gz", document))
    assert trace.source.format == "rocprofv3"
    ops = trace.device_ops
    assert [trace.names[n] for n in ops["name"]] == ["gemm()", "gemm()", "Memcpy HtoD"]
    assert ops["start_ns"].tolist() == [2000, 5500, 6000]  # from the first event
    assert ops["duration_ns"].tolist() == [3000, 100, 1000]
    assert ops["device"].tolist() == [3, 3, 3]
    assert ops["stream"].tolist()[:2] == [1, 4]
    assert trace.text(ops, "grid", 0) == "[4,2,1]"  # work-items over the size of a group
    assert ops.known("api_call").tolist() == [True, False, False]
    assert ops.value("bytes", 2) == 4096
    assert ops.value("from_memory", 2) == MemoryKind.HOST
    assert ops["kind"].tolist()[2] == DeviceKind.COPY
    assert trace.api_calls["kind"].tolist() == [ApiKind.LAUNCH]
    assert trace.names[int(trace.host_ops["name"][0])] == "step 0"
    assert trace.host_ops["kind"].tolist() == [HostKind.ANNOTATION]
    assert [(d.number, d.name, d.multiprocessors) for d in trace.devices] == [
        (3, "AMD Instinct MI350X", 256)
    ]


OLD = (
    '"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","Private_Segment_Size",'
    '"Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",'
    '"Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH",1,2,69,1,16,"add(float*, int)",5,1000,1500,0,0,64,1,1,1024,2,1\n'
)
NEW = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size",'
    '"VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",'
    '"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH","Agent 1",9,2,69,1,16,"add(float*, int)",5,1000,1500,128,0,32,0,16,'
    "64,1,1,1024,2,1\n"
)
CALLS = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"HIP_RUNTIME_API","hipLaunchKernel",7,69,5,800,900\n'
)
MARKS = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MARKER_CORE_API","step 0",7,69,1,500,2000\n'
)


@pytest.mark.parametrize(("text", "shared", "registers"), [(OLD, 0, None), (NEW, 128, 32)])
def test_csv_of_both_generations(tmp_path, text, shared, registers):
    trace = load(written(tmp_path, "7_kernel_trace.csv", text))
    ops = trace.device_ops
    assert (ops["device"].tolist(), ops["stream"].tolist()) == ([1], [2])
    assert ops["duration_ns"].tolist() == [500]
    assert trace.text(ops, "grid", 0) == "[16,2,1]"
    assert ops.value("shared_bytes", 0) == shared
    assert ops.value("registers", 0) == registers


def test_the_files_of_a_folder_are_one_recording(tmp_path):
    for name, text in (("kernel", NEW), ("hip_api", CALLS), ("marker_api", MARKS)):
        written(tmp_path, f"7_{name}_trace.csv", text)
    trace = load(tmp_path)
    assert trace.device_ops.known("api_call").tolist() == [True]
    operator = int(trace.device_ops["host_op"][0])
    assert trace.names[int(trace.host_ops["name"][operator])] == "step 0"


@pytest.mark.parametrize(
    "text",
    [
        '{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [',
        '{"rocprofiler-sdk-tool": []}',
        '{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [{"x": 1}]}}]}',
        OLD.splitlines()[0],
        OLD.splitlines()[0] + "\n" + '"KERNEL_DISPATCH",x',
    ],
)
def test_what_is_broken_is_one_clear_error(tmp_path, text):
    with pytest.raises(UnreadableFile) as caught:
        load(written(tmp_path, "7_results", text))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("header", "helps"),
    [
        ('"Correlation_Id","Dispatch_Id","Counter_Name","Counter_Value"', "kernel_trace.csv"),
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"', "rocprofv3 --kernel-trace"),
    ],
)
def test_sums_say_what_to_give_instead(tmp_path, capsys, header, helps):
    path = written(tmp_path, "7_stats.csv", header + '\n1,2,"a",4,5\n')
    assert main(["diagnose", str(path)]) == 2
    assert helps in capsys.readouterr().err


def test_counters_of_one_dispatch_are_one_kernel_that_ran_alone(tmp_path):
    header = (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Kernel_Name","Counter_Name",'
        '"Counter_Value","Start_Timestamp","End_Timestamp"\n'
    )
    rows = [(1, "A", 100, 200), (1, "B", 100, 200), (2, "A", 900, 950), (2, "B", 900, 950)]
    text = header + "".join(f'{d},{d},1,1,"gemm","{c}",5,{s},{e}\n' for d, c, s, e in rows)
    trace = load(written(tmp_path, "7_counter_collection.csv", text))
    assert trace.device_ops["start_ns"].tolist() == [0, 800]
    assert "kernels-alone" in [trace.names[fact] for fact in trace.health["fact"].tolist()]


def test_calls_alone_lead_to_the_kernels(tmp_path, capsys):
    text = (
        '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp"\n"HIP_RUNTIME_API","hipLaunchKernel",1,1,1,100,200\n'
    )
    assert main(["diagnose", str(written(tmp_path, "7_hip_api_trace.csv", text))]) == 0
    assert "kernel_trace.csv" in " ".join(capsys.readouterr().out.split())
