"""Ascend: the lanes of trace_view.json, and tables of kernels."""

import json

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.trace import ApiKind, DeviceKind

PYTHON, CANN, DEVICE, OVERLAP, COMMUNICATION = 437675, 43767502, 800, 4376751100, 801
ZERO_US = 1704161511420000
NAMES = {
    PYTHON: "Python",
    CANN: "CANN",
    DEVICE: "Ascend Hardware",
    OVERLAP: "Overlap Analysis",
    COMMUNICATION: "Communication",
}


def row(process, thread, name, at_us, lasts_us, category=None):
    event = {"ph": "X", "name": name, "pid": process, "tid": thread, "dur": lasts_us, "args": {}}
    event["ts"] = f"{ZERO_US + at_us}.000"
    return event | ({"cat": category} if category else {})


def arrow(category, number, begin, end):
    at = {"cat": category, "id": number, "name": category}
    return [
        {"ph": ph, "pid": p, "tid": t, "ts": f"{ZERO_US + us}.000", **at}
        for ph, (p, t, us) in (("s", begin), ("f", end))
    ]


def view(*events):
    named = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": n}}
        for p, n in NAMES.items()
    ]
    return json.dumps([*named, *events])


def two_kernels():
    return view(
        row(PYTHON, 1, "ProfilerStep#0", 0, 1000, "cpu_op"),
        row(PYTHON, 1, "aten::mm", 100, 50, "cpu_op"),
        row(CANN, 1, "AscendCL@aclnnMatmul", 110, 30),
        row(CANN, 1, "Node@launch", 120, 10),
        row(CANN, 1, "AscendCL@aclrtSynchronizeStream", 500, 200),
        row(DEVICE, 3, "MatMulV2", 200, 300),
        row(DEVICE, 3, "EVENT_WAIT", 500, 50),
        row(DEVICE, 3, "MEMCPY_ASYNC", 560, 40),
        row(OVERLAP, 0, "Computing", 200, 300),
        row(OVERLAP, 1, "Free", 500, 500),
        row(COMMUNICATION, 9, "hcom_allReduce__123", 600, 100),
        row(COMMUNICATION, 10, "Notify_Wait", 600, 90),
        *arrow("async_npu", 1, (PYTHON, 1, 100), (DEVICE, 3, 200)),
        *arrow("HostToDevice", 2, (CANN, 1, 120), (DEVICE, 3, 200)),
    )


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "trace_view.json").write_text(two_kernels())
    return load(tmp_path / "trace_view.json")


def test_work_of_the_device_is_work_and_nothing_else_is(trace):
    ops = trace.device_ops
    assert [trace.names[n] for n in ops["name"]] == [
        "MatMulV2",
        "MEMCPY_ASYNC",
        "hcom_allReduce__123",
    ]
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY, DeviceKind.COLLECTIVE]
    assert ops["duration_ns"].tolist() == [300_000, 40_000, 100_000]
    assert trace.text(ops, "collective", 2) == "allreduce"
    assert trace.source.recorder == "torch_npu.profiler"


def test_arrows_say_what_launched_it(trace):
    ops = trace.device_ops
    assert ops.known("api_call").tolist() == [True, False, False]
    call = int(ops["api_call"][0])
    assert trace.names[int(trace.api_calls["name"][call])] == "launch"
    assert trace.names[int(trace.host_ops["name"][int(ops["host_op"][0])])] == "aten::mm"


def test_calls_are_those_that_launch_and_wait_on_the_thread_of_the_program(trace):
    calls = trace.api_calls
    assert calls["kind"].tolist() == [ApiKind.LAUNCH, ApiKind.SYNC_STREAM]
    assert {trace.threads[t].process for t in calls["thread"]} == {str(PYTHON)}


def test_nothing_says_any_longer_that_the_device_is_not_read(trace):
    facts = {trace.names[n] for n in trace.health["fact"]}
    assert not facts & {"device-unread", "cpu-only", "no-device-activity"}


DETAILS = (
    "Step Id,Device_id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Dim\n"
    '1,2,16,MatMulV2,MatMulV2,AI_CORE,"1699529622790614.812\t",607.98,0,48\n'
    "1,2,17,hcom_allReduce_,hcom_allReduce_,HCCL,1699529622791614.812,10,0,N/A\n"
    "1,2,17,broken,x,AI_CORE,N/A,10,0,N/A\n"
)
SUMMARY = (
    "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n"
    "MatMul,MatMul,AI_CORE,100.5,2\n"
)


def test_tables_of_kernels(tmp_path):
    (tmp_path / "kernel_details.csv").write_text(DETAILS)
    trace = load(tmp_path / "kernel_details.csv")
    ops = trace.device_ops
    assert ops["duration_ns"].tolist() == [607_980, 10_000]
    assert ops["start_ns"].tolist() == [0, 1_000_000]
    assert (ops["device"].tolist(), ops["stream"].tolist()) == ([2, 2], [16, 17])
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COLLECTIVE]
    assert trace.text(ops, "grid", 0) == "[48,1,1]"
    (tmp_path / "op_summary_1.csv").write_text(SUMMARY)
    assert load(tmp_path / "op_summary_1.csv").device_ops["duration_ns"].tolist() == [2000]


def test_a_table_without_rows_is_one_clear_error(tmp_path):
    (tmp_path / "kernel_details.csv").write_text(DETAILS.splitlines()[0])
    with pytest.raises(UnreadableFile, match="no rows"):
        load(tmp_path / "kernel_details.csv")


def test_sums_a_step_say_what_to_give_instead(tmp_path, capsys):
    path = tmp_path / "step_trace_time.csv"
    path.write_text("Device_id,Step,Computing,Communication(Not Overlapped),Free\n0,1,2,3,4\n")
    assert main(["diagnose", str(path)]) == 2
    assert "trace_view.json" in capsys.readouterr().err


def test_a_part_of_a_table_of_kernels(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text(DETAILS)
    assert main(["diagnose", str(path), "--from", "1us", "--to", "9s"]) == 0
