"""What stands in ``examples/ci`` is read by what it is for, and the job of Slurm is run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / "examples/ci"
TRAIN = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


def test_pipelines_are_yaml_of_the_right_shape():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (job,) = yaml.safe_load((CI / "gitlab-ci.yml").read_text()).values()
    assert [line.split()[0] for line in job["script"]] == ["pinchpoint"]
    assert job["artifacts"]["reports"] == {"junit": "junit.xml"}
    (step,) = yaml.safe_load((CI / "buildkite.yml").read_text())["steps"]
    ours = [line.split()[1] for line in step["command"] if line.startswith("pinchpoint")]
    assert ours == ["run", "diagnose", "export"]
    for lines in (job["before_script"], step["command"]):
        assert any(line.startswith("pip install -r requirements.txt") for line in lines)
    assert step["concurrency"] == 1


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_job_of_slurm_leaves_a_run_that_the_fleet_knows(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, words in (("pinchpoint", "-m pinchpoint"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    variables = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "RUNS": str(tmp_path / "runs"),
        "SLURM_JOB_ID": "4711",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        ["bash", str(CI / "slurm.sh")],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "train.py" in done.stdout
    assert (tmp_path / "runs/4711/metrics.json").is_file()
