import json
from dataclasses import replace

import pytest

from builders import TraceBuilder

MS = 1_000_000


def rolled_out(shapes, *, functions=1, recorded=True):
    """Steps in which a function (or several in turn) joins tensors of these shapes, 1 ms each."""
    b, at = TraceBuilder(), 0
    length = (len(shapes) + 2) * MS
    for number in range(4):
        b.step(number, at, length)
        part = len(shapes) // functions
        for one in range(functions):
            b.python("decode.py(9): roll_out", at + (1 + one * part) * MS - 1000, part * MS + 500)
        for turn, joined in enumerate(shapes):
            more = {"shapes": json.dumps([joined, []])} if recorded else {}
            b.op("aten::cat", at + (1 + turn) * MS, MS - 2000, **more)
        at += length
    return replace(b.trace(api_calls=None, device_ops=None), devices=())


GROWING = [[[8, turn, 64], [8, 1, 64]] for turn in range(1, 33)]


def test_a_tensor_that_grows_in_a_loop(outcome):
    (finding,) = outcome("cpu-growing-cat", rolled_out(GROWING)).findings
    assert "by torch.cat 31 × in a loop in roll_out (decode.py:9)" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(31 * MS, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(rolled_out([[[8, 1, 64], [8, 1, 64]]] * 32), id="alike in each turn"),
        pytest.param(rolled_out(GROWING[:12]), id="few turns"),
        pytest.param(rolled_out(GROWING, functions=4), id="of several calls"),
        pytest.param(
            rolled_out([[[8, 64], [8, 9 + turn]] for turn in range(32)]), id="not of its result"
        ),
        pytest.param(rolled_out([[[8, 9]] * 40] * 32), id="many at once"),
    ],
)
def test_what_only_looks_like_it(outcome, trace):
    assert outcome("cpu-growing-cat", trace).answer == "clear"


def test_without_shapes_it_is_not_checked(outcome):
    assert outcome("cpu-growing-cat", rolled_out(GROWING, recorded=False)).answer == "not checked"
