"""Why the host waits, for each of the calls in which it can."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.time.host_waits import BLOCKING_H2D_BYTES, WaitReason, host_waits
from pinchpoint.trace import ApiKind, MemoryKind
from program import Program

DEVICE, PINNED, PAGEABLE = MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.PAGEABLE


def waits_of(act, steps=3):
    """The waits of steps of which each launches a kernel of 1 ms and does ``act``."""
    p = Program()
    for _ in p.steps(steps):
        p.kernel("work", 1_000)
        act(p)
    return host_waits(p.trace())


def item(p):
    p.read()


def nonzero(p):
    with p.row("aten::nonzero"):
        p.copy(8, 1, DEVICE, PINNED)
        p.sync()


def synchronize(p):
    p.sync("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE)


def tensor_to_host(p):
    with p.row("aten::copy_"):
        p.copy(1 << 20, 100, DEVICE, PAGEABLE, waits=True)


def few_values_to_host(p):
    with p.row("aten::copy_"):
        p.copy(256, 1, DEVICE, PAGEABLE, waits=True)


def pageable_to_device(p):
    with p.row("aten::copy_"):
        p.copy(BLOCKING_H2D_BYTES + 1, 100, PAGEABLE, DEVICE, waits=True)


def solve(p):
    with p.row("aten::linalg_solve"):
        p.sync()


def iterate(p):
    with p.row("aten::_linalg_svd"):
        p.copy(4, 1, DEVICE, PAGEABLE, waits=True)


def check_errors(p):
    with p.row("aten::_linalg_check_errors"), p.row("aten::item"):
        p.copy(4, 1, DEVICE, PAGEABLE, waits=True)


def free(p):
    p.call("cudaFree", ApiKind.FREE, 100)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (item, WaitReason.VALUE),
        (few_values_to_host, WaitReason.VALUE),
        (nonzero, WaitReason.SIZE),
        (synchronize, WaitReason.EXPLICIT),
        (tensor_to_host, WaitReason.COPY_TO_HOST),
        (pageable_to_device, WaitReason.COPY_TO_DEVICE),
        (solve, WaitReason.INSIDE_OPERATOR),
        (iterate, WaitReason.INSIDE_OPERATOR),
        (check_errors, WaitReason.VALUE),
        (free, WaitReason.MEMORY),
    ],
)
def test_the_reason_of_each_wait(act, reason):
    found = waits_of(act)
    assert len(found.api_calls) == 2  # one in each judged step; the first has no beginning
    assert set(found.reason.tolist()) == {reason}
    assert found.rows(reason).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("source", "later_us", "reason"),
    [
        (PAGEABLE, 0, WaitReason.COPY_TO_DEVICE),
        (PAGEABLE, 10, WaitReason.EXPLICIT),  # the program's own, behind the copy
        (PINNED, 0, WaitReason.EXPLICIT),
    ],
)
def test_a_wait_right_behind_a_copy_of_ordinary_memory_is_of_it(source, later_us, reason):
    def act(p):  # as where no operators were recorded
        p.copy(4096, 10, source, DEVICE)
        p.busy(later_us)
        p.sync()

    assert set(waits_of(act).reason.tolist()) == {reason}


def small_pageable_to_device(p):
    p.copy(BLOCKING_H2D_BYTES, 10, PAGEABLE, DEVICE)


def pinned_to_device(p):
    p.copy(1 << 24, 100, PINNED, DEVICE)


def pinned_to_host(p):
    p.copy(1 << 24, 100, DEVICE, PINNED)


@pytest.mark.parametrize("act", [small_pageable_to_device, pinned_to_device, pinned_to_host])
def test_these_copies_return_at_once(act):
    assert len(waits_of(act).api_calls) == 0


def test_bytes_are_those_of_the_whole_operator():
    found = waits_of(item)
    assert found.bytes.tolist() == [4, 4]
    assert waits_of(tensor_to_host).bytes.tolist() == [1 << 20] * 2


def test_how_long_it_took_is_the_call():
    p, took = Program(), []
    for _ in p.steps(3):
        p.kernel("work", 1_000)
        took.append(p.sync())
    assert host_waits(p.trace()).took_ns.tolist() == took[1:]


def test_a_recording_without_calls_has_no_waits():
    found = host_waits(TraceBuilder().trace())
    assert len(found.api_calls) == 0
    assert len(found.rows(WaitReason.VALUE)) == 0
