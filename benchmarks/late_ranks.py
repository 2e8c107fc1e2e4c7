"""Two ranks over gloo, one of them late by a planted time: is it named, and nobody where nobody is?

    python benchmarks/late_ranks.py [--trials 5] [--steps 300] [--late-ms 20] [--json FILE]

Records a small model under DistributedDataParallel with ``pinchpoint run``, on this machine as busy
as it is: with rank 1 asleep for so long in each step, computing for so long, and neither. Prints of
each trial what ``pinchpoint ranks`` says of late ranks, and in the end how often the planted rank
was named and how often a rank was blamed without a cause. Needs torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

KINDS = ("asleep", "computing", "neither")
RULES = ("straggler-rank", "rank0-stall")
SECONDS = 300  # of one trial, at most


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--late-ms", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        kind, late_ms, steps = options.program
        program(kind, float(late_ms), int(steps))
        return
    counts = {kind: Counter[str]() for kind in KINDS}
    print("| planted | load | said | of it, ms a step |")
    print("|---|---:|---|---:|", flush=True)
    for _ in range(options.trials):
        for kind in KINDS:
            load = os.getloadavg()[0]
            outcome, said, ms = _trial(kind, options.late_ms, options.steps)
            counts[kind][outcome] += 1
            print(f"| {kind} | {load:.0f} | {said} | {ms} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(counts, indent=1))
    print(json.dumps(counts))


def _trial(kind: str, late_ms: float, steps: int) -> tuple[str, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        rank = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        words = [__file__, "--program", kind, str(late_ms), str(steps)]
        run = ["run", "--ranks", "all", "--no-diagnose", "-o", str(out), *rank, *words]
        recorded = _pinchpoint(run)
        done = _pinchpoint(["ranks", str(out), "--json"])
    if not done.stdout:
        print(recorded.stderr, file=sys.stderr)
        return "no answer", f"run ended with {recorded.returncode}", "-"
    answer = json.loads(done.stdout)
    found = next((f for f in answer["findings"] if f["id"] in RULES), None)
    if found is None:
        unsure = any(item["id"] == RULES[0] for item in answer["not_checked"])
        return ("not told",) * 2 + ("-",) if unsure else ("nobody", "nobody", "-")
    name = "planted" if kind != "neither" and "ank 1 " in found["summary"] else "blamed"
    return name, found["summary"][:90], f"{found['cost_ns_per_step'] / 1e6:.1f}"


def _pinchpoint(words: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pinchpoint", *words]
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment
    )


def program(kind: str, late_ms: float, steps: int) -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(64, 256)
    late = kind if dist.get_rank() == 1 else "neither"
    for _ in range(steps):
        prepare(late, late_ms / 1e3)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


def prepare(kind: str, late_s: float) -> None:
    """What a rank does before its step."""
    if kind == "asleep":
        time.sleep(late_s)
    elif kind == "computing":
        end = time.thread_time() + late_s
        while time.thread_time() < end:
            sum(range(1000))


if __name__ == "__main__":
    main()
