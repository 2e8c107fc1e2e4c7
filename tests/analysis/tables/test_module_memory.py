"""What calls of modules leave allocated, known beforehand."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.tables.modules import kept_bytes_per_call
from pinchpoint.trace import HostKind


def model(events, *, thread=0):
    builder = TraceBuilder()
    builder.thread("autograd")
    for at in (0, 1000):
        builder.op("nn.Module: Net_0", at, 900, kind=HostKind.MODULE)
        builder.op("nn.Module: Linear_1", at + 100, 300, kind=HostKind.MODULE)
    for at, size, device in events:
        builder.add("allocations", time_ns=at, bytes=size, device=device, thread=thread)
    return builder.trace()


def test_allocated_minus_freed_inside_a_call_is_kept():
    kept = kept_bytes_per_call(
        model([(50, 8, 0), (150, 100, 0), (350, -60, 0), (950, 999, 0), (1200, 20, 0)])
    )
    assert kept == {"Net_0": pytest.approx((48 + 20) / 2), "Linear_1": pytest.approx(30)}


def test_memory_of_the_host_and_of_other_threads_is_not_the_modules():
    assert kept_bytes_per_call(model([(150, 100, None), (160, 1, 0)]))["Linear_1"] == 0.5
    assert kept_bytes_per_call(model([(150, 100, 0)], thread=1))["Linear_1"] == 0


def test_without_modules_or_memory_there_is_no_answer():
    assert kept_bytes_per_call(model([])) is None
    assert kept_bytes_per_call(TraceBuilder().trace()) is None
