"""Steps that call something once more than the step before, counted in two windows of a run."""

from dataclasses import replace

import pytest

from exceptional_programs import now_and_then
from pinchpoint.analysis.mean.more_calls import growing_run, more_calls
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_samples import RunPart
from program import Program
from sampled_runs import samples

MS = 1_000_000
BASE = 40  # operators of a step besides
ADD_FORWARD_HOOK = "torch/nn/modules/module.py(1688): register_forward_hook"


def window(numbers, times, *, stacks=False, registers=True, kernel_us=10, hook_us=2):
    """Steps of these numbers, in which ``hook`` is called ``times(number)`` times."""
    p = Program()
    for _, number in zip(p.steps(len(numbers)), numbers, strict=True):
        for _ in range(BASE):
            with p.row("aten::mm"):
                p.kernel("gemm", kernel_us)
        if stacks and registers:
            with p.frame("train.py(50): watch"):
                p.host(ADD_FORWARD_HOOK, 2)
        for _ in range(times(number)):
            if stacks:
                with p.frame("train.py(53): hook"), p.row("aten::pow"):
                    p.kernel("pow", hook_us)
            else:
                with p.row("aten::pow"):
                    p.kernel("pow", hook_us)
        p.sync()
    return p.trace()


def run(
    times=lambda number: number,
    *,
    registers=True,
    took_ms=lambda number: 5 + 9 * (number % 3),
    **us,
):
    """A run of 97 steps: from 17 on six were recorded bare, and three from 31 on with stacks."""
    found = samples(every=0)
    of = [*range(3, 17, 2), *range(57, 99, 2)]
    parts = [
        RunPart(
            first=number,
            steps=2,
            p25_ns=took_ms(number) * MS,
            p50_ns=took_ms(number) * MS,
            p75_ns=took_ms(number) * MS,
            cpu_ns=4 * MS,
            objects=None,
            resident_bytes=None,
            device_bytes=1 << 30,
            seen=(),
            beside=(),
        )
        for number in of
    ]
    facts = RunFacts(
        samples=replace(found, parts=tuple(parts)),
        unprofiled_step_ns=(10 * MS,) * 12,
    )
    named = window(range(31, 34), times, stacks=True, registers=registers, **us)
    named = replace(named, run=facts)
    return replace(window(range(17, 23), times, **us), run=replace(facts, named=named))


def test_a_hook_that_each_step_registers_again_is_told_with_the_line_that_does(outcome):
    """However the steps of the run vary: here they take 5, 14 or 23 ms, without a trend."""
    trace = run()
    (found,) = outcome("growing-steps", trace).findings
    assert str(found.location) == "watch (train.py:50)"
    assert found.summary.startswith(
        "hook (train.py:53) is called 1 more time in each step than in the one before, 33 times in"
        " the last recorded one: watch (train.py:50) registers it anew, and it stays"
    )
    assert "remove it" in found.fix
    known = more_calls(trace)
    assert (known.units, known.last_units, known.operators, known.added) == (17, 33, 57, 1)
    # In the middle of the run, step 60, there are 40 + 60 operators: 41 are left with one hook.
    assert known.by_operators.left(60) == 41 / 100


def test_the_recorded_steps_are_placed_in_a_run_whose_steps_grow():
    """A quarter of its 28 parts is 7, from step 3 and from step 85 on."""
    trace = run(took_ms=lambda number: 5 + number)
    assert growing_run(trace).recorded_after == 16
    told = [text for text in mean_sentences(diagnose(trace)) if text.startswith("The run's steps")]
    assert told == [
        "The run's steps grow, from 14.0 ms (step 3 on) to 96.0 ms (step 85 on); those recorded lie"
        " between steps 16 and 57"
    ]
    assert growing_run(run(took_ms=lambda number: 200 - number)) is None  # others slowed it early


def test_what_is_left_of_a_step_that_the_device_bounds_is_by_its_time(outcome):
    """40 products of 10 ms, and 17 to 33 hooks of 2 ms: 402 of 520 ms are left at step 60."""
    (found,) = outcome("growing-steps", run(kernel_us=10_000, hook_us=2_000)).findings
    said = {fact.what: fact.value for fact in found.evidence}
    middle = said["middle of the run"]
    assert said["at most"] == pytest.approx(402 / (400 + 2 * middle), rel=0.02)


def test_a_list_of_the_programs_own_that_fills_has_the_function_that_is_called_for_each(outcome):
    (found,) = outcome("growing-steps", run(registers=False)).findings
    assert str(found.location) == "hook (train.py:53)"
    assert "registers" not in found.summary


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(lambda number: 30, id="as often in each step"),
        pytest.param(lambda number: 30 + number % 2, id="by what comes"),
        pytest.param(lambda number: 1 + number % 20, id="begins anew between the windows"),
        pytest.param(lambda number: 200 + number, id="inputs that grow: never as many steps"),
        pytest.param(lambda number: number if number < 25 else 9, id="ended between the windows"),
    ],
)
def test_what_does_not_accumulate_since_the_runs_first_step_is_quiet(outcome, times):
    assert more_calls(run(times)) is None
    assert outcome("growing-steps", run(times)).answer != "found"


def test_one_window_does_not_tell(outcome):
    trace = run()
    assert more_calls(replace(trace, run=replace(trace.run, named=None))) is None
    assert more_calls(now_and_then("checkpoint", ())) is None
