"""Convolutions and systems that XLA compiles badly for a CPU, from programs written by hand."""

import pytest

from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.other_way import OtherWay
from pinchpoint.importers.xplane.slow_on_cpu import slow_on_cpu
from xplane_messages import message

AT = "model.py:9"
FEATURES = (16, message((4, 2)))  # results are the last dimension of the kernel


def of(*instructions, root):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    return slow_on_cpu(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry)))))


def convolved(kernel, result, groups=1):
    signal = one("signal", "parameter", 1, (), (8, 512, 128))
    weights = one("weights", "parameter", 2, (), kernel, F32, (9, 1))
    done = one("conv", "convolution", 3, (1, 2), result, F32, FEATURES, (50, groups))
    return signal, weights, done


def test_each_channel_by_itself():
    assert of(*convolved((4, 1, 128), (8, 512, 128), 128), root=3) == {
        "conv": OtherWay("depthwise", 0.0, 0, AT)
    }


def test_its_gradient_is_computed_for_all_pairs():
    """XLA gives no line of it."""
    more = instruction("grad", "convolution", shape(128, 4, 128), 4, (1, 1), FEATURES)
    found = of(*convolved((4, 1, 128), (8, 512, 128), 128), more, root=4)
    assert found["grad"] == OtherWay("depthwise", 0.0, 0, AT)
    alone = of(*convolved((4, 128, 128), (8, 512, 128)), more, root=4)
    assert alone == {}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(convolved((4, 128, 128), (8, 512, 128)), id="all channels"),
        pytest.param(convolved((4, 32, 128), (8, 512, 128), 4), id="few groups"),
        pytest.param(convolved((64, 1, 128), (8, 512, 128), 128), id="a long window"),
        pytest.param(convolved((1, 1, 128), (8, 512, 128), 128), id="one point"),
        pytest.param(convolved((64, 1, 1), (8, 512, 1)), id="a short convolution"),
        pytest.param(convolved((512, 4, 1), (8, 512, 1)), id="of several channels"),
    ],
)
def test_other_convolutions(other):
    assert of(*other, root=3) == {}


def test_a_long_convolution_of_one_channel():
    found = of(*convolved((2048, 1, 1), (8, 8192, 1)), root=3)
    assert found == {"conv": OtherWay("long", 0.0, 4 * 8 * 8192, AT)}


def solved(systems, unknowns, scope="jit(step)/jit(solve)/lu", target="lapack_sgetrf_ffi"):
    sizes = (systems, unknowns, unknowns)
    parts = message((2, 13), (4, shape(*sizes)), (4, shape(systems, unknowns)))
    told = (7, message((2, scope), (3, "model.py"), (4, 9)))
    factor = instruction("lu", "custom-call", parts, 3, (1,), told, (28, target))
    matrices = one("matrices", "parameter", 1, (), sizes)
    told = (28, "lapack_strsm_ffi")
    solve = one("solve", "custom-call", 4, (3,), (systems, unknowns, 1), F32, told)
    return matrices, factor, solve


def test_many_small_systems_with_what_solves_them():
    assert of(*solved(20_000, 3), root=4) == {
        name: OtherWay("systems", 0.0, 0, AT) for name in ("lu", "solve")
    }


@pytest.mark.parametrize(("systems", "unknowns"), [(100, 3), (20_000, 16)])
def test_few_or_larger_systems(systems, unknowns):
    assert of(*solved(systems, unknowns), root=4) == {}


def test_another_factorisation():
    assert of(*solved(20_000, 3, target="lapack_spotrf_ffi"), root=4) == {}
