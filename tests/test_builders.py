from builders import TraceBuilder
from pinchpoint.trace import ApiKind


def test_rows_are_sorted_and_linked():
    b = TraceBuilder()
    b.launch(12, 2, "late", 30, 5)
    b.op("aten::mm", 10, 10)
    b.api("cudaDeviceSynchronize", 25, 10, kind=ApiKind.SYNC_DEVICE)
    t = b.trace()
    assert t.text(t.host_ops, "name", 0) == "aten::mm"
    assert t.api_calls["host_op"][0] == 0
    assert t.api_calls.value("host_op", 1) is None
    assert t.device_ops["api_call"][0] == 0
    assert t.device_ops.value("bytes", 0) is None
