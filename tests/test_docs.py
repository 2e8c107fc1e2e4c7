"""What the documentation says is there: files, commands, code that runs."""

import re
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from pinchpoint.cli.listing import commands
from pinchpoint.diagnosis.registry import page, rule_ids
from pinchpoint.diagnosis.rule import HEADINGS

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
SHELL = re.compile(r"^(?:\$ )?pinchpoint ([a-z]+)", re.M)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
FILE = re.compile(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_files_exist(path):
    text = path.read_text("utf-8")
    missing = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    missing += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert missing == []


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


@pytest.mark.parametrize("rule", rule_ids())
def test_every_rule_has_a_page_with_the_headings_in_order(rule):
    text = page(rule)
    assert re.findall(r"^## (.*)$", text, re.M) == list(HEADINGS)
    headline = text.partition("\n")[0]
    assert headline.endswith(".")
