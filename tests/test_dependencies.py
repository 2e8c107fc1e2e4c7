"""What is required has licences that ask for no more than notices, and is listed for others."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci/dependencies.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("dependencies", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_that_is_installed_for_us_is_allowed_and_listed(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["x", "--extra", "serve", "--sbom", str(tmp_path / "s/bom")])
    assert script.main() == 0
    listed = json.loads((tmp_path / "s/bom").read_text())
    names = {part["name"].lower() for part in listed["components"]}
    assert {"numpy", "msgspec", "markupsafe", "uvicorn"} <= names  # of another's too
    assert "pytest" not in names
    assert all(part["version"] and part["licenses"] for part in listed["components"])
    assert "numpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND (0BSD OR GPL-3.0-only)", True),
        ("MIT AND GPL-3.0-only", False),
        ("GNU Affero General Public License v3", False),
        ("", False),
    ],
)
def test_of_alternatives_one_is_enough(script, text, fine):
    assert script.is_fine(text) is fine
