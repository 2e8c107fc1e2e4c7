"""What the documentation says is there: files, commands, code that runs."""

import re
import shutil
import tomllib
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from pinchpoint.cli.help import commands

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
SHELL = re.compile(r"^(?:\$ )?pinchpoint ([a-z]+)", re.M)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
FILE = re.compile(r"(?<![\w/])((?:src|tests|docs|benchmarks)/[\w./-]*\w)")
MODULE = re.compile(r"`(?:pinchpoint\.)?([a-z_]+(?:\.[a-z_]+)+)(?:\(.*\))?`")
PACKAGES = {path.stem for path in (ROOT / "src/pinchpoint").glob("[a-z]*")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_files_exist(path):
    text = path.read_text("utf-8")
    missing = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    missing += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_modules_exist(path):
    named = MODULE.findall(path.read_text("utf-8"))
    named = [name for name in named if name.partition(".")[0] in PACKAGES]
    named = [name for name in named if not name.endswith(".db")]  # a file that another tool writes
    assert [name for name in named if not _is_there(f"pinchpoint.{name}")] == []


def _is_there(name):
    """Whether a dotted name is a module, or something in one."""
    home, _, last = name.rpartition(".")
    try:
        return find_spec(name) is not None or hasattr(import_module(home), last)
    except ModuleNotFoundError:
        return _is_there(home) if home != "pinchpoint" else False


@pytest.mark.parametrize(
    ("container", "heading"),
    [
        ("pinchpoint", "The packages, bottom to top"),
        ("pinchpoint.analysis", "The rooms of `analysis`, bottom to top"),
        ("pinchpoint.report", "The rooms of `report`, bottom to top"),
    ],
)
def test_the_rooms_are_those_that_are_checked_in_their_order(container, heading):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in settings["contracts"] if c.get("containers") == [container])
    level = {room: i for i, row in enumerate(reversed(layers)) for room in row.split(" | ")}
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (`.*?) \|", text.partition(f"## {heading}")[2].partition("\n## ")[0], re.M
    )
    shown = [name for row in rows for name in re.findall(r"`(\w+)(?:\.py)?`", row)]
    assert sorted(shown) == sorted(level)
    assert [level[name] for name in shown] == sorted(level.values())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_exist(path):
    blocks = re.findall(r"```\n(.*?)```", path.read_text("utf-8"), re.S)
    named = {name for block in blocks for name in SHELL.findall(block)}
    assert named <= set(commands())


def test_the_readme_code_runs(tmp_path, monkeypatch, capsys):
    sample = Path(str(files("pinchpoint") / "data" / "item_sync.json.gz"))
    shutil.copy(sample, tmp_path / "trace.json.gz")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert "sync-in-loop" in capsys.readouterr().out


def test_decisions_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
