"""Runs what the CI examples say, as their runners would, in fresh clones of a small project.

    python benchmarks/ci_examples.py --lend .venv --budget 3m

GitHub's workflow is taken from ``docs/regression-gate.md``, the others from ``examples/ci``. Every
``run:`` step and every line of a script is run by bash as it stands (``bash -e``, a shell a step
for GitHub, one for a job of GitLab and Buildkite). What is no command is stood in for: a checkout
is a clone, the cache a folder, variables of the runner are set, ``sbatch`` is bash with variables
of Slurm. GitHub's workflow is run three times: a push that makes the baseline, a pull request that
changes nothing and one that makes a step slower.

``--lend``: an environment whose packages (torch) each new one sees, so that pip has nothing to
download; what pip installs of Pinchpoint is built from a clone of this repository. ``--budget``
replaces that of the gate.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def compute_loss(x, y):
    out = model(x)
    return torch.nn.functional.cross_entropy(out, y)


for _ in range(300):
    x, y = torch.randn(256, 256), torch.randint(0, 8, (256,))
    optimizer.zero_grad()
    compute_loss(x, y).backward()
    optimizer.step()
"""
SLOWER = (
    "    out = model(x)\n",
    "    scale = 1.0\n    noise = torch.linalg.svdvals(x.detach()[:64]).mean() * 0.0\n"
    "    out = model(x) * scale + noise\n",
)
IGNORED = ".venv\n.pinchpoint\nbaseline.json\nresults*\njunit.xml\nrun\n*.html\n*.sarif\n"


def main() -> int:
    """0 if every step ended as it should."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lend", type=Path, default=None)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--only", choices=("github", "gitlab", "buildkite", "slurm"))
    asked = parser.parse_args()
    jobs = {"github": github, "gitlab": gitlab, "buildkite": buildkite, "slurm": slurm}
    wrong = []
    for name, job in jobs.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                wrong += job(Job(Path(folder), asked.lend, asked.budget))
    print("; ".join(wrong) or "every step ended as it should")
    return 1 if wrong else 0


class Job:
    """A project with commits, and where its jobs run."""

    def __init__(self, folder: Path, lend: Path | None, budget: str) -> None:
        self.folder, self.lend, self.budget = folder, lend, budget
        self.origin, self.cache, self.runs = folder / "origin", folder / "cache", 0
        self.origin.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.origin / ".gitignore").write_text(IGNORED)
        (self.origin / "requirements.txt").write_text("torch\n")
        self.commit(TRAIN, "a program")

    def git(self, *words: str) -> None:
        """In the project."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *words], cwd=self.origin, check=True)

    def commit(self, program: str, said: str) -> None:
        """The program, and a line that says nothing."""
        (self.origin / "train.py").write_text(program)
        (self.origin / "README").write_text(said)
        self.git("add", ".")
        self.git("commit", "-q", "-m", said)

    def checkout(self) -> Path:
        """A fresh clone, as a runner makes one, with the cache of jobs before."""
        self.runs += 1
        here = self.folder / f"job{self.runs}"
        subprocess.run(["git", "clone", "-q", self.origin, here], check=True)
        subprocess.run(["git", "clone", "-q", ROOT, here / ".pinchpoint"], check=True)
        if (self.cache / "baseline.json").exists():
            shutil.copy(self.cache / "baseline.json", here)
        return here

    def keep(self, here: Path) -> None:
        """What the job on the default branch leaves in the cache."""
        self.cache.mkdir(exist_ok=True)
        shutil.copy(here / "baseline.json", self.cache)

    def shell(self, here: Path, lines: str, variables: Mapping[str, str]) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        lines = re.sub(r"--budget \S+", f"--budget {self.budget}", lines)
        tools = self._tools()
        path = f"{tools}:{os.environ['PATH']}" if tools else os.environ["PATH"]
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        begin = time.monotonic()
        done = subprocess.run(
            ["bash", "-e", "-c", lines],
            cwd=here,
            env=env | dict(variables) | {"PATH": path, "CI": "true"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        first = lines.strip().splitlines()[-1].strip()[:60]
        took = f"{time.monotonic() - begin:.0f} s, load {os.getloadavg()[0]:.1f}"
        print(f"  exit code {done.returncode}, {took}: {first} …", flush=True)
        return done.returncode, done.stdout

    def _tools(self) -> Path | None:
        """A ``python3`` whose environments see the packages of the one that is lent."""
        if self.lend is None:
            return None
        tools, real = self.folder / "tools", sys.executable
        if not tools.exists():
            tools.mkdir()
            (site,) = self.lend.resolve().glob("lib/python*/site-packages")
            (tools / "python3").write_text(
                f'#!/bin/bash\n{real} "$@" || exit\n'
                'if [ "$1 $2" = "-m venv" ]; then\n'
                f'  for s in "$3"/lib/python*/site-packages; do echo {site} > "$s/lent.pth"; done\n'
                "fi\n"
            )
            (tools / "python3").chmod(0o755)
        return tools


def github(job: Job) -> list[str]:
    """Three runs of the workflow."""
    print("GitHub's workflow, of docs/regression-gate.md")
    text = (ROOT / "docs/regression-gate.md").read_text("utf-8")
    found = re.search(r"```yaml\n(name: .*?)```", text, re.DOTALL)
    steps = yaml.safe_load(found[1])["jobs"]["gate"]["steps"] if found else []
    wrong = _github_run(job, steps, "push", "the first session", 0)
    job.commit(TRAIN, "changes nothing")
    wrong += _github_run(job, steps, "pull_request", "a change of nothing", 0)
    job.commit(TRAIN.replace(*SLOWER), "slower")
    return wrong + _github_run(job, steps, "pull_request", "a slower step", 1)


def _github_run(job: Job, steps: list[dict], event: str, what: str, expected: int) -> list[str]:
    print(f" {event}: {what}")
    here, code, said = job.checkout(), 0, ""
    files = {name: str(here.parent / f"{here.name}.{name}") for name in ("output", "summary")}
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": files["output"],
        "GITHUB_STEP_SUMMARY": files["summary"],
        "GITHUB_WORKSPACE": str(here),
    }
    for step in (one for one in steps if "run" in one):
        # A variable of the repository that nobody set is empty there.
        own = {k: "" if v.startswith("${{ vars.") else v for k, v in step.get("env", {}).items()}
        code, said = job.shell(here, step["run"], variables | own)
        if code:
            break
    if event == "push" and code == 0:
        job.keep(here)
    for line in said.splitlines():
        if line.startswith(("::error", "::notice", "::warning")):
            print(f"  {line[:160]}")
    outputs = Path(files["output"]).read_text() if Path(files["output"]).exists() else ""
    print(f"  outputs: {outputs.split()}")
    wrong = [] if code == expected else [f"{what}: exit code {code}: {said[-2000:]}"]
    if expected and "::error file=train.py,line=" not in said:
        wrong.append(f"{what}: no annotation at a line")
    return wrong


def gitlab(job: Job) -> list[str]:
    """A first job of the default branch, and one of a merge request."""
    print("examples/ci/gitlab-ci.yml")
    (found,) = yaml.safe_load((ROOT / "examples/ci/gitlab-ci.yml").read_text()).values()
    wrong = []
    for what in ("the first session", "a change of nothing"):
        here = job.checkout()
        lines = "\n".join([*found["before_script"], *found["script"]])
        code, said = job.shell(here, lines, {"PINCHPOINT_URL": f"file://{here}/.pinchpoint"})
        wrong += [] if code == 0 else [f"gitlab, {what}: exit code {code}: {said[-2000:]}"]
        if not (here / "junit.xml").exists():
            wrong.append(f"gitlab, {what}: no junit.xml")
        if code == 0:
            job.keep(here)
        job.commit(TRAIN, f"changes nothing after {what}")
    return wrong


def buildkite(job: Job) -> list[str]:
    """The commands of the one step; two dollars of the pipeline are one of the shell."""
    print("examples/ci/buildkite.yml")
    (step,) = yaml.safe_load((ROOT / "examples/ci/buildkite.yml").read_text())["steps"]
    here = job.checkout()
    lines = "\n".join(step["command"]).replace("$$", "$")
    code, said = job.shell(here, lines, {"PINCHPOINT_URL": f"file://{here}/.pinchpoint"})
    lost = [p for p in step["artifact_paths"].split(";") if not any(here.glob(p))]
    # 1 is a finding worth a fifth of the step, which a program without causes may have not.
    wrong = [] if code in (0, 1) else [f"buildkite: exit code {code}: {said[-2000:]}"]
    return wrong + ([f"buildkite: no {', '.join(lost)}"] if lost and code == 0 else [])


def slurm(job: Job) -> list[str]:
    """As ``sbatch`` would: bash, with variables of Slurm."""
    print("examples/ci/slurm.sh")
    here = job.checkout()
    made = job.shell(here, "python3 -m venv .venv\n.venv/bin/pip install ./.pinchpoint", {})
    variables = {
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "ENVIRONMENT": str(here / ".venv"),
        "RUNS": str(here / "runs"),
    }
    code, said = job.shell(here, (ROOT / "examples/ci/slurm.sh").read_text(), variables)
    wrong = [] if code == 0 else [f"slurm: exit code {code}: {made[1][-500:]} {said[-2000:]}"]
    there = (here / "runs/4711/metrics.json").exists()
    return wrong + ([] if there else ["slurm: no run folder"])


if __name__ == "__main__":
    sys.exit(main())
