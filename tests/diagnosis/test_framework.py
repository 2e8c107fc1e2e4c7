"""Advice in the words of the program."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import DEVICE, SHAPES, Need
from pinchpoint.diagnosis.registry import Known, ask, rules
from pinchpoint.diagnosis.rule import Framework, NotChecked, Rule, framework_of
from pinchpoint.trace import Device
from program import Program


def program(operator, vendor="nvidia"):
    p = Program()
    for _ in p.steps(2):
        with p.row(operator):
            p.kernel("kernel", 10)
    return replace(p.trace(), devices=(Device(0, vendor=vendor),))


@pytest.mark.parametrize(
    ("trace", "framework"),
    [
        (program("aten::mul"), Framework.TORCH),
        (program("aten::mul", "amd"), Framework.TORCH),
        (program("aten::mul", None), Framework.TORCH),
        (program("aten::mul", "meta"), Framework.TORCH_WITHOUT_CUDA),
        (program("cupy_multiply"), Framework.CUPY),
        (program("fusion.3"), Framework.OTHER),
        (TraceBuilder().trace(), Framework.TORCH),  # a memory snapshot has no names
    ],
)
def test_names_say_whose_program_it_is(trace, framework):
    assert framework_of(trace) is framework


ADVICE = {
    Framework.OTHER: {"hint": None, "confirm": "bench ab"},
    Framework.TORCH_WITHOUT_CUDA: {"hint": None},
}


def known(advice):
    def check(trace):
        yield Found(summary="", evidence=(), fix="fix", hint="torch code", confirm="try")

    return Known("example", Rule(needs=(), record=DEVICE, advice=advice), check)


@pytest.mark.parametrize(
    ("trace", "advice", "said"),
    [
        (program("aten::mul"), ADVICE, ("fix", "torch code", "try")),
        (program("aten::mul", "meta"), ADVICE, ("fix", None, "try")),
        (program("fusion.3"), ADVICE, ("fix", None, "bench ab")),
        (program("cupy_multiply"), ADVICE, ("fix", None, "bench ab")),
        (program("cupy_multiply"), ADVICE | {Framework.CUPY: {"hint": "x"}}, ("fix", "x", "try")),
        (program("fusion.3"), {}, ("fix", "torch code", "try")),
    ],
)
def test_a_rule_says_what_another_framework_is_told(trace, advice, said):
    (found,) = ask(known(advice), trace).findings
    assert (found.fix, found.hint, found.confirm) == said


def test_products_of_cupy_have_a_switch_of_their_own():
    advice = rules()["no-tensor-cores"].rule.advice[Framework.CUPY]
    assert "CUPY_TF32=1" in advice["hint"]
    assert "autocast" not in advice["fix"]


@pytest.mark.parametrize(
    ("operator", "record", "needs"),
    [
        ("aten::mul", "shapes: record_shapes=True", Need.RECORD_SHAPES),
        ("fusion.3", "shapes", Need.SHAPES),
    ],
)
def test_options_of_torch_are_for_programs_that_show_torch(operator, record, needs):
    def check(trace):
        raise NotChecked("no shapes")
        yield

    outcome = ask(Known("example", Rule(needs=(), record=SHAPES), check), program(operator))
    assert (outcome.record, outcome.needs) == (record, needs)


TORCH_ONLY = ("torch", "TORCH", "DataLoader", "model", "optimizer", ".item(", "F.", "--knob")


@pytest.mark.parametrize("id_", rules())
def test_nothing_of_torch_is_left_for_other_programs(id_):
    for advice in (a for f, a in rules()[id_].rule.advice.items() if "TORCH" not in f.name):
        said = " ".join(filter(None, advice.values()))
        assert not any(word in said for word in TORCH_ONLY), said


@pytest.mark.parametrize("id_", rules())
def test_no_option_of_torchs_profiler_is_left_for_other_programs(id_):
    record = rules()[id_].rule.record
    general = record.elsewhere or record
    options = ("record_shapes", "with_stack", "profile_memory", "torch.", "ProfilerActivity")
    assert not any(option in general.phrase for option in options)
