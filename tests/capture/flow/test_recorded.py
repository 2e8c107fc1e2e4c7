"""A whole run of a program that repeats work, and does some that nobody reads."""

import subprocess
import sys

import pytest

from pinchpoint.diagnosis.engine import ask
from pinchpoint.diagnosis.registry import rules
from pinchpoint.importers import load

pytestmark = pytest.mark.torch
PROGRAM = """
import torch
torch.set_num_threads(1)
prior = torch.eye(160) * 2 + 0.001
layer, head = torch.nn.Linear(160, 160), torch.nn.Linear(160, 320)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

def whitening():
    return torch.linalg.cholesky(prior).inverse()

def step():
    hidden = layer(torch.randn(64, 160) @ whitening())
    scores = head(hidden)  # dropped
    hidden.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

for _ in range(400):
    step()
"""


def test_a_run_names_what_is_repeated_and_what_nobody_reads(tmp_path):
    pytest.importorskip("torch", reason="runs a program of torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pinchpoint", "run", "-o", "out", sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    trace = load(tmp_path / "out")
    trace = trace.run.named or trace
    lines = PROGRAM.splitlines()
    (again,) = ask(rules()["repeated-work"], trace).findings
    assert "4 operations a step in whitening" in again.summary  # a factor, an inverse, their checks
    assert again.location.function == "whitening"
    (unused,) = ask(rules()["unused-work"], trace).findings
    assert "# dropped" in lines[unused.location.line - 1]
