import json

import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from pinchpoint.analysis.replay import DropDeviceOps
from program import Program

SIDE = 8192
BYTES = 3 * SIDE * SIDE * 4
DENSE, TURNED = [SIDE, 1], [1, SIDE]
AWKWARD = "void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float> >(int)"


def add(takes_us, first=DENSE, second=TURNED):
    shapes = [[SIDE, SIDE], [SIDE, SIDE], []]
    dtypes = ["float", "float", "Scalar"]
    return Work(AWKWARD, takes_us, "aten::add", shapes, dtypes, [first, second, []])


def test_names_the_rate_and_predicts_a_dense_kernel(outcome):
    (finding,) = outcome("non-contiguous-access", device_bound([add(600)])).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["rate"] == pytest.approx(BYTES / 600e-6, rel=1e-6)
    assert evidence["strides of the longest"] == "[8192, 1] and [1, 8192]"
    dense_us = BYTES / (3350e9 * 0.9) * 1e6
    assert finding.changes[0].factor == pytest.approx(dense_us / 600)


def test_where_no_step_turns_dimensions_they_were_turned_before(outcome):
    (came,) = outcome("non-contiguous-access", device_bound([add(600)])).findings
    assert "no step turns dimensions: it came to the steps in that order" in came.summary
    assert came.fix.startswith("Make it dense where its dimensions are turned")
    view = Work(AWKWARD, 2, "aten::permute", [[SIDE, SIDE]], ["float"], [DENSE])
    (turned,) = outcome("non-contiguous-access", device_bound([add(600), view])).findings
    assert "it came" not in turned.summary
    assert turned.fix.startswith("Produce the tensor in the layout")


def test_operands_in_one_order_are_not_across(outcome):
    for order in (DENSE, TURNED):
        trace = device_bound([add(600, order, order)])
        assert outcome("non-contiguous-access", trace).answer == "clear"


def test_a_repeated_operand_is_not_across(outcome):
    trace = device_bound([add(600, DENSE, [0, 1])])
    assert outcome("non-contiguous-access", trace).answer == "clear"


def test_a_slice_with_steps_is_across(outcome):
    trace = device_bound([add(600, [2 * SIDE, 2], [2 * SIDE, 2])])
    assert outcome("non-contiguous-access", trace).answer == "found"


def test_is_quiet_where_the_bandwidth_is_reached(outcome):
    assert outcome("non-contiguous-access", device_bound([add(300)])).answer == "clear"


def test_cannot_judge_without_strides(outcome):
    work = Work(AWKWARD, 600, "aten::add", [[SIDE, SIDE]] * 2, ["float"] * 2)
    answer = outcome("non-contiguous-access", device_bound([work]))
    assert answer.answer == "not checked"
    assert "record_shapes" in answer.record


def test_cannot_judge_without_a_device(outcome):
    assert outcome("non-contiguous-access", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c38_non_contiguous.slow")
    assert next(iter(slow)) == "non-contiguous-access"
    assert slow["non-contiguous-access"] == pytest.approx(2.135, rel=0.1)
    assert "non-contiguous-access" not in labelled("c38_non_contiguous.fixed")


GATHER = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<int> >(int)"
)
ITEMS, WIDTH, BLOCKS = 2_000_000, 128, 100_000
LOOKED_UP = BLOCKS * 128 * 4


def looking_up(takes_us, strides, name=GATHER):
    """One lookup a step of rows in a table of 128 numbers a row."""
    p = Program()
    for _ in p.steps(6):
        given = [[ITEMS, WIDTH], []]
        with p.row("aten::index", shapes=given, dtypes=["float", ""], strides=[strides, []]):
            p.kernel(name, takes_us, grid=json.dumps([BLOCKS, 1, 1]))
    return p.trace()


def test_rows_of_a_transposed_table_lie_apart(outcome):
    (finding,) = outcome("non-contiguous-access", looking_up(3_000, [1, ITEMS])).findings
    dense_us = 2 * LOOKED_UP * 4 / (3350e9 * 0.9) * 1e6
    by_rows_us = LOOKED_UP / WIDTH * 0.6e-3
    assert finding.changes[0].factor[0] == pytest.approx(max(dense_us, by_rows_us) / 3_000)


@pytest.mark.parametrize(
    "trace",
    [
        looking_up(3_000, [WIDTH, 1]),
        looking_up(300, [1, ITEMS]),
        looking_up(3_000, [1, ITEMS], "void another_kernel(int)"),
    ],
    ids=["dense rows", "fast", "size not known"],
)
def test_other_lookups_are_not_meant(outcome, trace):
    assert outcome("non-contiguous-access", trace).answer == "clear"


def test_a_layout_that_an_operator_makes_of_dense_operands_is_its_own(outcome):
    """A sparse product turns what it multiplies by itself; a program that asks for it does not."""
    inner = {"shapes": [[SIDE, SIDE]] * 2, "dtypes": ["float"] * 2, "strides": [DENSE, TURNED]}
    for given, answer in ((DENSE, "clear"), (TURNED, "found")):
        p = Program()
        for _ in p.steps(6):
            with (
                p.row("aten::mm", shapes=[[SIDE, SIDE]], dtypes=["float"], strides=[given]),
                p.row("aten::copy_", **inner),
            ):
                p.kernel(AWKWARD, 600)
            p.sync()
        assert outcome("non-contiguous-access", p.trace()).answer == answer


def test_a_copy_that_only_turns_may_go_wholly(outcome, predicted):
    shapes, dtypes = [[SIDE, SIDE]] * 2, ["float"] * 2
    turning = Work(AWKWARD, 600, "aten::copy_", shapes, dtypes, [DENSE, TURNED])
    (finding,) = outcome("non-contiguous-access", device_bound([turning, add(600)])).findings
    dropped, dense = finding.at_best
    assert isinstance(dropped, DropDeviceOps)
    assert (
        len(dropped.device_ops) == len(dense.device_ops) == len(finding.changes[0].device_ops) // 2
    )
    cast = Work(AWKWARD, 600, "aten::copy_", shapes, ["float", "c10::Half"], [DENSE, TURNED])
    (finding,) = outcome("non-contiguous-access", device_bound([cast])).findings
    assert not finding.at_best
