import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.device.collectives import slowed_by
from pinchpoint.trace import DeviceKind


def side_by_side(alone_us=(100, 100, 100), beside_us=(150, 160, 150)):
    """GEMMs alone, then GEMMs of stream 7 beside collectives of stream 20."""
    b, at = TraceBuilder(), 0
    for us in alone_us:
        b.launch(at, 5, kernel="gemm", runs_at=at + 10, for_ns=us * 1_000)
        at += 300_000
    for us in beside_us:
        begin = at + 10
        b.launch(at, 5, kernel="gemm", runs_at=begin, for_ns=us * 1_000)
        b.launch(
            at, 5, kernel="ncclDevKernel_AllReduce", runs_at=begin, for_ns=us * 1_000,
            stream=20, kind=DeviceKind.COLLECTIVE,
        )  # fmt: skip
        at += 300_000
    return b.trace()


def collectives_of(trace):
    return np.flatnonzero(trace.device_ops["kind"] == DeviceKind.COLLECTIVE)


def test_the_ratio_is_that_of_the_medians():
    trace = side_by_side()
    (slowed,) = slowed_by(trace, collectives_of(trace))
    assert slowed.alone_ratio == pytest.approx(100 / 150)
    assert trace.device_ops["duration_ns"][slowed.rows].tolist() == [150_000, 160_000, 150_000]


def test_only_those_beside_the_asked_ones_count():
    trace = side_by_side()
    (slowed,) = slowed_by(trace, collectives_of(trace)[:1])
    assert len(slowed.rows) == 1


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(side_by_side(alone_us=(100, 100)), id="too few alone"),
        pytest.param(side_by_side(beside_us=()), id="nothing beside"),
        pytest.param(side_by_side(beside_us=(90, 95)), id="no slower"),
    ],
)
def test_nothing_is_known(trace):
    assert slowed_by(trace, collectives_of(trace)) == ()
