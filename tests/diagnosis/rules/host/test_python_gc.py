import pytest

from pinchpoint.trace import ApiKind
from program import Program

GC = "<built-in function collect>"


def collecting(name, *, every=1, us=4_000, waits=False):
    """A kernel of 2 ms, and a call of ``us`` in each ``every``-th step, perhaps after a wait."""
    p = Program()
    for i in p.steps(9):
        p.kernel("work", 2_000)
        if waits:
            p.sync()
        if i % every == 0:
            with p.frame("train.py(70): tidy"):
                p.host(name, us)
    return p.trace()


def test_names_the_collection_its_place_and_its_cost(outcome):
    (finding,) = outcome("python-gc", collecting(GC)).findings
    assert finding.cost_ns_per_step == 4_000_000
    assert (finding.location.function, finding.location.line) == ("tidy", 70)
    assert finding.evidence[1].value == 1.0
    assert finding.evidence[2].name == GC


def test_without_it_the_device_decides(predicted):
    assert predicted(collecting(GC), "python-gc") == pytest.approx(2e6, rel=0.05)


def test_a_collection_in_some_steps_counts_in_the_mean(gain):
    assert gain(collecting(GC, every=4, waits=True), "python-gc") == pytest.approx(1e6, rel=0.25)


def test_a_host_that_runs_ahead_hides_a_collection_now_and_then(ranked):
    assert ranked(collecting(GC, every=4)) == []


def around_each_step(*, frees):
    """A library that tidies up around what the program hands to it."""
    p = Program()
    for _ in p.steps(9):
        with p.frame("train.py(70): update"), p.frame("accelerate/utils/memory.py(170): decorator"):
            with p.frame("accelerate/utils/memory.py(40): clear"):
                p.host(GC, 4_000)
                for _ in range(frees):
                    p.call("cudaFree", ApiKind.FREE, 100)
            p.kernel("work", 2_000)
    return p.trace()


@pytest.mark.parametrize("frees", [0, 3])
def test_a_library_that_asks_for_it_in_each_step_is_named_with_the_call_to_take_out(outcome, frees):
    (finding,) = outcome("python-gc", around_each_step(frees=frees)).findings
    said = "in update (train.py:70) by clear (accelerate/utils/memory.py:40), for 4.00 ms"
    assert said in finding.summary
    assert ("gives device memory back" in finding.summary) == bool(frees)
    assert "Take the call of decorator (accelerate/utils/memory.py:170) out" in finding.fix
    assert finding.hint is None
    assert "--knob gc" not in finding.confirm


@pytest.mark.parametrize(("name", "frozen"), [(GC, False), ("Python GC", True)])
def test_what_python_collects_by_itself_is_frozen_and_what_is_called_is_taken_out(
    outcome, name, frozen
):
    (finding,) = outcome("python-gc", collecting(name)).findings
    assert ("gc.freeze()" in finding.fix) == frozen
    assert ("out of the loop" in finding.fix) != frozen


@pytest.mark.parametrize(
    "name", ["torch/serialization.py(967): save", "<built-in function sleep>"], ids=["save", "wait"]
)
def test_other_stalls_are_not_the_collector(outcome, name):
    assert outcome("python-gc", collecting(name)).answer == "clear"


def test_a_collection_beside_a_busy_device_costs_nothing(ranked):
    assert ranked(collecting(GC, us=200)) == []
