"""Traces of ``torch.autograd.profiler`` as it was before Kineto: operators, timed on the device."""

import json

import pinchpoint as pp
from pinchpoint.trace import HostKind


def timed(name, on, at, lasts, thread=1):
    return {"name": name, "ph": "X", "ts": at, "dur": lasts, "tid": thread, "pid": on, "args": {}}


def test_what_the_device_took_for_outer_operators_is_its_work(tmp_path):
    host, device = "CPU functions", "CUDA functions"
    arrows = [{"ph": "s", "ts": 10.0, "pid": host}, {"ph": "f", "ts": 40.0, "pid": device}]
    events = [
        timed("aten::conv2d", host, 10.0, 50.0),
        timed("aten::cudnn_convolution", host, 20.0, 30.0),
        timed("model", host, 5.0, 90.0),
        timed("aten::conv2d", device, 40.0, 100.0, thread=1),
        timed("aten::cudnn_convolution", device, 45.0, 80.0, thread=1),
        timed("aten::relu", device, 160.0, 20.0, thread=1),
        timed("aten::relu", device, 50.0, 20.0, thread=0),
        *({**arrow, "name": "a", "tid": 1, "id": 0, "cat": "cpu_to_cuda"} for arrow in arrows),
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))
    trace = pp.load(path)
    ops, host_ops = trace.device_ops, trace.host_ops
    assert [
        (trace.text(ops, "name", i), ops.value("device", i), ops.value("duration_ns", i))
        for i in range(len(ops))
    ] == [("aten::conv2d", 1, 100_000), ("aten::relu", 0, 20_000), ("aten::relu", 1, 20_000)]
    kinds = {trace.text(host_ops, "name", i): host_ops["kind"][i] for i in range(len(host_ops))}
    assert kinds == {
        "aten::conv2d": HostKind.OPERATOR,
        "aten::cudnn_convolution": HostKind.OPERATOR,
        "model": HostKind.ANNOTATION,
    }
    assert "times-by-operator" in [trace.names[int(n)] for n in trace.health["fact"]]


def test_a_device_that_is_not_listed_is_like_the_others(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"device": 2}}
    listed = [{"id": n, "name": "MI300X", "numSms": 304} for n in (0, 1)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"deviceProperties": listed, "traceEvents": [kernel]}))
    assert {d.number: d.name for d in pp.load(path).devices}[2] == "MI300X"
    listed[1]["name"] = "MI210"  # then it may be either
    path.write_text(json.dumps({"deviceProperties": listed, "traceEvents": [kernel]}))
    assert [d.number for d in pp.load(path).devices] == [0, 1]
