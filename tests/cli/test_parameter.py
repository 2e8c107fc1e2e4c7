from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from pinchpoint.cli.parameter import Parameter, without_parser

Switch = Parameter(negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class Look:
    json: Annotated[bool, Switch] = False
    in_full: Annotated[bool, Switch] = False
    most: int | None = None


def command(
    *files: Path, look: Look = Look(most=7), loud: Annotated[bool, Switch] = False, at: str = ""
) -> int:
    return 0


def test_files_and_switches_need_no_parser():
    plain = without_parser(command, ["a", "--json", "--loud", "b", "--in-full"])
    assert plain is not None
    assert plain.files == [Path("a"), Path("b")]
    assert plain.options == {"look": Look(True, True, 7), "loud": True, "at": ""}


@pytest.mark.parametrize(
    "words",
    [
        "--json",
        "a --at b",
        "a --most 3",
        "a --json=yes",
        "a --no-json",
        "a --json --json",
        "a -v",
        "a -- --json",
        "a --in_full",
        "a --look",
        "a --files",
        "",
    ],
)
def test_all_else_is_for_the_parser(words):
    assert without_parser(command, words.split()) is None


def one_file(file: Path, *, loud: Annotated[bool, Switch] = False) -> int:
    return 0


def test_a_command_of_one_file_is_for_the_parser():
    assert without_parser(one_file, ["a", "--loud"]) is None
