"""Calls of libraries that are given the same again."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import looked_at, spent, thread
from pinchpoint.trace.run_samples import Called, Given

MS = 1_000_000
AT = "scan.py(17): near"
POINTS = Given("0", "array", (60_000, 3), (60_000, 3), "float64", alike=3)
TREE = Called(AT, "cKDTree()", "scipy.spatial._ckdtree.cKDTree", 54, 3, (POINTS,))
BUILDS = spent((AT,), 5.0, doing="cKDTree()")
TRAINS = spent(("train.py(90): fit",), 5.0, doing="loss.backward()")


def steps_of_ten_ms():
    builder = TraceBuilder(devices=())
    for step in range(6):
        builder.step(step, step * 10 * MS, 10 * MS)
        builder.op("aten::mm", step * 10 * MS + 10, 4 * MS)
    return builder.trace()


def run(called):
    trace = looked_at(thread(replace(BUILDS, doing=called.doing), TRAINS))
    return replace(trace.run, samples=replace(trace.run.samples, called=(called,)))


def test_a_tree_over_points_that_stay(outcome):
    (finding,) = outcome("given-again", replace(steps_of_ten_ms(), run=run(TREE))).findings
    assert finding.summary == (
        "cKDTree() in near (scan.py:17) is given the same 60,000 x 3 float64 again each time, in"
        " all of 4 calls that were compared: 5.00 ms of a step"
    )
    assert finding.saving_ns_per_step == pytest.approx((0.9 * 4 * MS, 5 * MS))


def test_of_a_solver_the_matrix_alone_is_meant(outcome):
    matrix = Given("0", "array", (300, 300), (300, 300), "float64", alike=2)
    right = Given("1", "array", (300,), (300,), "float64", alike=0)
    solve = Called(AT, "np.linalg.solve()", "numpy.linalg.solve", 54, 2, (matrix, right))
    (finding,) = outcome("given-again", replace(steps_of_ten_ms(), run=run(solve))).findings
    assert "factors the same 300 x 300 float64 again" in finding.summary
    assert "lu_factor" in (finding.hint or "")


def test_a_file_that_is_read_again(outcome):
    path = Given("0", "str", (30,), (30,), alike=3)
    load = Called(AT, "np.load()", "numpy.load", 54, 3, (path,))
    (finding,) = outcome("given-again", replace(steps_of_ten_ms(), run=run(load))).findings
    assert "reads the same file, unchanged again each time" in finding.summary


@pytest.mark.parametrize(
    "called",
    [
        replace(TREE, given=(replace(POINTS, alike=2),)),
        replace(TREE, compared=1, given=(replace(POINTS, alike=1),)),
        replace(TREE, given=(POINTS, Given("leafsize", "unknown"))),
        replace(TREE, given=(replace(POINTS, shape=(9, 3)),)),
        replace(TREE, called="numpy.random._generator.Generator.permutation"),
        replace(TREE, called="numpy.zeros_like"),
        replace(TREE, called="numpy.ndarray.copy"),
        replace(TREE, called="numpy.savez"),
        replace(TREE, called="mine.Index"),
        replace(TREE, given=(POINTS, Given("out", "array", alike=3))),
        replace(TREE, given=()),
    ],
    ids=[
        "changes",
        "one",
        "untold",
        "small",
        "random",
        "room",
        "copy",
        "write",
        "own",
        "out",
        "nothing",
    ],
)
def test_look_alikes(outcome, called):
    assert outcome("given-again", replace(steps_of_ten_ms(), run=run(called))).answer == "clear"
