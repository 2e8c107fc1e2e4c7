"""Exit codes say what happened, whoever listens to standard error, with any memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.cli.dispatch import main
from pinchpoint.errors import UnreadableFile, out_of_memory
from pinchpoint.importers import open as opening

SAMPLE = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("diagnose", "/no/such/file"), 2),
        (("diagnose",), 2),
        (("report", str(SAMPLE), "-o", "{folder}/out.html"), 0),
    ],
)
def test_a_reader_of_standard_error_that_went_away_changes_nothing(tmp_path, words, code):
    read, write = os.pipe()
    os.close(read)
    words = [word.format(folder=tmp_path) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "pinchpoint", *words], stdout=subprocess.DEVNULL, stderr=write
    )
    os.close(write)
    assert done.returncode == code


@pytest.mark.parametrize("where", ["reading", "analysing"])
def test_no_memory_is_said_as_that(where, monkeypatch, capsys):
    def none(*_):
        raise MemoryError

    place = (opening, "_read_by") if where == "reading" else (sys.modules[main.__module__], "_run")
    monkeypatch.setattr(*place, none)
    assert main(["diagnose", str(SAMPLE)]) == 2
    said = capsys.readouterr().err
    assert "not enough memory" in said
    assert "bug" not in said


@pytest.mark.parametrize("error", [KeyError("k"), TypeError(), RecursionError(), ValueError()])
def test_what_no_reader_foresaw_is_a_damaged_file(error, monkeypatch, capsys):
    def fails(*_):
        raise error

    monkeypatch.setattr(opening, "_read_by", fails)
    assert main(["diagnose", str(SAMPLE)]) == 2
    assert f"damaged, or no kineto as its recorder writes it ({type(error).__name__})" in (
        capsys.readouterr().err
    )
    monkeypatch.setenv("PINCHPOINT_DEBUG", "1")
    main(["diagnose", str(SAMPLE)])
    assert "in fails" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["diagnose", "report", "ranks", "memory", "show", "compare"])
def test_an_empty_argument_is_no_folder(command, capsys):
    assert main([command, ""]) == 2
    assert capsys.readouterr().err.startswith("error: an empty argument\n next: ")


@pytest.mark.parametrize("command", ["diagnose", "report", "ranks"])
def test_a_link_to_the_whole_disk_is_not_searched(command, tmp_path, capsys):
    (tmp_path / "link").symlink_to(Path(tmp_path.anchor))
    assert main([command, str(tmp_path / "link")]) == 2
    assert "the whole disk" in capsys.readouterr().err


def test_a_name_of_two_lines_is_said_on_one(tmp_path, capsys):
    (tmp_path / "a\nerror: b").write_text("x")
    assert main(["diagnose", str(tmp_path / "a\nerror: b")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_threads_that_cannot_be_started_are_said_as_that():
    at_last = UnreadableFile("a.json: read")
    at_last.__cause__ = RuntimeError("can't start new thread")
    lack = out_of_memory(at_last, "a.json")
    assert lack.message.startswith("a.json: no thread can be started: a limit on processes")
    assert lack.exit_code == 2
    assert out_of_memory(MemoryError()).message == "not enough memory"
    assert out_of_memory(ValueError("other")) is None
