"""Completion in bash: what a shell really offers."""

import shutil
import subprocess

import pytest

from pinchpoint.cli import main as cli
from pinchpoint.cli.help import commands

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("shell") / "completion.bash"
    with path.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pinchpoint.cli.programs.completion.show", file.write)
        assert cli(["completion", "bash"]) == 0
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("dia",), "diagnose"),
        (("diagnose", "--clo"), "--clock"),
        (("bench", "a"), "ab"),
        (("bench", "ab", "--fix"), "--fixed"),
    ],
)
def test_what_is_offered(script, words, offered):
    typed = " ".join(("pinchpoint", *words))
    text = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _pinchpoint;"
    done = subprocess.run(
        ["bash", "-c", f'{text} echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert offered in done.stdout.split()


def test_fish_knows_every_command(capfd):
    assert cli(["completion", "fish"]) == 0
    out = capfd.readouterr().out
    assert all(f"-a {name} -d" in out for name in commands())
