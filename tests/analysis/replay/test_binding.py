import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay.binding import Binding, bound
from pinchpoint.trace import DeviceKind, MemoryKind


def step(*spans, python=None, lasts=100):
    """One step with device work; each span is (name, start, length, more)."""
    b = TraceBuilder()
    b.step(1, 0, lasts)
    if python:
        b.python(*python)
    for name, at, length, more in spans:
        b.launch(at, 0, name, at, length, **more)
    return b.trace()


GEMM = ("cutlass_gemm", {})
NCCL = ("ncclDevKernel_AllReduce", {"kind": DeviceKind.COLLECTIVE})
H2D = (
    "Memcpy HtoD",
    {
        "kind": DeviceKind.COPY,
        "from_memory": MemoryKind.PINNED,
        "to_memory": MemoryKind.DEVICE,
    },
)


def of(what, at, length):
    return (what[0], at, length, what[1])


@pytest.mark.parametrize(
    ("trace", "by"),
    [
        pytest.param(step(of(GEMM, 0, 90), of(GEMM, 98, 2)), Binding.DEVICE, id="busy device"),
        pytest.param(step(of(GEMM, 0, 50), of(GEMM, 98, 2)), Binding.HOST, id="late host"),
        pytest.param(
            step(
                of(GEMM, 0, 40),
                of(GEMM, 95, 5),
                python=("torch/utils/data/dataloader.py(7): __next__", 40, 50),
            ),
            Binding.INPUT,
            id="slow loader",
        ),
        pytest.param(
            step(of(GEMM, 0, 60), of(NCCL, 60, 40)), Binding.COMMUNICATION, id="collectives"
        ),
        pytest.param(step(of(H2D, 0, 60), of(GEMM, 60, 40)), Binding.COPIES, id="copies"),
        pytest.param(
            step(of(GEMM, 0, 40), of(NCCL, 40, 30), of(GEMM, 98, 2)), Binding.MIXED, id="two waits"
        ),
    ],
)
def test_what_bounds_the_step(trace, by):
    found = bound(trace)
    assert found.by == by
    shares = (
        found.device_ratio
        + found.communication_ratio
        + found.copies_ratio
        + found.input_ratio
        + found.host_ratio
        + found.other_ratio
    )
    assert shares == pytest.approx(1)


def test_a_wait_that_the_host_does_not_explain_is_not_blamed_on_it():
    b = TraceBuilder()
    b.step(1, 0, 1_000_000)
    b.launch(0, 0, "gemm", 0, 100_000)
    b.launch(10, 0, "gemm", 900_000, 100_000)
    assert bound(b.trace()).by == Binding.UNKNOWN


def test_a_host_without_a_device_bounds_itself():
    b = TraceBuilder()
    b.step(1, 0, 100)
    b.op("aten::mm", 0, 90)
    found = bound(b.trace(device_ops=None, api_calls=None))
    assert found.by == Binding.HOST
    assert found.empty_queue_ratio is None


def test_no_events_no_answer():
    assert bound(TraceBuilder().trace()).by == Binding.UNKNOWN


def test_devices_that_take_turns_bound_nothing_by_their_union():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 400, 400)
        for device in range(4):
            at = i * 400 + device * 100
            b.launch(at, 1, "cutlass_gemm", at, 100, device=device)
    assert bound(b.trace()).by == Binding.TURNS


def test_one_kernel_says_nothing_about_a_bound():
    b = TraceBuilder()
    b.op("aten::add", 0, 1_500_000)
    b.launch(1_240_000, 47_000, "add", 1_290_000, 1_760)
    assert bound(b.trace()).by == Binding.UNKNOWN
