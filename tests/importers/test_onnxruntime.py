"""Profiles of ONNX Runtime: nodes of a graph on providers, and what a GPU ran of them."""

import json

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.open import format_of
from pinchpoint.trace import HostKind

AT = {"pid": 11, "tid": 12, "ph": "X"}


def event(category, name, ts, dur, **args):
    return {"cat": category, **AT, "dur": dur, "ts": ts, "name": name, "args": args}


def profile(provider="CPUExecutionProvider", runs=6, kernels=()):
    events = [event("Session", "model_loading_uri", 0, 900)]
    for run in range(runs):
        at = 1000 + 1200 * run
        for position, (operator, takes) in enumerate((("Conv", 700), ("Relu", 50), ("Gemm", 400))):
            node = f"n{position}"
            events += [
                event("Node", f"{node}_fence_before", at, 1, op_name=operator),
                event(
                    "Node",
                    f"{node}_kernel_time",
                    at + 2,
                    takes,
                    op_name=operator,
                    provider=provider,
                ),
            ]
            at += takes + 5
        first = 1000 + 1200 * run
        events += [
            event("Session", "SequentialExecutor::Execute", first, at - first),
            event("Session", "model_run", first - 5, at - first + 10),
        ]
    return [*events, *kernels]


def kept(folder, content):
    path = folder / "onnxruntime_profile__2024-01-01.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def facts(trace):
    return [trace.names[int(n)] for n in trace.health["fact"]]


def test_nodes_are_operators_and_each_run_is_a_step(tmp_path, capsys):
    path = kept(tmp_path, profile())
    assert format_of(path) == "ONNX Runtime profile"
    trace = load(path)
    host = trace.host_ops
    operators = [i for i in range(len(host)) if host["kind"][i] == HostKind.OPERATOR]
    assert [trace.text(host, "name", i) for i in operators[:4]] == [
        "onnxruntime::SequentialExecutor::Execute",
        "onnx::Conv",
        "onnx::Relu",
        "onnx::Gemm",
    ]
    assert host["duration_ns"][operators[1]] == 700_000
    assert facts(trace) == ["cpu-only"]
    assert main(["diagnose", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"]["count"] == 6
    assert "convolution" in said["verdict"]


def test_nodes_of_a_gpu_without_its_kernels_are_only_asked_for(tmp_path):
    trace = load(kept(tmp_path, profile("CUDAExecutionProvider")))
    assert "kernels-of-provider-missing" in facts(trace)
    details = [trace.text(trace.health, "detail", i) for i in range(len(trace.health))]
    assert any(text.startswith("CUDAExecutionProvider: ") for text in details)


def test_what_a_gpu_ran_is_on_the_device(tmp_path):
    kernel = event("Kernel", "void cudnn::conv", 1100, 300, stream="7", grid_x="4")
    trace = load(kept(tmp_path, profile("CUDAExecutionProvider", kernels=[kernel])))
    ops = trace.device_ops
    assert (ops["duration_ns"].tolist(), ops["stream"].tolist()) == ([300_000], [7])
    assert "kernels-of-provider-missing" not in facts(trace)


def test_a_session_that_was_never_ended_leaves_the_list_open(tmp_path):
    whole = json.dumps(profile())
    trace = load(kept(tmp_path, whole.removesuffix("]") + ",\n"))
    assert len(trace.host_ops) == len(load(kept(tmp_path, whole)).host_ops)
    with pytest.raises(UnreadableFile, match="cut off"):
        load(kept(tmp_path, whole[:-40]))


def test_a_session_that_ran_nothing_is_refused(tmp_path):
    nothing = [{**event("Session", "model_loading_uri", 0, 1), "ph": "M"}]
    with pytest.raises(UnreadableFile, match="nothing ran"):
        load(kept(tmp_path, nothing))
