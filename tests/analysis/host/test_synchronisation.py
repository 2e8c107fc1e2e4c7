from builders import TraceBuilder
from pinchpoint.analysis.host.launches import waits
from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.trace import ApiKind, MemoryKind


def lost(builder):
    """Name of each waiting call and the time it lost."""
    trace = builder.trace()
    found, rows = waits(trace), host_rows(trace)
    return [
        (trace.names[rows.name[row]], ns)
        for row, ns in zip(found.row.tolist(), found.lost_ns.tolist(), strict=True)
    ]


def test_a_sync_loses_the_time_in_which_the_device_works():
    b = TraceBuilder()
    b.launch(0, 10, "gemm", 20, 100)
    b.api("cudaStreamSynchronize", 30, 100, kind=ApiKind.SYNC_STREAM)
    assert lost(b) == [("cudaStreamSynchronize", 90)]


def test_a_sync_of_an_idle_device_is_no_wait():
    b = TraceBuilder()
    b.launch(0, 10, "gemm", 20, 10)
    b.api("cudaDeviceSynchronize", 50, 5, kind=ApiKind.SYNC_DEVICE)
    assert lost(b) == []


def test_a_long_copy_that_returns_with_its_end_is_a_wait():
    b = TraceBuilder()
    b.copy(
        0,
        1_000_000,
        "Memcpy HtoD (Pageable -> Device)",
        100_000,
        890_000,
        size=1 << 24,
        source=MemoryKind.PAGEABLE,
        target=MemoryKind.DEVICE,
    )
    assert lost(b) == [("cudaMemcpyAsync", 890_000)]


def test_blocking_launches_wait_and_others_do_not():
    b = TraceBuilder()
    b.launch(0, 500_000, "blocking", 10_000, 480_000)
    b.launch(600_000, 30_000, "slow launch", 640_000, 500_000)
    assert lost(b) == [("cudaLaunchKernel", 480_000)]
