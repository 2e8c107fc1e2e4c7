"""What is said while the program runs; nothing here waits."""

import pytest

from pinchpoint.capture.launch.early import NO_HOOKS, EarlyWord
from pinchpoint.capture.launch.launcher import begin
from pinchpoint.capture.process.elsewhere import interpreters_with
from pinchpoint.run_folder.documents import ProcessDocument, write
from pinchpoint.run_folder.layout import HOOKS_MARK, PROCESSES


@pytest.fixture
def folder(tmp_path):
    (tmp_path / PROCESSES).mkdir()
    return tmp_path


class Waits:
    """An event whose waits are over at once; the program goes on."""

    def wait(self, seconds):
        return False


def said(folder):
    words = []
    early = EarlyWord(folder, words.append)
    early._end = Waits()
    early._run()
    assert early.said == words
    return words


def test_a_program_without_hooks_is_told_how_to_get_them(folder):
    assert said(folder) == [NO_HOOKS]


def test_a_program_as_it_should_be_hears_nothing(folder):
    (folder / PROCESSES / HOOKS_MARK).touch()
    assert said(folder) == []


def test_what_a_process_noted_is_said_once(folder):
    (folder / PROCESSES / HOOKS_MARK).touch()
    note = ProcessDocument(problems=("the program runs its own profiler",))
    write(folder / PROCESSES / "rank00000of00001.host.1.json", note)
    assert said(folder) == ["the program runs its own profiler"]


def test_interpreters_beside_the_program_that_have_torch_are_offered(tmp_path, monkeypatch):
    for name, has in ((".venv", True), ("env", False)):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin/python").chmod(0o755)
        packages = tmp_path / name / "lib/python3.12/site-packages/torch"
        packages.mkdir(parents=True)
        if has:
            (packages / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    assert interpreters_with("torch")[0] == str(tmp_path / ".venv/bin/python")
    assert str(tmp_path / "env/bin/python") not in interpreters_with("torch")


def test_a_clock_that_is_set_back_makes_no_run_shorter(monkeypatch):
    began = begin()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert began.now_unix_ns() >= began.unix_ns > 0
