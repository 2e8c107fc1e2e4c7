from builders import TraceBuilder
from pinchpoint.analysis.host.frames import PythonFrame
from pinchpoint.analysis.tables.launch_statistics import launch_statistics
from pinchpoint.trace import ApiKind, DeviceKind


def test_kernels_are_short_below_ten_microseconds():
    b = TraceBuilder()
    for i, takes in enumerate((2_000, 9_999, 10_000, 50_000)):
        b.launch(100 * i, 5, "kernel", 100_000 * (i + 1), takes)
    s = launch_statistics(b.trace())
    assert (s.launches, s.kernels, s.short_kernels) == (4, 4, 2)
    assert (s.short_kernels_ns, s.kernels_ns) == (11_999, 71_999)
    assert s.launch_call_ns.median == 5


def test_latency_is_the_delay_that_no_queue_explains():
    b = TraceBuilder()
    b.launch(0, 5, "first", 20, 100)  # starts on an idle device, 20 after its call
    b.launch(10, 5, "queued", 120, 50)  # waits for the first
    b.launch(300, 5, "late", 330, 10)
    s = launch_statistics(b.trace())
    assert (s.delay_ns.count, s.delay_ns.most) == (3, 110)
    assert (s.latency_ns.count, s.latency_ns.least, s.latency_ns.most) == (2, 20, 30)


def test_a_kernel_that_seems_to_start_before_its_call_has_no_delay():
    b = TraceBuilder()
    b.launch(100, 5, "kernel", 90, 10)
    assert launch_statistics(b.trace()).delay_ns.most == 0


def test_the_pace_is_that_between_launches_without_a_wait():
    b = TraceBuilder()
    for at in (0, 1_000, 2_000):
        b.launch(at, 5, "kernel", at + 20, 10)
    b.api("cudaDeviceSynchronize", 2_500, 90_000, kind=ApiKind.SYNC_DEVICE)
    b.launch(100_000, 5, "kernel", 100_020, 10)
    b.launch(50, 5, "kernel", 99, 10, thread=b.thread("other"))
    s = launch_statistics(b.trace())
    assert (s.interval_ns.count, s.interval_ns.median) == (2, 1_000)


def test_a_graph_launch_starts_many_operations():
    b = TraceBuilder()
    call = b.api("cudaGraphLaunch", 0, 50, kind=ApiKind.GRAPH_LAUNCH)
    for i in range(3):
        b.add(
            "device_ops",
            name="kernel",
            kind=DeviceKind.KERNEL,
            start_ns=100 + 10 * i,
            duration_ns=5,
            device=0,
            correlation=call["correlation"],
        )
    s = launch_statistics(b.trace())
    assert (s.launches, s.graph_launches, s.ops_per_graph.median) == (0, 1, 3)
    assert s.delay_ns is None


def test_synchronisations_are_listed_with_their_place():
    b = TraceBuilder()
    b.python("train.py(3): step", 0, 1000)
    b.python("torch/_tensor.py(9): item", 5, 100)
    b.op("aten::item", 10, 90)
    b.api("cudaStreamSynchronize", 20, 70, kind=ApiKind.SYNC_STREAM)
    b.op("aten::item", 200, 90)
    b.api("cudaStreamSynchronize", 220, 60, kind=ApiKind.SYNC_STREAM)
    b.api("cudaDeviceSynchronize", 2000, 500, kind=ApiKind.SYNC_DEVICE)
    first, second = launch_statistics(b.trace()).syncs
    assert (first.kind, first.calls, first.total_ns) == (ApiKind.SYNC_DEVICE, 1, 500)
    assert (first.operator, first.frame) == (None, None)
    assert (second.name, second.calls, second.total_ns) == ("cudaStreamSynchronize", 2, 130)
    assert (second.operator, second.frame) == ("aten::item", PythonFrame("train.py", 3, "step"))


def test_a_mask_restricts_calls_and_what_they_started():
    b = TraceBuilder()
    b.launch(0, 5, "kernel", 20, 10)
    b.launch(100, 5, "kernel", 120, 30)
    trace = b.trace()
    s = launch_statistics(trace, trace.api_calls["start_ns"] >= 100)
    assert (s.launches, s.kernels, s.kernels_ns) == (1, 1, 30)


def test_nothing_recorded_has_no_statistics():
    for trace in (
        TraceBuilder().trace(),
        TraceBuilder().trace(api_calls=None, device_ops=None, host_ops=None),
    ):
        s = launch_statistics(trace)
        assert (s.launches, s.kernels, s.syncs) == (0, 0, ())
        assert s.kernel_ns is s.delay_ns is s.interval_ns is s.ops_per_graph is None
