"""Spans of steps and phases: by hand, through the SDK, and as OTLP."""

import base64
import json
from pathlib import Path

import pytest

import pinchpoint as pp
from builders import TraceBuilder
from pinchpoint.cli import main
from pinchpoint.export.spans import MOST_PHASES, otlp_json, spans

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
ORIGIN_NS = 1_700_000_000_000_000_000


def training(phases=("forward", "backward"), **facts):
    builder = TraceBuilder()
    for i in range(3):
        at = 100_000 * i
        builder.step(i + 4, at, 100_000)
        for k, phase in enumerate(phases):
            length = 80_000 // len(phases)
            builder.annotation(phase, at + 1000 + length * k, length - 10)
            builder.annotation("inner", at + 1000 + length * k, length // 2)
        builder.launch(at + 1100, 500, "gemm", runs_at=at + 2000, for_ns=30_000)
    return builder.trace(**facts)


def test_steps_hold_their_outermost_phases():
    root = spans(training(origin_ns=ORIGIN_NS))
    assert [step.name for step in root.inside] == ["step 4", "step 5", "step 6"]
    assert (root.start_ns, root.end_ns) == (ORIGIN_NS, ORIGIN_NS + 300_000)
    phases = root.inside[1].inside
    assert [(p.name, p.start_ns - ORIGIN_NS, p.end_ns - p.start_ns) for p in phases] == [
        ("forward", 101_000, 39_990),
        ("backward", 141_000, 39_990),
    ]


def test_a_step_says_where_its_time_went_to_the_nanosecond():
    for step in spans(training()).inside:
        parts = [v for k, v in step.attributes.items() if k.endswith("_ns")]
        assert sum(parts) == step.end_ns - step.start_ns


def test_an_unknown_time_of_day_is_said():
    assert spans(training()).attributes["pinchpoint.clock"] == "since the trace began"
    assert spans(training(origin_ns=ORIGIN_NS)).attributes["pinchpoint.clock"] == "unix"


def test_of_many_phases_the_longest_stay():
    many = [f"phase {k}" for k in range(MOST_PHASES + 20)]
    assert len(spans(training(many)).inside[0].inside) == MOST_PHASES


def test_without_steps_there_are_no_spans():
    assert spans(TraceBuilder().trace()) is None
    assert json.loads(otlp_json(TraceBuilder().trace()))["resourceSpans"][0]["scopeSpans"] == [
        {"scope": {"name": "pinchpoint"}, "spans": []}
    ]


def test_ids_are_unique_whole_and_the_same_each_time():
    listed = json.loads(otlp_json(training()))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ids = [span["spanId"] for span in listed]
    assert len(set(ids)) == len(ids) == 1 + 3 + 6
    assert {len(id_) for id_ in ids} == {16}
    assert {len(span["traceId"]) for span in listed} == {32}
    assert listed[0]["parentSpanId"] == ""
    assert {span["parentSpanId"] for span in listed[1:]} <= set(ids)
    assert otlp_json(training()) == otlp_json(training())


def test_the_sdk_gets_the_same_spans():
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is missing")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    assert pp.log_spans(training(origin_ns=ORIGIN_NS), provider.get_tracer("test")) == 10
    done = {span.name: span for span in kept.get_finished_spans()}
    step = done["step 6"]
    assert (step.start_time, step.end_time) == (ORIGIN_NS + 200_000, ORIGIN_NS + 300_000)
    assert step.parent.span_id == done["recording"].context.span_id
    assert step.attributes["pinchpoint.step.number"] == 6
    assert done["forward"].parent.span_id in {
        span.context.span_id for name, span in done.items() if name.startswith("step")
    }


def test_otlp_is_what_the_protocol_says():
    service = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="opentelemetry-proto is missing",
    )
    from google.protobuf.json_format import ParseDict

    document = json.loads(otlp_json(pp.load(DEMO)))
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):  # OTLP has hex where protobuf has base64
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    read = ParseDict(document, service.ExportTraceServiceRequest())
    found = read.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in found][:2] == ["recording", "step 0"]
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in found)


def test_the_command_writes_it(tmp_path):
    out = tmp_path / "spans.json"
    assert main(["export", str(DEMO), "--to", "otlp", "-o", str(out)]) == 0
    assert len(json.loads(out.read_text())["resourceSpans"]) == 1
