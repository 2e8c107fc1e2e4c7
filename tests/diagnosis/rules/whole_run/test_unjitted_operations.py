from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import IMPORTING, computing, looked_at, spent, thread


def eager(function, line, seconds):
    """One operation by itself, for a function of the program."""
    called = ("jax/_src/dispatch.py(88): apply_primitive", "jax/_src/core.py(705): bind")
    return spent((*called, f"work.py({line}): {function}"), seconds)


def compiling(seconds):
    return spent((COMPILES, "jax/_src/pjit.py(9): call", "work.py(80): main"), seconds)


COMPILES = "jax/_src/compiler.py(353): backend_compile"
RESULT = spent(("jax/_src/array.py(615): _value", "work.py(85): main"), 2, on_core=0.0)


def recorded(*seen):
    """A run with a recording of one call beside the looks at its main thread."""
    b = TraceBuilder()
    b.op("PjitFunction(update)", 0, 100)
    return replace(b.trace(api_calls=None, device_ops=None), run=looked_at(thread(*seen)).run)


def test_operations_outside_of_jit_are_told_with_the_function_that_has_most(outcome):
    seen = [eager("add", 30, 2.0), eager("add", 29, 1.0), eager("take", 35, 1.0), RESULT]
    (finding,) = outcome("unjitted-operations", recorded(*seen, compiling(30))).findings
    assert (finding.location.function, finding.location.line) == ("add", 30)
    assert "67 % of the time without imports and compiling" in finding.summary
    assert finding.consequence == "at most 4.00 of 36.0 s"


def test_functions_on_arrays_outside_of_jit_are_told_and_those_being_traced_are_not(outcome):
    array = ("jax/_src/pjit.py(259): cache_miss", "jax/_src/numpy/ufunc_api.py(175): __call__")
    traced = "jax/_src/interpreters/partial_eval.py(2500): trace_to_jaxpr_dynamic"
    own = "work.py(48): adam"
    (finding,) = outcome("unjitted-operations", recorded(spent((*array, own), 6), RESULT)).findings
    assert (finding.location.function, finding.location.line) == ("adam", 48)
    tracing = recorded(spent((*array, traced, own), 6), RESULT)
    assert outcome("unjitted-operations", tracing).answer == "clear"


def test_a_function_that_is_differentiated_anew_in_each_call(outcome):
    """What it traces then has its frames below; under jit the outermost one is of jit."""
    traced = (
        "jax/_src/interpreters/partial_eval.py(2500): trace_to_jaxpr_dynamic",
        "jax/_src/api.py(410): value_and_grad_f",
        "jax/_src/traceback_util.py(195): reraise_with_filtered_traceback",
    )
    own = "work.py(48): update"
    (finding,) = outcome("unjitted-operations", recorded(spent((*traced, own), 6), RESULT)).findings
    assert finding.summary.startswith("Functions are differentiated or mapped anew at each call")
    assert finding.location.line == 48
    under_jit = (*traced, own, "jax/_src/pjit.py(259): cache_miss", "work.py(60): main")
    assert outcome("unjitted-operations", recorded(spent(under_jit, 6), RESULT)).answer == "clear"


def test_lists_of_which_arrays_are_made_are_another_advice(outcome):
    called = (
        "jax/_src/dtypes.py(1080): lattice_result_type",
        "jax/_src/numpy/array_constructors.py(309): array",
        "feed.py(19): batch",
    )
    (finding,) = outcome("unjitted-operations", recorded(spent(called, 6), RESULT)).findings
    assert finding.summary.startswith("Lists are made into arrays, each number by itself, 75 %")
    assert finding.fix.startswith("Keep the numbers in NumPy arrays")


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([eager("init", 9, 0.3)], id="too few looks"),
        pytest.param([RESULT, computing(5, "batch", 3)], id="nothing outside of jit"),
        pytest.param(
            [
                spent((COMPILES, *eager("f", 9, 5).frames[:-1]), 5),
                spent(IMPORTING, 5),
                RESULT,
            ],
            id="compiling operations for the first time",
        ),
    ],
)
def test_what_is_compiled_or_rare_is_no_reason(outcome, seen):
    assert outcome("unjitted-operations", recorded(*seen)).answer == "clear"


def test_a_log_line_is_a_small_part(outcome):
    seen = eager("log", 9, 0.5), RESULT, computing(5, "batch", 1)
    said = outcome("unjitted-operations", recorded(*seen))
    assert (said.answer, said.why) == (
        "smaller",
        "smaller than 25 % of the run after its start: 9.8 %",
    )
