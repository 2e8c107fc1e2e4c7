import inspect
from typing import get_args

import pytest

from pinchpoint.cli.programs.run import WITH_VALUE, command, separate


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
    for name, parameter in inspect.signature(command).parameters.items():
        switch = bool in get_args(parameter.annotation) or parameter.annotation is bool
        if name != "program" and not switch:
            expected.add("--" + name.replace("_", "-"))
    assert expected == WITH_VALUE
