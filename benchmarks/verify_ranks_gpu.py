"""Checks ``pinchpoint run`` and ``pinchpoint ranks`` on two GPUs, in under five minutes.

    python benchmarks/verify_ranks_gpu.py OUT [--workloads FOLDER] [--seconds 240]

First a program that times its own all-reduces of 1 GiB with CUDA events and nccl-tests' formula
(bus bandwidth = bytes / time × 2(n-1)/n), against the bandwidth that ``pinchpoint ranks`` finds in
its recordings. Then distributed workloads with a known cause, each a script whose first comment
line names it, started with ``torchrun`` or ``-m torch.distributed.run`` in turn: is it the first
finding? Everything seen goes to ``OUT/verify.json``, the answers to ``OUT/answers.tar.gz``, and
what fits of the run folders to ``OUT/runs.tar.gz``. Without a GPU all of it runs over gloo, small.
"""

import argparse
import json
import re
import shutil
import sys
import tarfile
import time
from pathlib import Path

from verify_capture_gpu import bundle_runs, save, started, truth_of

RANKS = 2
CASE_SECONDS = 25  # what one more workload may take
WORST_BANDWIDTH_ERROR = 0.05
# Variant, steps that fill about ten seconds on H100s, and seconds to record. Most telling first;
# the last one has no optimizer, so that its micro-steps cannot be told from steps.
WORKLOADS = (
    ("c56_straggler_rank", "slow", 700, "1"),
    ("c58_nccl_slow_transport", "slow", 230, "2"),
    ("c55_comm_not_overlapped", "slow", 240, "0.6"),
    ("h08_healthy_ddp", "healthy", 150, "0.6"),
    ("c54_small_collectives", "slow", 250, "0.6"),
    ("c56_straggler_rank", "fixed", 1000, "1"),
    ("c53_ddp_sync_every_microstep", "slow", 90, "0.6"),
)
# Here the planted cause is worth so little on H100s that no finding is right as well.
OR_NOTHING = ("c55_comm_not_overlapped",)
FLAGS = ["--ranks", "all", "--no-diagnose", "--after-seconds", "2.5"]

ALL_REDUCE = """
import json, os, statistics, sys
import torch
import torch.distributed as dist

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(rank)
dist.init_process_group("nccl" if cuda else "gloo")
where = f"cuda:{rank}" if cuda else "cpu"
elements = (1 << 30) // 4 if cuda else 1 << 18
message = torch.ones(elements, device=where)
weight = torch.zeros(8, device=where, requires_grad=True)
weight.grad = torch.ones_like(weight)
optimizer = torch.optim.SGD([weight], lr=0.0)
steps, calls = int(sys.argv[1]), 4
event = lambda: torch.cuda.Event(enable_timing=True)
marks = [(event(), event()) for _ in range(steps)] if cuda else []
for step in range(steps):
    if cuda:
        marks[step][0].record()
    for _ in range(calls):
        dist.all_reduce(message, op=dist.ReduceOp.MAX)
    if cuda:
        marks[step][1].record()
    optimizer.step()
    if step % 20 == 19 and cuda:
        torch.cuda.synchronize()
if cuda:
    torch.cuda.synchronize()
    seconds = [a.elapsed_time(b) / 1e3 / calls for a, b in marks[20:]]
    rates = sorted(4 * elements / s * 2 * (n - 1) / n for s in seconds)
    at = lambda q: rates[int(q * (len(rates) - 1))]
    if rank == 0:
        print("BUS " + json.dumps({"bytes": 4 * elements, "median": statistics.median(rates),
                                   "p10": at(0.1), "p90": at(0.9), "steps": len(rates)}))
dist.barrier()
dist.destroy_process_group()
"""


def main() -> int:
    """The bandwidth, then the workloads."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workloads", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    out = options.out.resolve()
    (out / "runs").mkdir(parents=True)
    (out / "answers").mkdir()
    report: dict = {"machine": machine(), "workloads": {}}
    report["all_reduce"] = bandwidth(out, end)
    save(out, report)
    for name, variant, steps, seconds in WORKLOADS if options.workloads else ():
        script = options.workloads / f"{name}.py"
        if time.monotonic() > end - CASE_SECONDS or not script.exists():
            continue
        words = [str(script), "--variant", variant, "--steps", str(steps)]
        spelt = len(report["workloads"]) % 2 == 0
        record = ["--seconds", seconds, *launcher(spelt)]
        found = judged(out, f"{name}.{variant}", record + words, end)
        found["truth"] = truth_of(script) if variant == "slow" else "healthy"
        wanted = [[] if found["truth"] == "healthy" else [found["truth"]]]
        wanted += [[]] if name in OR_NOTHING else []
        found["first_is_right"] = found.get("findings", ["no answer"])[:1] in wanted
        report["workloads"][f"{name}.{variant}"] = found
        save(out, report)
    pack(out)
    verdict(report)
    return 0


def machine() -> dict:
    """What the figures were measured on."""
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"devices": names, "torch": torch.__version__, "cuda": torch.version.cuda}


def launcher(spelt: bool) -> list[str]:
    """The two ways in which people start a job."""
    options = ["--standalone", f"--nproc-per-node={RANKS}"]
    if not spelt and shutil.which("torchrun"):
        return ["torchrun", *options]
    return ["-m", "torch.distributed.run", *options]


def judged(out: Path, name: str, words: list[str], end: float) -> dict:
    """One job under ``pinchpoint run``, and what ``pinchpoint ranks`` says about its folder."""
    folder = out / "runs" / name
    python = [sys.executable, "-m", "pinchpoint"]
    begun = time.monotonic()
    done = started([*python, "run", "-o", str(folder), *FLAGS, *words], end)
    ran = time.monotonic()
    said = started([*python, "ranks", str(folder), "--json"], end)
    found: dict = {
        "command": words,
        "exit_code": done.returncode,
        "run_seconds": round(ran - begun, 1),
        "ranks_seconds": round(time.monotonic() - ran, 1),
        "ranks_exit": said.returncode,
        "stdout_tail": done.stdout[-800:],
        "stderr_tail": done.stderr[-1500:],
        "ranks_stderr_tail": said.stderr[-800:],
        "files": {p.name: p.stat().st_size for p in sorted(folder.rglob("*.json*"))},
    }
    try:
        answer = json.loads(said.stdout)
    except ValueError:
        return found
    (out / "answers" / f"{name}.json").write_text(said.stdout)
    shown = started([*python, "ranks", str(folder), "--verbose"], end)
    (out / "answers" / f"{name}.txt").write_text(shown.stdout)
    return found | {
        "findings": [f["id"] for f in answer["findings"]],
        "verdict": answer["verdict"],
        "job": {k: answer["job"][k] for k in ("ranks", "world_size", "missing", "unreadable")},
        "clocks": answer["clocks"],
        "steps": {k: v for k, v in answer["steps"].items() if k != "duration_ns"},
        "what_if": answer["what_if"],
        "stragglers": answer["stragglers"],
        "first": answer["findings"][:1],
    }


def bandwidth(out: Path, end: float) -> dict:
    """The program's own figure for a large all-reduce beside the one of its recordings."""
    script = out / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    found = judged(out, "all_reduce", [*launcher(True), str(script), "800"], end)
    script.unlink()
    match = re.search(r"BUS (\{.*\})", found["stdout_tail"])
    found["own"] = json.loads(match[1]) if match else None
    found["reported"] = largest_message(out / "answers" / "all_reduce.json")
    if found["own"] and found["reported"]:
        found["error_ratio"] = round(found["reported"]["busbw"] / found["own"]["median"] - 1, 4)
        found["within_bounds"] = abs(found["error_ratio"]) <= WORST_BANDWIDTH_ERROR
    return found


def largest_message(answer: Path) -> dict | None:
    """The row of the table of collectives with the largest message."""
    if not answer.exists():
        return None
    table = json.loads(answer.read_text())["tables"]["collectives"]
    names = [column["id"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    rows = [row for row in rows if row["bytes"] and row["busbw"]]
    return max(rows, key=lambda row: row["bytes"], default=None)


def pack(out: Path) -> None:
    """Two archives instead of many files."""
    with tarfile.open(out / "answers.tar.gz", "w:gz") as archive:
        archive.add(out / "answers", "answers")
    shutil.rmtree(out / "answers")
    bundle_runs(out)


def verdict(report: dict) -> None:
    """A short table for a person."""
    link = report["all_reduce"]
    print(f"bus bandwidth: own {link['own']} reported {link['reported']}")
    print(f"error {link.get('error_ratio')} within bounds {link.get('within_bounds')}")
    for name, found in report["workloads"].items():
        mark = "right" if found["first_is_right"] else "WRONG"
        print(f"{mark} {name:36} wanted {found['truth']:26} got {found.get('findings')}")
    right = sum(found["first_is_right"] for found in report["workloads"].values())
    print(f"{right} of {len(report['workloads'])} right")


if __name__ == "__main__":
    raise SystemExit(main())
