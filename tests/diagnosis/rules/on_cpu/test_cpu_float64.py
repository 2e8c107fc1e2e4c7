"""Programs that XLA compiled for the CPU, and that compute in double precision."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu.cpu_float64 import check

MS = 1_000_000


def _steps(*, op="dot.1", double=True, ms=60, **told):
    """Ten steps of 100 ms: an operation, and 30 ms of others in float32."""
    built = TraceBuilder(devices=())
    for number in range(10):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        for name, start, took, more in (
            (op, at, ms, {"double": double, "source": "/code/model.py:9", **told}),
            ("dot.2", at + 65 * MS, 30, {"double": False, "source": "/code/model.py:12"}),
        ):
            built.op(name, start, took * MS)
            built.add("compiled_ops", op=name, start_ns=start, duration_ns=took * MS, **more)
    return built.trace()


def test_arrays_of_float64():
    (found,) = check(_steps())
    assert found.summary == (
        "1 operations a step of compiled programs compute on float64 arrays, 60.0 ms of it, from"
        " model.py:9 on"
    )
    assert found.saving_ns_per_step == (15 * MS, 30 * MS)
    assert found.cost_ns_per_step == 60 * MS


def test_the_line_that_made_double_of_float32_is_the_cause():
    (found,) = check(_steps(widened_at="/code/model.py:5"))
    assert found.location.line == 5


def test_in_float32_there_is_nothing_to_say():
    assert list(check(_steps(double=False))) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("cpu-float64", _steps(ms=2))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 2.0 %")


@pytest.mark.parametrize("op", ["cholesky.3", "svd.90", "triangular_solve.5"])
def test_where_matrices_are_factored_it_is_open(op):
    with pytest.raises(NotChecked, match="matrices are factored"):
        list(check(_steps(op=op)))
