"""Help with examples that mean something, on terminals of any width and kind."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.cli import dispatch
from pinchpoint.cli import main as cli
from pinchpoint.cli.help import EXAMPLES, commands
from pinchpoint.diagnosis.registry import related
from pinchpoint.importers import formats

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src/pinchpoint/data/item_sync.json.gz"


def test_every_command_has_examples():
    of_commands = {name for name in EXAMPLES if " " not in name}
    assert of_commands == set(commands())


def test_every_subcommand_has_examples_of_its_own():
    named = {name.removeprefix("bench ") for name in EXAMPLES if " " in name}
    assert named == set(dispatch._module("bench").SUBCOMMANDS)
    for name, lines in EXAMPLES.items():
        assert all(
            line.startswith(f"pinchpoint {name} ") or line == f"pinchpoint {name}" for line in lines
        )


def in_ci():
    """The commands of ``examples/ci``."""
    for file in sorted((ROOT / "examples/ci").iterdir()):
        for line in file.read_text().splitlines():
            if (text := line.strip().removeprefix("- ")).startswith("pinchpoint "):
                yield text


@pytest.mark.parametrize(
    "line", [line for lines in EXAMPLES.values() for line in lines] + [*in_ci()]
)
def test_examples_are_understood(line):
    _, name, *words = shlex.split(line)
    module = dispatch._module(name)
    words = module.separate(words) if hasattr(module, "separate") else words
    dispatch.app_of(name).parse_args(words, exit_on_error=False, print_error=False)


def test_help_ends_with_examples(capsys):
    assert cli(["open", "--help"]) == 0
    text = capsys.readouterr().out
    assert "options:\n" in text
    assert text.splitlines()[-1] == "  pinchpoint open trace.json.gz --steps 3-5 --no-browser"
    assert all(line == line.rstrip() for line in text.splitlines())


def test_help_of_subcommands(capsys):
    assert cli(["bench", "ab", "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: pinchpoint bench ab" in text
    assert "--pairs" in text


def test_formats_name_their_files(capsys):
    assert cli(["formats"]) == 0
    listed = capsys.readouterr().out.splitlines()
    named = [line.partition("  ")[0] for line in listed if not line.startswith(" ")]
    assert named == list(formats())
    assert any(".ncu-rep" in line for line in listed)


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("nonsense", []),
        ("zzz", []),
        ("", []),
        ("sinc-in-lop", ["sync-in-loop"]),
        ("SYNC_IN_LOOP", ["sync-in-loop"]),
        ("activation", ["activation-memory"]),
    ],
)
def test_only_related_rules_are_suggested(text, suggested):
    assert related(text)[:1] == suggested


@pytest.mark.parametrize(
    "environment",
    [
        {"COLUMNS": "20"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb", "HOME": None},
    ],
)
def test_no_surroundings_end_in_a_traceback(environment):
    commands = [
        *(["open", "--help"], ["explain", "sync-in-loop"], ["show", str(DEMO), "1"]),
        *(["formats"], ["monitor", "--once"]),
    ]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    for each in (commands[:3], commands[3:]):
        code = f"from pinchpoint.cli import main; exit(max(map(main, {each})))"
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            env={name: value for name, value in surroundings.items() if value is not None},
        )
        assert run.returncode == 0, run.stderr
        assert b"Traceback" not in run.stderr
    if "PYTHONIOENCODING" in environment:
        assert run.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    "words",
    [
        ["report", str(DEMO), "-o", "/dev/full"],
        ["diagnose", str(DEMO), "--html", "/dev/full"],
        ["export", str(DEMO), "--to", "chrome", "-o", "/dev/full"],
        ["export", str(DEMO), "--to", "csv", "-o", "/dev/full"],
        ["export", str(DEMO), "--to", "parquet", "-o", "/dev/full"],
    ],
)
def test_a_full_disk_is_one_line(words, capsys):
    assert cli(words) == 2
    errors = [e for e in capsys.readouterr().err.splitlines() if e.startswith("error: ")]
    assert len(errors) == 1
    assert "/dev/full" in errors[0]
