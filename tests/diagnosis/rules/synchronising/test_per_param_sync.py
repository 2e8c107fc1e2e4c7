import pytest

from program import Program

PARAMETERS = 32


def clipping(*, parameters=PARAMETERS, reads=PARAMETERS, launches=0):
    """A backward pass, then a loop over the parameters that reads a norm of each."""
    p, waits = Program(), []
    for _ in p.steps(6):
        for _ in range(parameters):
            p.host("torch::autograd::AccumulateGrad", 5)
        p.kernel("backward", 1_000)
        with p.frame("train.py(55): clip"):
            for _ in range(reads):
                p.kernel("norm", 10)
                waits.append(p.read("aten::item"))
            for _ in range(launches):
                p.kernel("norm", 10)
        p.busy(300)
    return p.trace(), sum(waits) // 6


def test_relates_reads_to_parameters(outcome):
    trace, waited_ns = clipping()
    (finding,) = outcome("per-param-sync", trace).findings
    assert finding.summary.startswith(f"The host reads {PARAMETERS} device values a step in clip")
    assert finding.summary.endswith("about 1.0 for each parameter tensor")
    assert finding.cost_ns_per_step == pytest.approx(waited_ns, rel=0.01)
    assert finding.location.line == 55


def test_takes_the_place_of_the_general_cause(ranked):
    assert ranked(clipping()[0]) == ["per-param-sync"]


@pytest.mark.parametrize(
    "program",
    [
        {"reads": 2},
        {"reads": 20, "parameters": 200},
        {"parameters": 0},
        {"reads": 0, "launches": 64},
    ],
    ids=["a loss", "few for so many parameters", "no training", "launches only"],
)
def test_other_reads_are_not_meant(outcome, program):
    assert outcome("per-param-sync", clipping(**program)[0]).answer == "clear"
