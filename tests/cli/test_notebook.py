"""``%%pinchpoint``, with a shell that is played; recording itself in a process of its own."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import pinchpoint
from pinchpoint.cli import notebook
from pinchpoint.errors import UsageError


class Shell:
    """As much of IPython as the magic uses."""

    def __init__(self):
        self.magics, self.ran = {}, []

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def run_cell(self, cell):
        self.ran.append(cell)


def test_the_extension_makes_the_magic_known(monkeypatch):
    shell = Shell()
    pinchpoint.load_ipython_extension(shell)
    asked = []
    monkeypatch.setattr(notebook, "record_cell", lambda run, *given: asked.append((run(), *given)))
    for line in ("runs/cell", "", "--after-seconds 0 'my runs/cell'"):
        shell.magics["cell", "pinchpoint"](line, "step()")
    assert shell.ran == ["step()"] * 3
    assert asked == [
        (None, Path("runs/cell"), None),
        (None, None, None),
        (None, Path("my runs/cell"), 0.0),
    ]


@pytest.mark.parametrize(
    "line",
    ["a b", "--stacks", "--after-seconds", "--after-seconds soon", "--after-seconds -1", "'"],
)
def test_what_the_magic_does_not_take_is_said_and_nothing_runs(line, capsys):
    shell = Shell()
    assert notebook._magic(shell, line, "step()") is None
    said = "pinchpoint: %%pinchpoint takes a folder and --after-seconds N, and nothing else\n"
    assert (shell.ran, capsys.readouterr().err) == ([], said)


def test_what_went_wrong_is_a_sentence_and_no_traceback(monkeypatch, capsys):
    def refuse(run, *given):
        raise UsageError("nothing was recorded", hint="do more")

    monkeypatch.setattr(notebook, "record_cell", refuse)
    assert notebook._magic(Shell(), "", "pass") is None
    assert capsys.readouterr().err == "pinchpoint: nothing was recorded\n"


CELL = """
import torch
from pathlib import Path
from pinchpoint.cli.notebook import record_cell
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

def infer():
    for _ in range(40):
        model(torch.ones(4, 8))

for cell in (train, infer):
    report = record_cell(cell, Path(cell.__name__))
    print(report.steps.count, report.source.path.rpartition("/")[2])
"""


@pytest.mark.skipif(not find_spec("torch"), reason="records a program of torch")
def test_cells_are_recorded_one_after_the_other(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CELL], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["6 train", "6 infer"], done.stderr[-500:]
