import json

import pytest

from builders import TraceBuilder

MS = 1_000_000
A, B, ALL = [128, 1, 64], [1, 2000, 64], [128, 2000, 64]


def pairs(*operators, ms=4):
    """Steps of 20 ms in which a function calls these on their shapes, ``ms`` each."""
    b, takes = TraceBuilder(devices=[]), round(ms * MS)
    for step in range(6):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        b.python("near.py(9): distances", at + 500, 18 * MS)
        for number, (name, *shapes) in enumerate(operators):
            given = {"shapes": json.dumps(shapes), "dtypes": json.dumps(["float"] * len(shapes))}
            b.op(f"aten::{name}", at + 1000 + number * takes, takes - 1000, **given)
    return b.trace()


DISTANCES = (("sub", A, B), ("pow", ALL, []), ("sum", ALL, []))


def test_distances_of_all_pairs_by_hand(outcome, predicted):
    """16,384,000 pairs in 12 ms, of which a product needs 1.6: 9.6 ms stay of 20, or less."""
    (found,) = outcome("cpu-broadcast-reduced", pairs(*DISTANCES)).findings
    assert found.summary == (
        "Differences of [128, 1, 64] and [1, 2000, 64] are written out as [128, 2000, 64] and"
        " summed up in distances (near.py:9): 12.0 ms a step, where a product of matrices writes"
        " none of them"
    )
    assert "cdist" in found.fix
    left = predicted(pairs(*DISTANCES), "cpu-broadcast-reduced")
    assert 7 * MS < left < 10 * MS


def test_products_that_are_summed_at_once(outcome):
    (found,) = outcome("cpu-broadcast-reduced", pairs(("mul", A, B), ("sum", ALL))).findings
    assert "einsum" in found.hint


def test_the_backward_pass_of_the_pairs_goes_with_them(outcome):
    b = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        for number, (name, *shapes) in enumerate(DISTANCES):
            given = {"shapes": json.dumps(shapes), "sequence": 10 * step + number}
            b.op(f"aten::{name}", at + number * MS, MS - 1000, **given)
        for number in range(3):
            node = "autograd::engine::evaluate_function: Backward0"
            b.op(node, at + (4 + 2 * number) * MS, 2 * MS - 1000, sequence=10 * step + number)
    (found,) = outcome("cpu-broadcast-reduced", b.trace()).findings
    assert found.cost_ns_per_step == pytest.approx(9 * MS, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(pairs(("sub", A, B), ("exp", ALL), ("sum", ALL)), id="another function"),
        pytest.param(pairs(("mul", ALL, [128, 2000, 1]), ("sum", ALL)), id="a weighted sum"),
        pytest.param(pairs(("sub", A, B), ("pow", ALL, [])), id="pairs that are used"),
        pytest.param(pairs(("sub", [9, 1, 9], [1, 9, 9]), ("sum", [9, 9, 9])), id="small"),
        pytest.param(pairs(*DISTANCES, ms=0.5), id="little of the step"),
    ],
)
def test_it_stays_quiet(outcome, trace):
    assert outcome("cpu-broadcast-reduced", trace).findings == ()
