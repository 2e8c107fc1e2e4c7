"""The start within another interpreter, where nothing but the hooks' own folder is on the path."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint import inside
from pinchpoint.capture.settings import Settings
from pinchpoint.inside import SITE, path_with_hooks, recording_environment, step_done

INSIDE = Path(SITE).parent
FILES = sorted(INSIDE.rglob("*.py"))


def started(code, *options, **variables):
    """What a program prints that was started with the hooks and without Pinchpoint's own path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PINCHPOINT", "PYTHON"))}
    env = recording_environment(env | variables, variables.pop("folder", ""))
    done = subprocess.run(
        [sys.executable, *options, "-c", code], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_file_is_python_3_8(file):
    ast.parse(file.read_text(), feature_version=(3, 8))


def test_the_recorder_needs_nothing_else_of_pinchpoint(tmp_path):
    code = """
import sys
from pinchpoint.inside.step_recorder import mark
mark(3.0); mark(4.0)
print(sorted(name for name in sys.modules if name.startswith("pinchpoint")))
"""
    (tmp_path / "pinchpoint.py").write_text("raise ImportError('not installed')")
    said, errors = started(code, folder=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert errors == ""
    assert ast.literal_eval(said) == [
        "pinchpoint.inside",
        *(
            f"pinchpoint.inside.{name}"
            for name in ("after_function", "after_import", "hooks", "interpreter_tools", "knobs")
        ),
        *(f"pinchpoint.inside.{name}" for name in ("meeting", "quiet", "step_recorder")),
    ]
    [steps] = [json.loads(path.read_text()) for path in tmp_path.glob("steps-*.json")]
    assert steps["series"]["mark"]["work"] == [3.0, 4.0]


def test_nothing_is_started_for_nobody():
    said, errors = started("import sys; print(len(sys.meta_path), 'torch' in sys.modules)")
    assert (said.split()[1], errors) == ("False", "")
    plain = subprocess.run(
        [sys.executable, "-c", "import sys; print(len(sys.meta_path))"], capture_output=True
    )
    assert said.split()[0] == plain.stdout.decode().strip()


def test_without_site_python_does_not_start_us(tmp_path):
    code = "import sys; print([m for m in sys.modules if m.startswith('pinchpoint')])"
    assert started(code, "-S", folder=str(tmp_path)) == ("[]", "")


def test_bench_and_run_together_share_the_hooks(tmp_path):
    (tmp_path / "processes").mkdir()
    code = """
import sys
from pinchpoint.inside import after_import, hooks
print([len(event.listeners) for event in (hooks.BATCH_FETCHED, hooks.ITERATOR_BUILT)],
      sum(type(finder).__module__.startswith("pinchpoint") for finder in sys.meta_path))
"""
    run = str(tmp_path)
    knobs = json.dumps({"num_workers": 1})
    asked = Settings(run, tool="none").environment() | {"PINCHPOINT_KNOBS": knobs}
    home = str(INSIDE.parents[1])
    said, errors = started(code, folder=str(tmp_path), PYTHONPATH=home, **asked)
    assert (said, errors) == ("[2, 1] 1", "")
    assert not list((tmp_path / "processes").glob("failed*"))
    assert (tmp_path / "processes/hooks-loaded").exists()


def test_the_hooks_come_first_on_the_path_and_the_programs_own_path_stays():
    assert path_with_hooks({}) == SITE
    assert path_with_hooks({"PYTHONPATH": "a:b"}) == os.pathsep.join([SITE, "a:b"])


def test_who_listens_hears_of_the_steps_that_the_program_marks(monkeypatch):
    heard = []
    monkeypatch.setattr(inside, "marked", [lambda: heard.append("step")])
    inside.step()
    step_done()
    assert heard == ["step", "step"]


def test_a_step_that_nobody_records_does_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "pinchpoint.inside.step_recorder", raising=False)
    assert step_done(3.0) is None
