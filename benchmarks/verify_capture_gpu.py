"""Checks ``pinchpoint run`` on a machine with a GPU, in about eight minutes.

    python benchmarks/verify_capture_gpu.py OUT [--workloads FOLDER] [--seconds 480]

Four unchanged training programs (plain, loader workers, torch.compile, bf16) and one inference loop
with CUDA graphs; then workloads with a known cause, each a script whose first comment line names
it; then the step time with hooks only against without Pinchpoint, in interleaved runs. Everything
seen goes to ``OUT/verify.json``, and the run folders, without traces that do not fit into 15 MB,
into ``OUT/runs.tar.gz``. The cases stop when the seconds are used up.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
BUNDLE_BYTES = 15_000_000
OVERHEAD_SECONDS = 80  # kept for the last part
PARTS = ("run.json", "metrics.json", "env.json", "telemetry.csv")
# Causes that a live run must be able to show, most telling first.
WORKLOADS = (
    "c16_sync_in_loop",
    "c01_dataloader_starved",
    "c12_pageable_h2d",
    "c61_gpu_contention",
    "c34_no_tensor_cores",
    "c19_launch_blocking_env",
    "c10_cpu_limited",
    "c27_launch_bound",
    "c28_unfused_optimizer",
    "c15_fp64_by_accident",
    "c39_unfused_attention",
    "c23_per_param_sync",
    "c05_worker_respawn",
    "c35_no_mixed_precision",
    "c18_explicit_synchronize",
    "c02_slow_transform",
)

MODEL = """
import sys, time, torch
from torch import nn
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
width, steps = 1024 if device == "cuda" else 64, int(sys.argv[1]) if len(sys.argv) > 1 else 300
length = 256 if device == "cuda" else 8
layers = [nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0)
          for _ in range(4)]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
"""
STEP = """
def train_step(x):
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
"""
STEP_IN_BF16 = """
def train_step(x):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
LOOP = """
x = torch.randn(8, length, width, device=device)
marks = []
for i in range(steps):
    train_step(x)
    if i in (steps // 3, steps - 1):
        torch.cuda.synchronize() if device == "cuda" else None
        marks.append(time.perf_counter())
print("STEP_MS", 1e3 * (marks[1] - marks[0]) / (steps - 1 - steps // 3))
"""
LOADER = """
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self): return 8 * steps
    def __getitem__(self, i): return torch.randn(length, width)
if __name__ == "__main__":
    for x in DataLoader(Samples(), batch_size=8, num_workers=4, pin_memory=device == "cuda"):
        train_step(x.to(device, non_blocking=True))
"""
PROGRAMS = {
    "plain": MODEL + STEP + LOOP,
    "bf16": MODEL + STEP_IN_BF16 + LOOP,
    "compile": MODEL + STEP + "model = torch.compile(model)\n" + LOOP,
    "loader": MODEL + STEP + LOADER,
    "graphs": """
import time, torch
from torch import nn
model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(16)]).cuda().half().eval()
run = torch.compile(model, mode="reduce-overhead")
x, end = torch.randn(8, 2048, device="cuda").half(), time.monotonic() + 10
with torch.no_grad():
    while time.monotonic() < end:
        for _ in range(20):
            y = run(x)
        torch.cuda.synchronize()
""",
}


def main() -> int:
    """Run the parts one after another."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workloads", type=Path)
    parser.add_argument("--seconds", type=float, default=480)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    out = options.out.resolve()
    (out / "runs").mkdir(parents=True)
    report: dict[str, object] = {"programs": {}, "workloads": {}}
    for name, source in PROGRAMS.items():
        script = out / f"{name}.py"
        script.write_text(source)
        report["programs"][name] = judged(out, name, ["--stacks", "--shapes"], [str(script)], end)
        save(out, report)
    if options.workloads:
        for name in WORKLOADS:
            script = options.workloads / f"{name}.py"
            if time.monotonic() > end - OVERHEAD_SECONDS - 25 or not script.exists():
                continue
            words = [str(script), "--variant", "slow", "--steps", "1000000", "--max-seconds", "7"]
            flags = ["--stacks", "--shapes", "--after-seconds", "2.5", "--seconds", "1.2"]
            found = judged(out, name, flags, words, end)
            found["truth"] = truth_of(script)
            found["first_is_right"] = found["findings"][:1] == [found["truth"]]
            report["workloads"][name] = found
            save(out, report)
    report["overhead"] = overhead(out, end)
    save(out, report)
    bundle(out)
    verdict(report)
    return 0


def judged(out: Path, name: str, flags: list[str], words: list[str], end: float) -> dict:
    """One program under ``pinchpoint run``, and what its folder holds."""
    folder = out / "runs" / name
    command = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder), "--no-diagnose"]
    begun = time.monotonic()
    done = started(command + flags + words, end)
    found: dict = {
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "stdout_tail": done.stdout[-500:],
        "stderr_tail": done.stderr[-1500:],
        "missing": [part for part in PARTS if not (folder / part).exists()],
        "findings": [],
    }
    for part in ("run.json", "metrics.json"):
        if (folder / part).exists():
            found[part] = json.loads((folder / part).read_text())
    found |= diagnosed(folder, end)
    return found


def diagnosed(folder: Path, end: float) -> dict:
    """The ids that ``pinchpoint diagnose`` gives for a run folder, and the step it believes in."""
    done = started([sys.executable, "-m", "pinchpoint", "diagnose", str(folder), "--json"], end)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"diagnose_exit": done.returncode, "diagnose_stderr": done.stderr[-500:]}
    return {
        "diagnose_exit": done.returncode,
        "verdict": report["verdict"],
        "steps": {k: v for k, v in report["steps"].items() if k != "duration_ns"},
        "health": report["health"],
        "findings": [f["id"] for f in report["findings"]],
        "first": report["findings"][:1],
        "crashed": report.get("crashed"),
    }


def started(command: list[str], end: float) -> subprocess.CompletedProcess:
    """Run a command with Pinchpoint importable, for no longer than is left."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    limit = max(min(90.0, end - time.monotonic()), 5.0)
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, 124, out, err + "\ntimed out")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def truth_of(script: Path) -> str:
    """The cause that a workload's first line names."""
    match = re.match(r"# Ground truth:\s*(\S+)", script.read_text())
    return match[1] if match else ""


def overhead(out: Path, end: float) -> dict:
    """Step times without and with hooks, in pairs whose order alternates."""
    script = str(out / "plain.py")
    times: dict[str, list[float]] = {"plain": [], "hooks": []}
    pair = 0
    while time.monotonic() < end - 20 and pair < 6:
        for arm in ("plain", "hooks") if pair % 2 == 0 else ("hooks", "plain"):
            folder = str(out / "runs" / f"overhead-{pair}")
            hooks = ["-m", "pinchpoint", "run", "--hooks-only", "-o", folder]
            command = [sys.executable, *(hooks if arm == "hooks" else []), script, "400"]
            match = re.search(r"STEP_MS ([\d.]+)", started(command, end).stdout)
            if match:
                times[arm].append(float(match[1]))
        pair += 1
    if not times["plain"] or not times["hooks"]:
        return {"pairs": pair, "ratio": None}
    plain, hooks = (statistics.median(times[arm]) for arm in ("plain", "hooks"))
    return {"pairs": pair, "ms": times, "ratio": round(hooks / plain, 4)}


def save(out: Path, report: dict) -> None:
    """Keep what is known so far."""
    (out / "verify.json").write_text(json.dumps(report, indent=1))


def bundle(out: Path) -> None:
    """Keep what was run, without the programs that this file holds anyway."""
    bundle_runs(out)
    for script in PROGRAMS:
        (out / f"{script}.py").unlink()


def bundle_runs(out: Path) -> None:
    """One archive of all run folders, smallest files first, as far as they fit."""
    files = [p for p in (out / "runs").rglob("*") if p.is_file()]
    left = BUNDLE_BYTES
    with tarfile.open(out / "runs.tar.gz", "w:gz") as archive:
        for path in sorted(files, key=lambda p: p.stat().st_size):
            left -= path.stat().st_size
            if left < 0:
                break
            archive.add(path, path.relative_to(out))
    shutil.rmtree(out / "runs")


def verdict(report: dict) -> None:
    """A short table for a person."""
    for name, found in report["programs"].items():
        run = found.get("run.json", {})
        print(
            f"{name:26} exit {found['exit_code']} missing {found['missing']} "
            f"recordings {len(run.get('recordings', []))} problems {run.get('problems')} "
            f"findings {found['findings'][:3]}"
        )
    for name, found in report["workloads"].items():
        mark = "right" if found["first_is_right"] else "WRONG"
        print(f"{mark} {name:26} wanted {found['truth']:22} got {found['findings'][:3]}")
    right = sum(found["first_is_right"] for found in report["workloads"].values())
    print(f"{right} of {len(report['workloads'])} right; overhead {report['overhead']}")


if __name__ == "__main__":
    raise SystemExit(main())
