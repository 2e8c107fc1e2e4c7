"""Rounds of serving engines: what their names say, and what a report says of them."""

import json

import pytest

from importers.nsys_export import call, kernel, nvtx, strings, write
from kineto_documents import document, event, launched, written
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.serving import serving
from pinchpoint.cli import main
from pinchpoint.importers import load
from pinchpoint.trace.engine_steps import EngineStep, engine_step


def test_names_longer_than_any_engine_writes_are_not_looked_at():
    assert engine_step("step[DECODE bs=32 " + "x" * 900 + "]") is not None
    assert engine_step("step[DECODE bs=32 " + "x" * 1000 + "]") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "execute_context_2(512)_generation_30(60)",
            EngineStep("vLLM", "mixed", 2, 512, 30, 60),
        ),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
            "_generation_37(sq37sk34489sqsq37sqsk34489)",
            EngineStep("vLLM", "mixed", 9, 8155, 37, 37, 34489),
        ),
        ("execute_context_0(0)_generation_0(0)", EngineStep("vLLM", "idle", 0, 0, 0, 0)),
        ("step[EXTEND bs=15 toks=15360]", EngineStep("SGLang", "prefill", 15, 15360, 0, 0)),
        ("step[DECODE bs=32]", EngineStep("SGLang", "decode", 0, 0, 32, 32)),
        ("step[TARGET_VERIFY bs=4]", EngineStep("SGLang", "target_verify", 0, None, 4, None)),
        (
            "[Executor] _forward_step 7: 1 ctx reqs, 128 ctx tokens, 3 gen reqs",
            EngineStep("TensorRT-LLM", "mixed", 1, 128, 3, 3),
        ),
        (
            "[Executor] _forward_step: 1 ctx reqs, 0 gen reqs",
            EngineStep("TensorRT-LLM", "prefill", 1, None, 0, 0),
        ),
        ("execute_model", None),
        ("step[3]", None),
        ("execute_context_1234567890123(1)_generation_0(0)", None),
    ],
)
def test_names_of_rounds(name, said):
    assert engine_step(name) == said


def engine(folder, *rounds):
    """Rounds (name, µs of the device), each called 100 µs after the end of the one before."""
    events, at, ends = [], 0, 50
    for number, (name, runs) in enumerate(rounds, 1):
        begins = max(at + 60, ends)
        events.append(event(name, "user_annotation", at, 100))
        events += launched("paged_attention_v2", at + 50, begins, runs, number)
        ends = begins + runs
        at = ends + 100
    return written(folder, document(*events))


def test_prefill_and_decode_are_told_apart(tmp_path, capsys):
    decode = ("execute_context_0(0)_generation_8(16)", 340)
    path = engine(
        tmp_path, *[decode] * 5, ("execute_context_1(2000)_generation_0(0)", 900), *[decode] * 5
    )
    trace = load(path)
    assert (steps(trace).how, len(steps(trace))) == ("marker", 11)
    found = serving(trace)
    first, second = found.kinds
    assert (first.kind, first.count, first.requests, first.tokens) == ("decode", 10, 8, 16)
    assert first.typical_ns == 500_000  # 340 µs of the device, 100 between rounds, 60 to launch
    assert first.tokens_per_s == pytest.approx(32_000)
    assert first.tokens_a_request == 2  # proposed at once
    assert (second.kind, second.count, second.requests, second.tokens) == ("prefill", 1, 1, 2000)
    assert second.tokens_a_request is None
    assert found.between_ns == 400_000  # from the end of a call to the next one
    assert [one.kind for one in found.rounds].index("prefill") == 5

    assert main(["diagnose", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["serving"]["engine"] == "vLLM"
    assert len(document["serving"]["rounds"]) == 11
    assert main(["diagnose", str(path)]) == 0
    assert "10 decode rounds of 8 requests and 16 tokens, 500 µs each" in " ".join(
        capsys.readouterr().out.split()
    )


def test_no_rate_where_a_name_says_no_tokens(tmp_path):
    found = serving(load(engine(tmp_path, *[("step[TARGET_VERIFY bs=4]", 340)] * 4)))
    (kind,) = found.kinds
    assert (kind.tokens, kind.tokens_per_s) == (None, None)


def test_rounds_inside_rounds_count_once_and_name_the_engine(tmp_path):
    outer = "execute_32_context_0(sq0sk0)_generation_32(sq32sk900)"
    inner = event("step[DECODE bs=32]", "user_annotation", 10, 50)
    events = [event(outer, "user_annotation", 0, 100), inner, *launched("k", 20, 40, 30, 1)]
    found = serving(load(written(tmp_path, document(*events))))
    assert (found.engine, [k.count for k in found.kinds]) == ("SGLang", [1])


def test_other_programs_serve_nothing(tmp_path):
    path = engine(tmp_path, *[("forward", 340)] * 4)
    assert serving(load(path)) is None


def test_rounds_of_tensorrt_in_an_export_of_nsys_are_steps(tmp_path):
    us = 1000
    named = "[Executor] _forward_step {}: 0 ctx reqs, 0 ctx tokens, 4 gen reqs"
    tables = {
        "StringIds": strings("gemm", "cudaLaunchKernel_v7000"),
        "NVTX_EVENTS": [
            nvtx(n * 500 * us, (n * 500 + 100) * us, named.format(n)) for n in range(4)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call((n * 500 + 10) * us, (n * 500 + 12) * us, n + 1, 1) for n in range(4)
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel((n * 500 + 20) * us, (n * 500 + 400) * us, n + 1) for n in range(4)
        ],
    }
    trace = load(write(tmp_path / "engine.sqlite", tables))
    (kind,) = serving(trace).kinds
    assert (steps(trace).how, kind.kind, kind.count, kind.requests) == ("marker", "decode", 4, 4)
    assert kind.tokens_per_s == pytest.approx(8000)  # four in 500 µs
