from builders import TraceBuilder
from pinchpoint.analysis.device.categories import Category
from pinchpoint.analysis.statistics import Spread
from pinchpoint.analysis.tables.transfers import blocked_ns, transfers
from pinchpoint.trace import ApiKind, MemoryKind

DEVICE, PINNED, PAGEABLE = MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.PAGEABLE


def to_device(b, at, takes, runs_at, for_ns, size, source=PINNED):
    b.copy(at, takes, "Memcpy HtoD", runs_at, for_ns, size=size, source=source, target=DEVICE)


def test_copies_are_summed_by_memories():
    b = TraceBuilder()
    to_device(b, 0, 2, 100, 10, 1000)
    to_device(b, 5, 2, 200, 30, 3000)
    to_device(b, 9, 2, 300, 5, 50, PAGEABLE)
    pinned, pageable = transfers(b.trace())
    assert (pinned.direction, pinned.source, pinned.target) == (Category.COPY_H2D, PINNED, DEVICE)
    assert (pinned.count, pinned.bytes, pinned.total_ns) == (2, 4000, 40)
    assert pinned.bytes_per_s == 1e11
    assert pinned.size_bytes == Spread(2, 1000, 1000, 3000, 3000)
    assert (pageable.source, pageable.bytes) == (PAGEABLE, 50)


def test_what_runs_beside_a_kernel_is_hidden():
    b = TraceBuilder()
    b.launch(0, 2, "kernel", 100, 50, stream=7)
    to_device(b, 5, 2, 120, 60, 8)
    (row,) = transfers(b.trace())
    assert row.overlapped_ns == 30
    assert row.overlapped_ratio == 0.5


def test_the_host_waits_in_a_call_that_lasts_through_the_copy():
    b = TraceBuilder()
    to_device(b, 0, 90, 10, 100, 8, PAGEABLE)
    (row,) = transfers(b.trace())
    assert (row.blocking, row.host_blocked_ns) == (1, 90)


def test_an_asynchronous_call_overlaps_with_a_pinned_copy_by_chance():
    b = TraceBuilder()
    to_device(b, 0, 90, 10, 100, 8, PINNED)
    assert blocked_ns(b.trace()).tolist() == [0]
    b.rows["api_calls"][0]["name"] = "cudaMemcpy"
    assert blocked_ns(b.trace()).tolist() == [90]


def test_the_host_waits_in_the_synchronisation_of_the_same_operator():
    b = TraceBuilder()
    b.op("aten::_local_scalar_dense", 0, 200)
    b.copy(5, 5, "Memcpy DtoH", 100, 10, size=4, source=DEVICE, target=PINNED)
    b.api("cudaStreamIsCapturing", 12, 1, kind=ApiKind.QUERY)
    b.api("cudaStreamSynchronize", 15, 120, kind=ApiKind.SYNC_STREAM)
    assert blocked_ns(b.trace()).tolist() == [120]


def test_the_host_does_not_wait_for_an_asynchronous_copy():
    b = TraceBuilder()
    b.op("aten::copy_", 0, 20)
    to_device(b, 5, 5, 100, 10, 8)
    b.api("cudaStreamSynchronize", 30, 120, kind=ApiKind.SYNC_STREAM)
    (row,) = transfers(b.trace())
    assert (row.blocking, row.host_blocked_ns) == (0, 0)


def test_unknown_sizes_stay_unknown():
    b = TraceBuilder()
    to_device(b, 5, 5, 100, 10, None)
    (row,) = transfers(b.trace())
    assert (row.bytes, row.bytes_per_s, row.size_bytes) == (None, None, None)


def test_a_mask_restricts_the_copies():
    b = TraceBuilder()
    to_device(b, 0, 2, 100, 10, 1000)
    to_device(b, 5, 2, 200, 30, 3000)
    trace = b.trace()
    (row,) = transfers(trace, trace.device_ops["start_ns"] < 150)
    assert row.count == 1


def test_without_a_device_there_are_no_transfers():
    trace = TraceBuilder().trace(device_ops=None)
    assert transfers(trace) == ()
    assert blocked_ns(trace).tolist() == []
