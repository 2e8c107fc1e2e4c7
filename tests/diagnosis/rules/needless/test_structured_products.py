"""Products of compiled programs that are a look-up, a sum, a scaling, or badly bracketed."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.needless.structured_products import check
from pinchpoint.trace import Device

MS = 1_000_000
MODEL, HEAD = "/code/model.py:9", "/code/head.py:4"
ROWS = {"way": "rows", "way_ratio": 0.0, "way_bytes": 10_000_000}
MADE = {"way": "rows", "way_ratio": 0.0, "way_bytes": 0}


def _on_cpu(*, made_ms=5, product_ms=60, beside_ms=0, **told):
    """Ten steps of 100 ms: a matrix made in 5 ms, a product with it, and 20 ms of others."""
    built = TraceBuilder(devices=())
    for number in range(10):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        rows = (
            ("made", at, made_ms, 1, {"source": MODEL, **(MADE if told else {})}),
            ("dot.1", at + 5 * MS, product_ms, 1, {"source": MODEL, **told}),
            ("dot.3", at + 70 * MS, 20, 1, {"source": HEAD}),
            ("dot.4", at + 5 * MS, beside_ms, 2, {"source": HEAD}),
        )
        for op, start, ms, thread, more in rows:
            if ms:
                built.op(op, start, ms * MS, thread=thread)
                built.add("compiled_ops", op=op, start_ns=start, duration_ns=ms * MS, **more)
    return built.trace()


def test_rows_are_looked_up_by_a_product():
    (found,) = check(_on_cpu(**ROWS))
    assert found.summary == (
        "Rows are looked up by a product with class numbers (one_hot) at model.py:9:"
        " 65.0 ms of each recorded step in 2 operations"
    )
    assert (found.location.file, found.location.line) == ("/code/model.py", 9)
    # Gathering moves 10 MB: 1.7 ms at 0.17 ns a byte, 0.2 at best; 5 % less for doubt.
    sure, most = found.saving_ns_per_step
    assert sure == pytest.approx(0.95 * 63.3 * MS)
    assert most == pytest.approx(64.8 * MS)
    assert found.likely_saving_ns == pytest.approx(63.3 * MS)


def test_at_least_what_nothing_else_ran_beside_is_won():
    (found,) = check(_on_cpu(beside_ms=40, **ROWS))
    assert found.saving_ns_per_step[0] == pytest.approx(0.95 * (63.3 / 65) * 25 * MS)


def test_an_order_leaves_its_share():
    (found,) = check(_on_cpu(way="order", way_ratio=0.25, way_bytes=0))
    assert "25 % of their operations would do" in found.summary
    assert found.saving_ns_per_step[1] == pytest.approx((0.75 * 60 + 5) * MS)


@pytest.mark.parametrize(
    ("kind", "words"), [("jacobian", "products with vectors"), ("trace", "nothing but the trace")]
)
def test_a_jacobian_is_told_where_it_is_used(kind, words):
    told = {"way": kind, "way_ratio": 0.02, "way_bytes": 0, "way_at": "/code/solver.py:7"}
    (found,) = (f for f in check(_on_cpu(**told)) if "Jacobian" in f.summary)
    assert words in found.summary
    assert (found.location.file, found.location.line) == ("/code/solver.py", 7)
    assert found.saving_ns_per_step[1] == pytest.approx(0.98 * 60 * MS)


def test_products_as_they_have_to_be():
    assert list(check(_on_cpu())) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("structured-products", _on_cpu(made_ms=1, product_ms=1, **ROWS))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 2.0 %")


def test_where_the_other_way_moves_as_much_little_is_won():
    (found,) = check(_on_cpu(**ROWS | {"way_bytes": 400_000_000}))
    assert found.saving_ns_per_step[0] <= 0.95 * 5 * MS


def _on_device(**told):
    """Ten steps of 10 ms on an H200: a product of 6 ms and others of 3."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H200", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for op, start, ms, more in (
            ("dot.1", at + 200_000, 6, {"source": MODEL, **told}),
            ("dot.3", at + 6_300_000, 3, {"source": HEAD}),
        ):
            row = {"start_ns": start, "duration_ns": ms * MS, "device": 0}
            built.add("compiled_ops", op=op, bytes=1, **row, **more)
            built.launch(at + 1_000 * ms, 500, op, start, ms * MS)
    return built.trace()


def test_on_a_device_what_is_left_is_what_its_memory_needs():
    """An H200 moves 4.8 TB a second: 480 MB take 0.1 ms, and twice that where rows lie apart."""
    (found,) = check(_on_device(**ROWS | {"way_bytes": 480_000_000}))
    assert found.cost_ns_per_step == 6 * MS
    assert found.location.line == 9
    likely, best = found.changes[0].factor[0], found.at_best[0].factor[0]
    assert likely == pytest.approx(0.2 / 6, rel=0.05)
    assert best == pytest.approx(0.1 / 6, rel=0.05)


def test_a_device_with_products_as_they_have_to_be():
    assert list(check(_on_device())) == []
