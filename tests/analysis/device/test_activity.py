import pytest

from builders import TraceBuilder
from pinchpoint.analysis.device.activity import device_activity, each_device, take_turns
from pinchpoint.analysis.device.categories import Category
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.trace import DeviceKind, MemoryKind, Thread


def on(builder, name, at, lasts, *, stream=7, kind=DeviceKind.KERNEL, **more):
    builder.add(
        "device_ops",
        name=name,
        kind=kind,
        start_ns=at,
        duration_ns=lasts,
        device=0,
        stream=stream,
        **more,
    )


@pytest.mark.parametrize(
    ("ops", "busy_ns", "idle_ratio"),
    [
        pytest.param([(0, 10), (10, 10)], 20, 0.0, id="back to back"),
        pytest.param([(0, 10), (30, 10)], 20, 0.5, id="one gap"),
        pytest.param([(0, 40), (10, 10), (60, 20)], 60, 0.25, id="gap after nested"),
        pytest.param([], 0, None, id="no device work"),
    ],
)
def test_overlap_counts_once(ops, busy_ns, idle_ratio):
    b = TraceBuilder()
    for at, lasts in ops:
        on(b, "gemm_kernel", at, lasts)
    found = device_activity(b.trace())
    assert found.busy_ns == busy_ns
    assert found.idle_ratio == (None if idle_ratio is None else pytest.approx(idle_ratio))


def test_a_collective_counts_only_where_it_is_exposed():
    b = TraceBuilder()
    on(b, "cutlass_gemm", 0, 100)
    on(b, "ncclDevKernel_AllReduce", 60, 100, stream=20, kind=DeviceKind.COLLECTIVE)
    found = device_activity(b.trace())
    assert found.exclusive[Category.GEMM].total == 100
    assert found.exclusive[Category.COLLECTIVE].total == 60


def test_a_copy_gives_way_to_compute_and_to_collectives():
    b = TraceBuilder()
    on(b, "cutlass_gemm", 0, 50)
    on(b, "ncclDevKernel_AllReduce", 50, 50, stream=20, kind=DeviceKind.COLLECTIVE)
    on(
        b,
        "Memcpy HtoD",
        0,
        120,
        stream=24,
        kind=DeviceKind.COPY,
        from_memory=MemoryKind.PINNED,
        to_memory=MemoryKind.DEVICE,
    )
    found = device_activity(b.trace())
    assert found.exclusive[Category.COPY_H2D].total == 20
    assert found.busy_ns == sum(when.total for when in found.exclusive.values()) == 120


def test_of_two_processes_in_one_file_the_main_threads_counts():
    b = TraceBuilder(threads=[Thread("1", "1", "main"), Thread("2", "9", "main")])
    b.step(1, 0, 200)
    b.launch(0, 5, "cutlass_gemm", 10, 50)
    b.launch(0, 5, "cutlass_gemm", 20, 180, thread=1, device=1)
    on(b, "unlinked_gemm", 60, 10)
    trace = b.trace()
    assert device_activity(trace).busy_ns == 60
    assert steps(trace).end_ns.tolist() == [200]
    assert int(gaps(trace).duration_ns.sum()) == 140


def one_after_the_other(devices, *, at_once=False):
    b = TraceBuilder()
    for i in range(40):
        number = i % devices
        at = (i // devices if at_once else i) * 100
        b.launch(at, 1, "gemm", at, 100, device=number)
    return b.trace()


def test_each_device_has_its_own_busy_time():
    trace = one_after_the_other(4)
    assert device_activity(trace).idle_ratio == 0
    assert [d.device for d in each_device(trace)] == [0, 1, 2, 3]
    assert [d.idle_ratio for d in each_device(trace)] == [0.75] * 4
    assert [(d.busy_ns, d.kernels) for d in each_device(trace)] == [(1000, 10)] * 4
    assert take_turns(trace)


def test_devices_that_work_at_the_same_time_do_not_take_turns():
    trace = one_after_the_other(4, at_once=True)
    assert [d.idle_ratio for d in each_device(trace)] == [0] * 4
    assert not take_turns(trace)


def test_a_stray_kernel_long_before_the_recording_is_not_of_it():
    b = TraceBuilder()
    on(b, "gemm", 0, 300)
    for i in range(10):
        b.launch(10**9 + i * 100, 1, "gemm", 10**9 + i * 100 + 5, 60)
    found = device_activity(b.trace())
    assert (found.busy_ns, found.span_ns) == (600, 960)
