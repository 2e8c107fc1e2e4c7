import pytest

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


@pytest.mark.parametrize(
    "name", ["torch/serialization.py(967): save", "<built-in function sleep>"], ids=["save", "wait"]
)
def test_other_stalls_are_not_the_collector(outcome, name):
    assert outcome("python-gc", collecting(name)).answer == "clear"


def test_a_collection_beside_a_busy_device_costs_nothing(ranked):
    assert ranked(collecting(GC, us=200)) == []
