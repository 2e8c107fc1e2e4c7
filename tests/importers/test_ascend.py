"""Ascend: the lanes of trace_view.json, and tables of kernels."""

import json

import pytest

from importers.test_rocpd import database
from pinchpoint.analysis.steps.steps import steps
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
        row(CANN, 1, "Runtime@StreamSynchronize", 510, 180),
        row(CANN, 1, "Runtime@StreamSyncTaskFinish", 680, 0),
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
    assert ops["device"].tolist() == [0, 0, 0]  # processes of one device
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
    assert calls["duration_ns"].tolist() == [10_000, 180_000]  # the innermost that waits
    assert {trace.threads[t].process for t in calls["thread"]} == {str(PYTHON)}


def test_processes_of_several_devices_are_told_by_their_numbers(tmp_path):
    """msprof numbers them: process of the host * 1024 + layer * 32 + device."""
    names = {7 * 1024 + layer * 32 + n: layer for layer in (13, 15) for n in (2, 5)}
    said = {13: "Ascend Hardware", 15: "Communication"}
    events = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": said[layer]}}
        for p, layer in names.items()
    ]
    for at, (process, layer) in enumerate(names.items()):
        events.append(row(process, 1, "MatMul" if layer == 13 else "hcom_send", 10 * at, 5))
    events.append(row(PYTHON, 1, "aten::mm", 0, 5, "cpu_op"))
    events += [e for e in json.loads(view()) if e["pid"] == PYTHON]
    (tmp_path / "trace_view.json").write_text(json.dumps(events))
    ops = load(tmp_path / "trace_view.json").device_ops
    assert ops["device"].tolist() == [0, 1, 0, 1]


def test_minus_one_numbers_no_node_of_the_backward_pass(tmp_path):
    events = [row(PYTHON, 1, "aten::add", at, 5, "cpu_op") for at in (0, 10)]
    for event, number in zip(events, (-1, 4), strict=True):
        event["args"] = {"Sequence number": number}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    assert load(tmp_path / "t.json").host_ops.known("sequence").tolist() == [False, True]


def test_nothing_says_any_longer_that_the_device_is_not_read(trace):
    facts = {trace.names[n] for n in trace.health["fact"]}
    assert not facts & {"device-unread", "cpu-only", "no-device-activity"}


NAMES_BY_NUMBER = ["ProfilerStep#7", "aten::mm", "launch", "MatMulV2", "AI_CORE", "EVENT_RECORD"]
NAMES_BY_NUMBER += ["hcom_allReduce__1", "aclrtSynchronizeStream", "Enqueue"]
HOST_THREAD = (300 << 32) | 301


def task(start, end, number, connection, kind=4):
    times = {"startNs": start, "endNs": end, "deviceId": 2, "streamId": 5}
    return times | {"connectionId": connection, "globalTaskId": number, "taskType": kind}


def cann(start, end, name, connection):
    times = {"startNs": start, "endNs": end, "globalTid": HOST_THREAD}
    return times | {"name": name, "connectionId": connection}


def torch_row(start, end, name, connection, kind=50001):
    times = {"startNs": str(start), "endNs": str(end), "globalTid": HOST_THREAD, "name": name}
    return times | {"type": kind, "connectionId": connection, "sequenceNumber": None}


DATABASE = {
    "STRING_IDS": [{"id": n, "value": name} for n, name in enumerate(NAMES_BY_NUMBER)],
    "NPU_INFO": [{"id": 2, "name": "Ascend910B"}],
    "COMPUTE_TASK_INFO": [{"globalTaskId": 1, "name": 3}],
    "COMMUNICATION_TASK_INFO": [{"globalTaskId": 4}],
    "TASK": [
        task(3_000, 4_000, 1, 61),
        task(4_000, 4_010, 2, 62, kind=5),  # a mark of an event
        task(5_000, 9_000, 3, 63),  # what starts the collective
        task(5_100, 5_200, 4, 63),  # and a part of it
    ],
    "COMMUNICATION_OP": [{"opName": 6, "startNs": 5_000, "endNs": 8_900, "connectionId": 63}],
    "CANN_API": [
        cann(1_200, 1_300, 2, 61),
        cann(1_400, 1_410, 2, 62),
        cann(1_500, 1_600, 2, 63),
        cann(6_000, 9_500, 7, 90),
    ],
    "PYTORCH_API": [
        torch_row(1_000, 9_900, 0, None),
        torch_row(1_100, 1_190, 1, 40),
        torch_row(1_150, 1_160, 8, 41, kind=50002),
    ],
    "CONNECTION_IDS": [{"id": 40, "connectionId": 61}, {"id": 41, "connectionId": 700}],
    "STEP_TIME": [{"id": 7, "startNs": 1_000, "endNs": 9_900}],
}


def test_a_database_has_what_its_tables_say(tmp_path, capsys):
    path = database(tmp_path / "ascend_pytorch_profiler_0.db", DATABASE)
    trace = load(path)
    ops, calls = trace.device_ops, trace.api_calls
    assert [(trace.names[n], d) for n, d in zip(ops["name"], ops["duration_ns"], strict=True)] == [
        ("MatMulV2", 1_000),
        ("hcom_allReduce__1", 3_900),
    ]
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COLLECTIVE]
    assert [d.name for d in trace.devices] == ["Ascend910B"]
    assert calls["kind"].tolist() == [ApiKind.LAUNCH, ApiKind.LAUNCH, ApiKind.SYNC_STREAM]
    assert calls["start_ns"][ops["api_call"]].tolist() == [200, 500]
    assert trace.names[trace.host_ops["name"][ops["host_op"][0]]] == "aten::mm"
    assert (trace.steps["number"].tolist(), trace.steps["duration_ns"].tolist()) == ([7], [8_900])
    assert main(["diagnose", str(path)]) == 0
    assert "1 step (markers)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("op_statistic.csv", "Device_id,OP Type,Core Type,Count,Total Time(us)\n", "trace_view"),
        ("l2_cache.csv", "Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n", "trace_view"),
        ("memory_record.csv", "Component,Timestamp(us),Total Reserved(MB)\n", "snapshot"),
        ("profiler_info_0.json", '{"config": {"common_config": {}}}', "ASCEND_PROFILER_OUTPUT"),
        ("communication.json", '{"step": {"p2p": {}}}', "ASCEND_PROFILER_OUTPUT"),
    ],
)
def test_what_lies_beside_a_recording_says_what_to_give(tmp_path, capsys, name, content, said):
    (tmp_path / name).write_text(content)
    assert main(["diagnose", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_sums_in_a_database_say_what_to_give(tmp_path, capsys):
    path = database(tmp_path / "analysis.db", {"StepTraceTime": [{"step": "1", "computing": 2}]})
    assert main(["diagnose", str(path)]) == 2
    assert "ascend_pytorch_profiler_*.db" in capsys.readouterr().err


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


def iterations(*marked):
    """One iteration as msprof's view of MindSpore has it: 40 µs, of which a collective is 30."""
    line = {"ph": "M", "name": "thread_name", "pid": DEVICE, "tid": 99}
    whole = {"ph": "M", "name": "thread_name", "pid": COMMUNICATION, "tid": 7}
    return view(
        line | {"args": {"name": "Step Trace(Model ID:2)"}},
        whole | {"args": {"name": "Communication Kernel"}},
        row(DEVICE, 99, "Iteration 3", 100, 40, "Iteration Time"),
        row(DEVICE, 99, "FP_BP Time 3", 100, 8, "FP_BP Time"),
        row(DEVICE, 99, "Reduce_3_0", 108, 31, "Reduce"),
        row(DEVICE, 3, "Default/MatMul-op1", 100, 8),
        row(COMMUNICATION, 7, "Default/AllReduce-op2_0", 109, 30),
        row(COMMUNICATION, 0, "Notify_Wait", 109, 20),
        *marked,
    )


def test_iterations_of_the_device_are_steps_and_no_work(tmp_path):
    (tmp_path / "msprof_0.json").write_text(iterations())
    trace = load(tmp_path / "msprof_0.json")
    assert [trace.names[n] for n in trace.device_ops["name"]] == [
        "Default/MatMul-op1", "Default/AllReduce-op2_0",
    ]  # fmt: skip
    assert trace.device_ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COLLECTIVE]
    found = steps(trace)
    assert (found.how, found.number.tolist(), found.typical_ns) == ("marker", [3], 40_000)


def test_steps_that_the_host_marks_count_before_those_of_the_device(tmp_path):
    path = tmp_path / "msprof_0.json"
    path.write_text(iterations(row(PYTHON, 1, "ProfilerStep#8", 90, 60, "cpu_op")))
    assert steps(load(path)).number.tolist() == [8]


def test_a_table_of_kernels_tells_its_steps(tmp_path):
    """A step ends with its last row, 12 µs after the one before ended."""
    rows = [f"{step},gemm,AI_CORE,{at},{us}" for step, at, us in STEPS_OF_ROWS]
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join(["Step Id,Name,Accelerator Core,Start Time(us),Duration(us)", *rows]))
    found = steps(load(path))
    assert (found.how, found.number.tolist()) == ("marker", [7, 8, 9])
    assert found.end_ns.tolist() == [10_000, 22_000, 34_000]
    assert found.durations_ns.tolist() == [12_000, 12_000]


STEPS_OF_ROWS = [(7, 100, 5), (7, 106, 4), (8, 111, 6), (8, 118, 4), (9, 123, 6), (9, 130, 4)]


def test_rows_without_a_number_belong_to_no_step(tmp_path):
    path = tmp_path / "kernel_details.csv"
    path.write_text("Step Id,Name,Start Time(us),Duration(us)\nN/A,gemm,1,1\n,gemm,3,1\n")
    assert steps(load(path)).how == "none"


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
