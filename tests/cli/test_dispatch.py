import gc
import importlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from pinchpoint.bench.folders import start_session
from pinchpoint.cli import main as cli
from pinchpoint.cli.dispatch import app_of
from pinchpoint.cli.help import commands, module_name
from pinchpoint.cli.output import wrote
from pinchpoint.errors import NotComparable, PinchpointError


@pytest.fixture
def raising(monkeypatch):
    """Make every command raise the given error."""

    def arrange(error):
        def fail(words):
            raise error

        monkeypatch.setattr("pinchpoint.cli.dispatch._run", fail)

    return arrange


def test_alone_it_asks_what_there_is(capsys):
    assert cli([]) == 0
    out = capsys.readouterr().out
    assert "What have you got?" in out
    named = set(re.findall(r"pinchpoint ([a-z]+)", out)) - {"alone"}
    assert named <= set(commands())
    assert {"run", "diagnose", "memory", "ranks", "compare", "bench"} <= named


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_overview_names_every_command(words, capsys):
    assert cli(words) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in commands())


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_summary_and_help(name, capsys):
    assert commands()[name]
    assert cli([name, "--help"]) == 0
    assert f"pinchpoint {name}" in capsys.readouterr().out


def test_commands_that_go_on_collect_garbage_as_python_does(tmp_path, capsys):
    usual = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        cli(["serve", str(tmp_path / "absent")])
        assert gc.get_threshold()[0] == 700
        cli(["formats"])
        assert gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*usual)


def test_started_programs_find_the_environment_as_the_user_left_it(monkeypatch, capsys):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    assert cli(["diagnose", "--help"]) == 0
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        pytest.param(["explian"], "no command 'explian'", "pinchpoint explain", id="misspelt"),
        pytest.param(["zzz"], "no command 'zzz'", "--help", id="unknown command"),
        pytest.param(["formats", "--x"], "--x", "pinchpoint formats --help", id="unknown option"),
        pytest.param(["explain", "a", "b"], "'b'", "explain --help", id="too many arguments"),
        pytest.param(["explain", "no-such-rule"], "no-such-rule", "", id="unknown rule"),
    ],
)
def test_usage_errors_are_one_line_and_a_hint(words, problem, hint, capsys):
    assert cli(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert problem in lines[0]
    assert lines[1].startswith(" next: ")
    assert hint in lines[1]


def test_foreseen_errors_carry_their_exit_code(raising, capsys):
    raising(NotComparable("two machines", hint="measure on one"))
    assert cli(["formats"]) == 3
    assert capsys.readouterr().err == "error: two machines\n next: measure on one\n"


def test_error_text_cannot_drive_the_terminal(raising, capsys):
    raising(PinchpointError("\x1b[31mred\x1b[0m\nnext line\u202e"))
    cli(["formats"])
    assert capsys.readouterr().err == "error: \ufffd[31mred\ufffd[0m next line\ufffd\n"


def test_an_interruption_is_one_line_about_what_is_left(raising, capsys, monkeypatch):
    raising(KeyboardInterrupt())
    wrote(Path("of_another_command.html"))
    capsys.readouterr()
    assert cli(["formats"]) == 130
    assert capsys.readouterr() == ("", "interrupted; nothing was written\n")
    monkeypatch.setattr("pinchpoint.cli.output.begin", lambda: wrote(Path("a.html")))
    assert cli(["formats"]) == 130
    assert capsys.readouterr().err == "wrote a.html\ninterrupted; written before: a.html\n"


def test_an_interrupted_measurement_says_where_the_rest_is(raising, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("pinchpoint.cli.output._WRITTEN", [])
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        start_session("run", {}, tmp_path / "out"),
    ):
        raise KeyboardInterrupt
    raising(caught.value)
    assert cli(["formats"]) == 130
    said = capsys.readouterr().err
    assert said == f"interrupted; {tmp_path / 'out'} holds what was measured until then\n"


def test_our_own_bugs_are_admitted_in_one_line(raising, capsys, monkeypatch):
    monkeypatch.delenv("PINCHPOINT_DEBUG", raising=False)
    raising(ZeroDivisionError("oops"))
    assert cli(["formats"]) == 70
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in err
    assert "Traceback" not in err


def test_debugging_shows_the_traceback(raising, capsys, monkeypatch):
    monkeypatch.setenv("PINCHPOINT_DEBUG", "1")
    raising(ZeroDivisionError("oops"))
    assert cli(["formats"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error():
    code = "import sys; from pinchpoint.cli import main; sys.exit(main(['--help']))"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    run.stdout.close()
    _, err = run.communicate()
    assert err == b""
    assert run.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_no_bug_of_ours():
    code = "import sys; from pinchpoint.cli import main; sys.exit(main(['--help']))"
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert run.returncode == 2
    assert run.stderr.splitlines()[0] == "error: the output: No space left on device"
    assert len(run.stderr.splitlines()) == 2


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_the_shell_closed_takes_output_and_keeps_none(closed):
    words = f"{shlex.quote(sys.executable)} -m pinchpoint explain sync-in-loop {closed}>&-"
    run = subprocess.run(["sh", "-c", words], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_orientation_imports_nothing_heavy(words):
    code = (
        "import sys; import pinchpoint; from pinchpoint.cli import main; "
        f"assert main([{words!r}]) == 0; "
        "heavy = {'torch', 'jax', 'numpy', 'msgspec', 'cyclopts', 'rich', 'jinja2'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_version(capsys):
    assert cli(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pinchpoint ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "a.json", "--to", "speedscope"], "--output is missing"),
        (["export", "a.json", "--to", "speedscope", "--output"], "--output requires an argument"),
        (["compare", "a.json"], "B is missing"),
    ],
)
def test_what_was_left_out_is_missing_and_needs_no_argument(words, said, capsys):
    assert cli(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(commands()))
def test_a_command_called_again_has_the_options_it_had(name):
    """Libraries that check each option took an option more a call as one level deeper, and failed
    in the three hundredth call of a process."""

    command = importlib.import_module(module_name(name))
    functions = [*filter(None, [getattr(command, "command", None)]), *_subcommands(command)]

    def options():
        hints = [hint for function in functions for hint in function.__annotations__.values()]
        groups = filter(is_dataclass, (kind for hint in hints for kind in (hint, *get_args(hint))))
        return [*hints, *(field.type for group in groups for field in fields(group))]

    app_of(name)
    first = options()
    app_of(name)
    assert options() == first


def _subcommands(command):
    return getattr(command, "SUBCOMMANDS", {}).values()
