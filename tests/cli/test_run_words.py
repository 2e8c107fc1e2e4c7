import inspect
from typing import get_args

import pytest

from pinchpoint.cli.programs.run import WITH_VALUE, Cycles, command, separate
from pinchpoint.errors import UsageError


@pytest.mark.parametrize(
    ("words", "separated"),
    [
        (["t.py", "--steps", "3"], ["--", "t.py", "--steps", "3"]),
        (["--steps", "3", "t.py", "-o", "x"], ["--steps", "3", "--", "t.py", "-o", "x"]),
        (["--stacks", "-m", "pkg"], ["--stacks", "--", "-m", "pkg"]),
        (["--steps=3", "torchrun", "t.py"], ["--steps=3", "--", "torchrun", "t.py"]),
        (["--", "t.py"], ["--", "t.py"]),
        (["--help"], ["--help"]),
    ],
)
def test_the_programs_words_stay_its_own(words, separated):
    assert separate(words) == separated


def test_every_option_with_a_value_is_known_to_be_one():
    expected = {"-o"}
    parameters = dict(inspect.signature(command).parameters)
    del parameters["cycles"]  # its fields are options
    for name, parameter in (parameters | dict(inspect.signature(Cycles).parameters)).items():
        switch = bool in get_args(parameter.annotation) or parameter.annotation is bool
        if name != "program" and not switch:
            expected.add("--" + name.replace("_", "-"))
    assert expected == WITH_VALUE


@pytest.mark.parametrize(
    "cycles", [Cycles(active=0), Cycles(repeat=0), Cycles(wait=-1), Cycles(repeat=1000)]
)
def test_cycles_that_make_no_sense_are_refused(cycles):
    with pytest.raises(UsageError):
        cycles.check()
