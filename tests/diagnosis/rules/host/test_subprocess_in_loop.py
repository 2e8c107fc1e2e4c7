import pytest

from program import Program


def polling(name, us=4_000):
    """A kernel of 2 ms, and a call of ``us`` in each step."""
    p = Program()
    for _ in p.steps(9):
        p.kernel("work", 2_000)
        with p.frame("train.py(70): utilisation"):
            p.host(name, us)
    return p.trace()


@pytest.mark.parametrize(
    "name", ["/usr/lib/python3.12/subprocess.py(506): run", "<built-in function system>"]
)
def test_names_the_call_its_place_and_its_cost(outcome, name):
    (finding,) = outcome("subprocess-in-loop", polling(name)).findings
    assert finding.cost_ns_per_step == 4_000_000
    assert (finding.location.function, finding.location.line) == ("utilisation", 70)
    assert finding.evidence[2].name == name


def test_without_it_the_device_decides(predicted):
    trace = polling("<built-in function system>")
    assert predicted(trace, "subprocess-in-loop") == pytest.approx(2e6, rel=0.05)


@pytest.mark.parametrize(
    "name", ["<built-in function sleep>", "my_subprocess_tools.py(3): run", "train.py(8): run"]
)
def test_other_calls_are_clear(outcome, name):
    assert outcome("subprocess-in-loop", polling(name)).answer == "clear"


def test_what_a_compiler_starts_is_its_own_matter(outcome):
    p = Program()
    for _ in p.steps(9):
        p.kernel("work", 2_000)
        with p.frame("torch/_inductor/cpp_builder.py(1): build"):
            p.host("subprocess.py(412): check_output", 10)
            p.host("subprocess.py(506): run", 4_000)
    assert outcome("subprocess-in-loop", p.trace()).answer == "clear"


def test_a_call_that_the_device_hides_costs_nothing(ranked):
    assert ranked(polling("<built-in function system>", us=200)) == []
