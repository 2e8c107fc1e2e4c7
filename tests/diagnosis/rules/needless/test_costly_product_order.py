"""Matrix products in a costly order, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import ProductOrder, RunValues, VainOperations, VainWork

MS = 1_000_000
PLACE = ("optimizer.py", 12, "orthogonalize")
ORDER = ProductOrder(1000, 250, 2, 1000)
NAMES = ("aten::mm", "aten::addmm")


def multiplying(kind="order", *, order=ORDER, on_device=True):
    """Steps of 10 ms: 8 of them for two products."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        for name, start in (("aten::mm", 0), ("aten::addmm", 4 * MS), ("aten::gelu", 8 * MS)):
            takes = 2 * MS if name == "aten::gelu" else 4 * MS
            begins = at + (start // 6 if on_device else start)
            b.op(name, begins, MS if on_device else takes - 2_000, shapes="[[64, 16]]")
            if on_device:
                b.launch(begins + 1_000, 100_000, name[6:], at + start, takes - 1_000)
    operations = tuple(VainOperations(name, ((64, 16),), 1, ((0, 0),)) for name in NAMES)
    note = VainWork(kind, (PLACE,), operations, False, 2, None, None, 1.0, order=order)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=(*NAMES, "aten::gelu"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_the_cheaper_order_takes_its_share_of_the_time(outcome):
    (found,) = outcome("costly-product-order", multiplying()).findings
    assert found.summary == (
        "2 matrix products a step in orthogonalize (optimizer.py:12) take 1e-06 GFLOP; in another"
        " order the same takes 2.5e-07: 8.00 ms of the device's time as recorded"
    )
    (change,) = found.changes
    assert (change.factor, change.flops_left) == (0.25, 0.25)
    assert len(change.device_ops) == 10  # of five judged steps


def test_many_small_products_take_no_less_than_their_starts(outcome):
    order = ProductOrder(1000, 250, 600, 1000)  # 7 microseconds each: 4.2 ms of 8
    (found,) = outcome("costly-product-order", multiplying(order=order)).findings
    assert found.changes[0].factor == pytest.approx(4.2 / 8, rel=0.01)


def test_on_a_cpu_its_operators_take_less(outcome):
    (found,) = outcome("costly-product-order", multiplying(on_device=False)).findings
    assert "of the host's time as recorded" in found.summary
    assert [change.factor for change in found.changes] == [0.25]


@pytest.mark.parametrize("kind", ["step", "within", "unused", "part"])
def test_other_work_in_vain_is_another_cause(outcome, kind):
    assert outcome("costly-product-order", multiplying(kind)).findings == ()
