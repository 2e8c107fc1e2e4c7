"""A module called twice: for what is trained, and for what wants no gradient."""

import json

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.work.branches_for_nothing import branches_for_nothing
from pinchpoint.trace import HostKind

US = 1_000
FILTER, OTHER = [64, 64, 3, 3], [8, 64, 3, 3]


def distance(*, second_wants=False, weight=FILTER):
    """Two steps: a loss calls a network for x and y, and what follows has a node of its own."""
    b = TraceBuilder()
    engine = b.thread("autograd")
    for step in range(2):
        at, number = step * 1000 * US, step * 10
        b.step(step, at, 1000 * US)
        b.op("nn.Module: Loss_0", at + US, 300 * US, kind=HostKind.MODULE)
        for turn in (0, 1):
            begin = at + (10 + 100 * turn) * US
            b.op("nn.Module: Net_0", begin, 90 * US, kind=HostKind.MODULE)
            b.op("aten::convolution", begin + US, 10 * US, sequence=number + 2 * turn)
            b.op("aten::relu", begin + 20 * US, 10 * US, sequence=number + 2 * turn + 1)
        b.op("aten::sub", at + 220 * US, 10 * US, sequence=number + 4)
        nodes = [
            (4, "SubBackward0", "aten::neg", None, 5),
            (3, "ReluBackward0", "aten::threshold_backward", None, 7),
            (2, "ConvolutionBackward0", "aten::convolution_backward", second_wants, 20),
            (1, "ReluBackward0", "aten::threshold_backward", None, 7),
            (0, "ConvolutionBackward0", "aten::convolution_backward", True, 40),
        ]
        for turn, (offset, node, name, wants, takes) in enumerate(nodes):
            begin = at + (400 + 50 * turn) * US
            given = {}
            if wants is not None:
                shapes = [[2, 64, 8, 8], [2, 64, 8, 8], weight]
                given = {
                    "shapes": json.dumps(shapes),
                    "values": json.dumps(["", "", "", f"[{wants}, True, True]"]),
                }
            b.op(node, begin, 40 * US, thread=engine, sequence=number + offset)
            b.op(name, begin + US, 30 * US, thread=engine, **given)
            b.launch(
                begin + 2 * US, US, f"kernel {offset}", begin + 5 * US, takes * US, thread=engine
            )
    return b.trace()


def took_us(trace, rows):
    return int(trace.device_ops["duration_ns"][rows].sum()) // US


def test_the_call_whose_input_wants_no_gradient_goes_whole():
    trace = distance()
    found = branches_for_nothing(trace, {tuple(FILTER)})
    assert found.calls == 1  # the first of two steps is not judged
    assert took_us(trace, found.device_rows) == 20 + 7
    assert took_us(trace, found.beside_rows) == 5
    assert len(found.host_rows) == 2


@pytest.mark.parametrize(
    ("trace", "unused"),
    [
        pytest.param(distance(second_wants=True), FILTER, id="both inputs want one"),
        pytest.param(distance(weight=OTHER), FILTER, id="weights that are trained"),
        pytest.param(TraceBuilder().trace(), FILTER, id="nothing recorded"),
    ],
)
def test_calls_that_are_needed(trace, unused):
    assert branches_for_nothing(trace, {tuple(unused)}) is None
