"""What is left of a function's passes: as much as its work needs, and no kernel made longer."""

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps, LimitDeviceOps
from pinchpoint.diagnosis.evidence.functions import FarFunction


class RowOf:
    def __init__(self, rows, needs_ns):
        self.rows, self.needs_ns = np.array(rows), needs_ns


def test_as_many_kernels_stay_as_take_what_is_needed():
    took = np.array([1, 50, 30, 20, 10])
    far = FarFunction("f", (RowOf([0, 1, 2, 3, 4], 70),), None, 70, took)
    drop, limit = far.changes
    assert isinstance(drop, DropDeviceOps)
    assert isinstance(limit, LimitDeviceOps)
    assert sorted(drop.device_ops.tolist()) == [0, 3, 4]
    kept = dict(zip(limit.device_ops.tolist(), limit.limit_ns.tolist(), strict=True))
    assert kept == {1: 50, 2: 20}
