"""The ``run`` script of the checkout, without what it installs."""

import ast
import importlib.util
import json
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "run"


@pytest.fixture
def run():
    loader = SourceFileLoader("run_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("run_script", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_section_runs_and_the_first_failure_decides(run, monkeypatch, capfd):
    codes = iter([0, 3, 0, 4])
    monkeypatch.setattr(run, "call", lambda words, cwd: next(codes))
    assert run.sections([(f"part{i}", ["program"]) for i in range(4)]) == 3
    out = capfd.readouterr().out
    assert [line.split()[1] for line in out.splitlines()[-4:]] == ["ok", "FAILED", "ok", "FAILED"]


@pytest.mark.parametrize("words", [["tset"], ["bench", "no-such-benchmark"]])
def test_unknown_words_exit_2_with_what_there_is(run, monkeypatch, capfd, words):
    monkeypatch.setattr(run.sys, "argv", ["run", *words])
    monkeypatch.setattr(run, "prepare", lambda dev: None)
    assert run.main() == 2
    error, hint = capfd.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith(" next: one of: ")


def test_an_old_python_is_refused_in_one_sentence(run, monkeypatch, capfd):
    monkeypatch.setattr(run.sys, "argv", ["run", "demo"])
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 2))
    assert run.main() == 2
    assert "needs Python 3.11 or newer, and this is Python 3.9." in capfd.readouterr().err


def test_a_python_without_venv_is_told_what_to_install(run, monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(run, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(run, "find", lambda name: None)
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        run.make_venv()
    assert stop.value.code == 2
    assert "python3.11-venv" in capfd.readouterr().err.replace(run.version(), "3.11")


def test_a_finished_environment_is_left_alone(run, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "VENV", tmp_path)
    monkeypatch.setattr(run, "PYTHON", tmp_path)
    monkeypatch.setattr(run, "install", lambda *what: pytest.fail("installed again"))
    (tmp_path / "installed").write_text(run.fingerprint())
    run.prepare(dev=False)


def test_arguments_reach_pytest(run, monkeypatch):
    seen = []
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(run, "prepare", lambda dev: None)
    monkeypatch.setattr(run, "install_real_libraries", lambda: seen.append("torch"))
    monkeypatch.setattr(run, "sections", lambda parts: seen.append(parts[-1][1]) or 0)
    run.test(["--with-torch", "-k", "cli"])
    assert seen[0] == "torch"
    assert seen[-1] == ["pytest", "-n", "2", "--dist", "loadfile", "-k", "cli"]


def test_an_old_python_can_read_the_script_and_so_be_refused():
    ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize(
    ("failed", "code", "second"), [(1, 1, 0), (5, 1, 1), (13, 1, None), (1, 2, None), (0, 0, None)]
)
def test_a_few_failed_tests_run_once_more_alone(run, monkeypatch, tmp_path, failed, code, second):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({f"test_{i}": True for i in range(failed)}))
    calls = []
    monkeypatch.setattr(run, "call", lambda words, cwd: calls.append(words) or second)
    assert run.again(code) == (code if second is None else second)
    assert len(calls) == (second is not None)


def test_a_failed_check_stays_failed_when_tests_pass_at_last(run, monkeypatch):
    monkeypatch.setattr(run, "prepare", lambda dev: None)
    monkeypatch.setattr(run, "install_real_libraries", lambda: None)
    monkeypatch.setattr(run, "install_browser", lambda: None)
    monkeypatch.setattr(run, "sections", lambda parts: 3 if parts is run.CHECKS else 0)
    assert run.test([]) == 3
