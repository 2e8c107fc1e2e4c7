"""Rows that are taken from arrays that lie column by column."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import looked_at, spent, thread
from pinchpoint.trace.run_samples import Operand

MS = 1_000_000
AT = "table.py(78): minibatches"
TABLE = Operand(AT, "[]", "values", (54_000, 244), (4, 216_000), 4, 0, 1024)
TAKES = spent((AT,), 5.0, doing="[]")
TRAINS = spent(("table.py(90): fit",), 5.0, doing="loss.backward()")


def steps_of_ten_ms():
    builder = TraceBuilder(devices=())
    for step in range(6):
        builder.step(step, step * 10 * MS, 10 * MS)
        builder.op("aten::mm", step * 10 * MS + 10, 4 * MS)
    return builder.trace()


def run(operand=TABLE, *seen):
    trace = looked_at(thread(*(seen or (TAKES, TRAINS))))
    return replace(trace.run, samples=replace(trace.run.samples, operands=(operand,)))


def test_rows_of_a_frames_array(outcome):
    """Half of 10 ms; rows of 976 bytes need 16.25 lines where columns need 244."""
    (finding,) = outcome("column-gathers", replace(steps_of_ten_ms(), run=run())).findings
    assert "1,024 rows at a time" in finding.summary
    assert "(values: 54,000 x 244, strides (4, 216000) bytes) in minibatches (table.py:78)" in (
        finding.summary
    )
    assert "each row of 976 B is spread over 244 lines" in finding.summary
    assert finding.cost_ns_per_step == 5 * MS
    assert finding.likely_saving_ns == pytest.approx((1 - 16.25 / 244) * 5 * MS, rel=1e-3)
    assert finding.saving_ns_per_step == pytest.approx((4 * MS, 4.917 * MS), rel=1e-3)


def test_a_frames_own_take_at_the_line_that_calls_it(outcome):
    inside = "pandas/core/array_algos/take.py(176): _take_nd_ndarray"
    own = spent((inside, AT), 5.0, doing="func()")
    of_pandas = Operand(inside, "func()", "arr", (100, 200_000), (800_000, 4), 4, 1, 4096)
    trace = replace(steps_of_ten_ms(), run=run(of_pandas, own, TRAINS))
    (finding,) = outcome("column-gathers", trace).findings
    assert (finding.location.file, finding.location.line) == ("table.py", 78)


@pytest.mark.parametrize(
    "operand",
    [
        replace(TABLE, strides_bytes=(976, 4)),
        replace(TABLE, shape=(54_000, 8), strides_bytes=(4, 216_000)),
        replace(TABLE, shape=(2_000, 244), strides_bytes=(4, 8_000)),
        replace(TABLE, axis=1),
        replace(TABLE, shape=(54_000_000,), strides_bytes=(4,)),
        replace(TABLE, strides_bytes=(0, 216_000)),
        replace(TABLE, doing="values.sum()"),
    ],
    ids=[
        "row by row",
        "narrow",
        "fits a cache",
        "columns are taken",
        "one row",
        "expanded",
        "else",
    ],
)
def test_arrays_whose_rows_lie_well_are_not_meant(outcome, operand):
    trace = replace(steps_of_ten_ms(), run=run(operand))
    assert outcome("column-gathers", trace).answer == "clear"


def test_a_small_part_of_the_step_is_seen_and_not_told(outcome):
    seen = spent((AT,), 0.2, doing="[]"), spent(("table.py(90): fit",), 9.8)
    said = outcome("column-gathers", replace(steps_of_ten_ms(), run=run(TABLE, *seen)))
    assert (said.answer, said.why) == ("smaller", "smaller than 3 % of the step: 2.0 %")


def test_of_a_run_of_which_nothing_else_was_recorded(outcome):
    alone = looked_at(thread(TAKES, TRAINS))
    trace = replace(alone, run=run())
    (finding,) = outcome("column-gathers", trace).findings
    assert finding.run_ratio == pytest.approx(0.5 * (1 - 16.25 / 244), rel=1e-3)
