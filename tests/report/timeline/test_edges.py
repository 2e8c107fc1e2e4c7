"""Arrows besides launches: waits for events and for the device, backward, the critical path."""

from builders import TraceBuilder
from pinchpoint.report.timeline.edges import ENDS_WAIT, EVENT_WAIT, edges, path
from pinchpoint.report.timeline.lanes import timeline
from pinchpoint.trace import ApiKind, FlowKind


def row(trace, table, position):
    """The number of a row among device_ops, host_ops and api_calls."""
    before = {
        "device_ops": (),
        "host_ops": ("device_ops",),
        "api_calls": ("device_ops", "host_ops"),
    }
    return position + sum(len(getattr(trace, name)) for name in before[table])


def test_a_stream_waits_for_an_event_and_a_call_for_the_device():
    builder = TraceBuilder()
    builder.op("forward", 0, 1000)
    builder.launch(10, 5, "produces", runs_at=20, for_ns=300, stream=7)
    record = builder.api("cudaEventRecord", 20, 5, kind=ApiKind.EVENT_RECORD)
    builder.launch(25, 5, "too early", runs_at=31, for_ns=10, stream=20)
    builder.add(
        "flows", start_ns=30, end_ns=31, kind=FlowKind.EVENT_WAIT,
        from_correlation=record["correlation"], to_stream=20, device=0,
    )  # fmt: skip
    builder.launch(40, 5, "consumes", runs_at=320, for_ns=100, stream=20)
    builder.api("cudaDeviceSynchronize", 60, 400, kind=ApiKind.SYNC_DEVICE)
    trace = builder.trace()
    names = [trace.names[i] for i in trace.device_ops["name"]]
    consumes = names.index("consumes")
    calls = [trace.names[i] for i in trace.api_calls["name"]]
    assert edges(trace) == [
        (row(trace, "api_calls", calls.index("cudaEventRecord")), consumes, EVENT_WAIT),
        (consumes, row(trace, "api_calls", calls.index("cudaDeviceSynchronize")), ENDS_WAIT),
    ]


def test_a_wait_leads_to_its_own_device():
    builder = TraceBuilder()
    record = builder.api("cudaEventRecord", 20, 5, kind=ApiKind.EVENT_RECORD)
    for device in (0, 1):
        builder.launch(
            40 + device, 5, f"on {device}", runs_at=50, for_ns=10, stream=7, device=device
        )
    for device in (1, None):  # the second may be of either
        builder.add(
            "flows", start_ns=30, end_ns=31, kind=FlowKind.EVENT_WAIT,
            from_correlation=record["correlation"], to_stream=7, device=device,
        )  # fmt: skip
    trace = builder.trace()
    (_, to, _) = one = next(iter(edges(trace)))
    assert edges(trace) == [one]
    assert trace.names[trace.device_ops["name"][to]] == "on 1"


def test_a_backward_node_is_linked_with_its_forward_operator():
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 100, sequence=5)
    second = builder.thread("autograd")
    node = "autograd::engine::evaluate_function: MmBackward0"
    builder.op(node, 200, 100, thread=second, sequence=5)
    trace = builder.trace()
    drawn = timeline(trace)
    by_row = dict(zip(drawn.slices.row.tolist(), drawn.slices.link.tolist(), strict=True))
    assert by_row[0] == -1
    assert drawn.slices.row[by_row[1]] == 0


def test_the_critical_path_leads_through_what_the_step_waits_for():
    builder = TraceBuilder()
    for i in range(6):
        at = 1_000_000 * i
        builder.step(i, at, 1_000_000)
        builder.op("aten::mm", at + 10_000, 50_000)
        builder.launch(at + 20_000, 5_000, "gemm", runs_at=at + 30_000, for_ns=900_000)
        builder.launch(at + 40_000, 5_000, "add", runs_at=at + 930_000, for_ns=30_000)
        builder.api("cudaDeviceSynchronize", at + 70_000, 895_000, kind=ApiKind.SYNC_DEVICE)
    trace = builder.trace()
    found = [
        trace.names[trace.device_ops["name"][i]] for i in path(trace) if i < len(trace.device_ops)
    ]
    assert found == ["gemm", "add"]
