"""What pages show as the output of a command is what the command prints."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load():
    path = ROOT / "docs/refresh_outputs.py"
    spec = importlib.util.spec_from_file_location("refresh_outputs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outputs = load()


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("path", outputs.pages(), ids=lambda path: path.name)
def test_printed_outputs_are_current(path):
    text = path.read_text("utf-8")
    if "pinchpoint sql" in text:
        pytest.importorskip("duckdb", reason="duckdb is not installed")
    new = outputs.refreshed(text)
    assert text == new, "run: .venv/bin/python docs/refresh_outputs.py"


def test_a_block_is_replaced_and_the_rest_stays():
    text = (
        "a\n<!-- begin: pinchpoint formats | grep -o kineto | head -1 -->\nold\n<!-- end -->\nb\n"
    )
    new = outputs.refreshed(text)
    block = "```\n$ pinchpoint formats | grep -o kineto | head -1\nkineto\n```\n"
    assert new == text.replace("old\n", block)


def test_a_command_that_fails_stops_the_refresh():
    with pytest.raises(SystemExit, match="ended with 2"):
        outputs.printed("pinchpoint diagnose no-such-file.json")
