import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.trace import DeviceKind
from program import Program


def reducing(args, *, computes=(), us=1_000, kind="allreduce"):
    """Steps with one collective on a stream of its own, beside kernels of these lengths."""
    p = Program()
    for _ in p.steps(4):
        for length in computes:
            p.kernel("work", length)
        p.collective(us, args, stream=9, collective=kind)
        p.sync()
    return p.trace()


ALL_REDUCE = {"In msg nelems": 1_000_000, "Group size": 4}


@pytest.mark.parametrize(
    ("dtype", "size"), [("Float", 4_000_000), ("BFloat16", 2_000_000), ("Byte", 1_000_000)]
)
def test_the_message_is_elements_of_a_type(dtype, size):
    found = collectives(reducing(ALL_REDUCE | {"dtype": dtype}))
    assert found.bytes.tolist() == [size] * 3
    assert found.group_size.tolist() == [4] * 3


def test_what_was_launched_before_the_recording_is_of_no_step():
    b = TraceBuilder()
    args = '{"In msg nelems": 1000, "Group size": 2, "dtype": "Float"}'
    collective = {
        "kind": DeviceKind.COLLECTIVE, "collective": "allreduce", "collective_args": args,
    }  # fmt: skip
    for i in range(6):  # the device is three steps behind its host
        b.step(i, 1_000_000 * i, 1_000_000)
        done = {"start_ns": 1_000_000 * i + 500, "duration_ns": 900_000, "device": 0, "stream": 7}
        if i < 3:
            b.add("device_ops", name="nccl", correlation=900 + i, **done, **collective)
        b.launch(1_000_000 * i, 5_000, "nccl", 1_000_000 * (i + 3), 900_000, **collective)
    found = collectives(b.trace())
    assert np.bincount(found.step).max() == 1


def test_a_gather_moves_what_comes_out():
    args = {"In msg nelems": 10, "Out msg nelems": 40, "dtype": "Float"}
    assert collectives(reducing(args, kind="allgather")).bytes.tolist() == [160] * 3
    assert collectives(reducing(args, kind="allreduce")).bytes.tolist() == [40] * 3


def test_bus_bandwidth_is_that_of_nccl_tests():
    found = collectives(reducing(ALL_REDUCE | {"dtype": "Float"}))
    assert found.bus_bytes_per_s() == pytest.approx(4e6 / 1e-3 * 2 * 3 / 4)


@pytest.mark.parametrize("args", [{}, ALL_REDUCE, {"dtype": "Float", "In msg nelems": "many"}])
def test_what_is_not_recorded_is_not_known(args):
    found = collectives(reducing(args))
    assert found.bytes.tolist() == [0] * 3
    assert np.isnan(found.bus_bytes_per_s()).all()


def test_what_computing_hides_is_not_exposed():
    alone = collectives(reducing(ALL_REDUCE))
    assert alone.exposed_ns.tolist() == alone.duration_ns.tolist() == [1_000_000] * 3
    hidden = collectives(reducing(ALL_REDUCE, computes=[3_000]))
    assert hidden.exposed_ns.tolist() == [0] * 3
    partly = collectives(reducing(ALL_REDUCE, computes=[400]))
    assert partly.exposed_ns == pytest.approx(1_000_000 - 395_000)  # one launch later


def test_a_program_alone_has_none():
    p = Program()
    for _ in p.steps(3):
        p.kernel("work", 10)
    assert collectives(p.trace()) is None
    assert collectives(TraceBuilder().trace()) is None


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_arguments_that_are_none_are_not_known(text):
    b = TraceBuilder()
    for i in range(3):
        b.step(i, i * 100, 100)
        b.launch(i * 100 + 1, 5, "nccl", i * 100 + 10, 20, kind=4, collective_args=text)
    assert collectives(b.trace()).bytes.tolist() == [0, 0]
