from builders import TraceBuilder
from pinchpoint.analysis.device.kernel_precision import Precision
from pinchpoint.analysis.tables.kernels import kernels
from pinchpoint.trace import DeviceKind, MemoryKind

GEMM = "nvjet_sm90_tst_64x8_64x16_TNT"


def runs(*durations, **more):
    b = TraceBuilder()
    for i, takes in enumerate(durations):
        b.launch(100 * i, 5, GEMM, 1000 * (i + 1), takes, **more)
    return b


def test_one_row_a_name_with_the_spread_of_its_runs():
    (row,) = kernels(runs(10, 40, 20, 30).trace()).rows
    assert (row.calls, row.total_ns, row.mean_ns) == (4, 100, 25.0)
    assert (row.min_ns, row.median_ns, row.p90_ns, row.max_ns) == (10, 20, 40, 40)
    assert (row.category.id, row.precision, row.matrix_units) == ("gemm", Precision.BF16, True)


def test_p90_is_a_run_that_nine_of_ten_do_not_exceed():
    (row,) = kernels(runs(*range(1, 11)).trace()).rows
    assert row.p90_ns == 9


def test_rows_are_ordered_by_time_and_know_their_share():
    b = runs(10)
    b.launch(500, 5, "void other<float>(int)", 9000, 30)
    b.copy(600, 5, "Memcpy", 9900, 99, size=4, source=MemoryKind.HOST, target=MemoryKind.DEVICE)
    table = kernels(b.trace())
    assert [r.short_name for r in table.rows] == ["other", GEMM]
    assert [table.share(r) for r in table.rows] == [0.75, 0.25]


def test_blocks_are_related_to_the_multiprocessors():
    (row,) = kernels(runs(10, 20, 30, grid="[33, 2, 1]").trace()).rows
    assert (row.blocks, row.blocks_per_multiprocessor) == (66, 0.5)
    (row,) = kernels(runs(10).trace()).rows
    assert (row.blocks, row.blocks_per_multiprocessor) == (None, None)
    (row,) = kernels(runs(10, grid="[0, -2]").trace()).rows
    assert row.blocks is None


def test_launching_operators_are_named_most_time_first():
    b = TraceBuilder()
    for i, name in enumerate(("aten::mm", "aten::bmm", "aten::mm")):
        b.op(name, 100 * i, 50)
        b.launch(100 * i + 1, 5, GEMM, 1000 * (i + 1), 10)
    b.python("torch/cuda/graphs.py(139): replay", 890, 50)
    b.launch(900, 5, GEMM, 9000, 50)
    (row,) = kernels(b.trace()).rows
    assert row.operators == ("aten::mm", "aten::bmm")


def test_a_mask_restricts_the_runs():
    trace = runs(10, 20, 40).trace()
    (row,) = kernels(trace, trace.device_ops["start_ns"] < 3000).rows
    assert (row.calls, row.total_ns) == (2, 30)
    assert kernels(trace, trace.device_ops["start_ns"] < 0).rows == ()


def test_collectives_are_kernels_and_memsets_are_not():
    b = TraceBuilder()
    b.launch(0, 5, "ncclDevKernel_AllReduce", 10, 20, kind=DeviceKind.COLLECTIVE)
    b.launch(6, 5, "Memset (Device)", 40, 20, kind=DeviceKind.MEMSET)
    assert [r.category.id for r in kernels(b.trace()).rows] == ["collective"]


def test_without_a_device_the_table_is_empty():
    assert kernels(TraceBuilder().trace(device_ops=None)).rows == ()
