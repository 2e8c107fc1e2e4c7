"""Checks ``pinchpoint run`` on a machine with GPUs, in about eight minutes on two of them.

    python benchmarks/verify_capture_gpu.py OUT [--workloads FOLDER] [--seconds 480]
        [--only PARTS] [--names c01,c05]

Parts: ``programs``, unchanged ones (plain, loader workers, bf16, torch.compile, CUDA graphs), each
of which must give a recording with kernels; ``workloads`` with a known cause, each a script whose
first comment line names it, which must be the first finding; ``extras``, every option at once,
``attach``, ``watch``, ``ncu``, ``monitor``, ``doctor``; ``ranks``, a job of two ranks; and
``overhead``, the step time with hooks only against without Pinchpoint, in interleaved runs. Each
GPU works through the first three on its own; the last two have the machine to themselves.

Everything seen goes to ``OUT/verify.json``, the list of checks to ``OUT/checks.txt``, and the run
folders, as far as they fit into 15 MB, to ``OUT/runs.tar.gz``. What no longer fits into the seconds
is left out. Exit code 1 if a check failed.
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
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from _capture_programs import EXTRAS, PROGRAMS

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
PINCHPOINT = [sys.executable, "-m", "pinchpoint"]
BUNDLE_BYTES = 15_000_000
OVERHEAD_SECONDS = 75  # kept for the last part
CASE_SECONDS = 24  # what one more case may take
ALL_PARTS = ("programs", "workloads", "extras", "ranks", "overhead")
PARTS = ("run.json", "metrics.json", "env.json", "telemetry.csv", "traces", "processes")
EVERYTHING = ["--stacks", "--shapes", "--memory", "--modules", "--flops", "--snapshot", "--nvtx"]
TIMES, NAMES = ("times", "early"), ("names", "rare")  # windows of a run, by what is read from them
RIGHT_WORKLOADS, HIGHEST_OVERHEAD = 10, 1.01


@dataclass(frozen=True)
class Timing:
    """When to record a workload, and how long it may run."""

    after_s: float = 2.5
    most_s: int = 6
    after_steps: int | None = None  # where a loader divides the program


BY_LOADER = Timing(most_s=18, after_steps=3)
# Causes that a live run must be able to show, most telling first.
WORKLOADS = {
    "c16_sync_in_loop": Timing(),
    "c01_dataloader_starved": BY_LOADER,
    "c12_pageable_h2d": Timing(),
    "c34_no_tensor_cores": Timing(),
    "c19_launch_blocking_env": Timing(),
    "c10_cpu_limited": Timing(),
    "c27_launch_bound": Timing(),
    "c28_unfused_optimizer": Timing(),
    "c15_fp64_by_accident": Timing(),
    "c61_gpu_contention": Timing(after_s=11.0),  # its second process takes eight seconds to start
    "c39_unfused_attention": Timing(),
    "c23_per_param_sync": Timing(),
    "c05_worker_respawn": BY_LOADER,
    "c35_no_mixed_precision": Timing(),
    "c18_explicit_synchronize": Timing(),
    "c02_slow_transform": BY_LOADER,
}


Job = Callable[[str | None], None]  # told the number of its device


class Run:
    """What all parts share: the folder, the time that is left, and what was seen."""

    def __init__(self, out: Path, seconds: float, names: str) -> None:
        self.out, self.end = out, time.monotonic() + seconds
        self.kept_s = 0  # for the last part
        self.names = tuple(names.split(","))  # beginnings of the workloads to run
        self.report: dict = {"programs": {}, "workloads": {}, "extras": {}, "checks": []}
        self.lock = threading.Lock()
        self.diagnosing = ThreadPoolExecutor(4)

    def left(self, seconds: float) -> bool:
        """Whether so many seconds are left before the last part."""
        return time.monotonic() < self.end - self.kept_s - seconds

    def check(self, name: str, ok: bool, detail: object = "") -> None:
        """One thing that was looked at."""
        with self.lock:
            self.report["checks"].append(
                {"name": name, "ok": bool(ok), "detail": str(detail)[:300]}
            )
            print("ok    " if ok else "FAILED", name, str(detail)[:160], flush=True)

    def keep(self, part: str, name: str, found: object) -> None:
        """Note what was seen, at once."""
        with self.lock:
            self.report[part][name] = found
            save(self.out, self.report)


def main() -> int:
    """Run the parts; those on different devices beside one another."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workloads", type=Path)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--names", default="")
    parser.add_argument("--only", default=",".join(ALL_PARTS))
    options = parser.parse_args()
    run = Run(options.out.resolve(), options.seconds, options.names)
    (run.out / "runs").mkdir(parents=True)
    for name, source in (PROGRAMS | EXTRAS).items():
        (run.out / f"{name}.py").write_text(source)
    devices = devices_here()
    parts = options.only.split(",")
    run.kept_s = OVERHEAD_SECONDS if "overhead" in parts else 0
    work_through(run, jobs(run, parts, options.workloads, bool(devices)), devices or [None])
    if "ranks" in parts and len(devices) > 1:
        ranks(run)
    if "overhead" in parts:
        run.keep("extras", "overhead", overhead(run, devices[0] if devices else None))
    run.diagnosing.shutdown()
    judge(run, parts)
    save(run.out, run.report)
    bundle(run.out)
    return finish(run)


def devices_here() -> list[str]:
    """Numbers of the GPUs, as text."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^GPU (\d+):", done.stdout, re.M)


def jobs(run: Run, parts: list[str], folder: Path | None, gpu: bool) -> list[Job]:
    """What can be done in any order on any one device, most telling first."""
    found: list[Job] = []
    if "programs" in parts:
        found += [partial(program, run, name) for name in PROGRAMS if gpu or "graph" not in name]
    if "workloads" in parts and folder is not None:
        scripts = [folder / f"{name}.py" for name in WORKLOADS if name.startswith(run.names)]
        found += [partial(workload, run, script) for script in scripts if script.exists()]
    if "extras" in parts:
        at = min(len(found), len(PROGRAMS) + RIGHT_WORKLOADS)
        found[at:at] = [partial(job, run) for job in (everything, attached, watched)]
    return found


def work_through(run: Run, waiting: list[Job], devices: list[str | None]) -> None:
    """Each device takes the next job, as long as there is time."""

    def lane(device: str | None) -> None:
        while waiting and run.left(CASE_SECONDS):
            waiting.pop(0)(device)

    with ThreadPoolExecutor(len(devices)) as lanes:
        for done in [lanes.submit(lane, device) for device in devices]:
            done.result()


def program(run: Run, name: str, device: str | None) -> None:
    """An unchanged program; it must give kernels and leave exit code and folder in order."""
    recorded(run, "programs", name, [], [str(run.out / f"{name}.py")], device)


def workload(run: Run, script: Path, device: str | None) -> None:
    """A program with a known cause, for some seconds."""
    when = WORKLOADS[script.stem]
    words = [str(script), "--variant", "slow", "--steps", "1000000"]
    words += ["--max-seconds", str(when.most_s)]
    flags = ["--stacks", "--shapes", "--after-seconds", str(when.after_s), "--seconds", "1.2"]
    if when.after_steps is not None:
        flags += ["--after-steps", str(when.after_steps)]
    recorded(run, "workloads", script.stem, flags, words, device, truth=truth_of(script))


def recorded(
    run: Run,
    part: str,
    name: str,
    flags: list[str],
    words: list[str],
    device: str | None,
    truth: str | None = None,
) -> Future:
    """One program under ``pinchpoint run``; its folder is diagnosed while the next one runs."""
    folder = run.out / "runs" / name
    command = [*PINCHPOINT, "run", "-o", str(folder), "--no-diagnose", *flags, *words]
    begun = time.monotonic()
    done = started(command, run.end, device)
    found: dict = {
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "stdout_tail": done.stdout[-500:],
        "stderr_tail": done.stderr[-1500:],
        "missing": [p for p in PARTS if not (folder / p).exists()],
        "findings": [],
        "truth": truth,
        "recordings": recordings_of(folder, TIMES),
        "named": recordings_of(folder, NAMES),
    }
    for document in ("run.json", "metrics.json"):
        if (folder / document).exists():
            found[document] = json.loads((folder / document).read_text())

    def diagnose() -> None:
        run.keep(part, name, found | diagnosed(folder, run.end))

    return run.diagnosing.submit(diagnose)


def recordings_of(folder: Path, windows: tuple[str, ...] = TIMES) -> list[dict]:
    """File, kernels, operators and steps of the recordings of these windows, by process."""
    found = []
    for path in sorted((folder / "processes").glob("rank*.json")):
        noted = json.loads(path.read_text())["recordings"]
        found += [note for note in noted if note.get("window", "times") in windows]
    return found


def diagnosed(folder: Path, end: float) -> dict:
    """The ids that ``pinchpoint diagnose`` gives for a run folder, and the step it believes in."""
    done = started([*PINCHPOINT, "diagnose", str(folder), "--json"], end + 60)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"diagnose_exit": done.returncode, "diagnose_stderr": done.stderr[-500:]}
    return {
        "diagnose_exit": done.returncode,
        "verdict": report["verdict"],
        "steps": {k: v for k, v in report["steps"].items() if k not in ("duration_ns", "outliers")},
        "health": report["health"],
        "findings": [f["id"] for f in report["findings"]],
        "first": report["findings"][:1],
        "crashed": report.get("crashed"),
    }


def everything(run: Run, device: str | None) -> None:
    """Every option at once; then the heaviest kernels of that run with ncu, and the doctor."""
    asked_once(run, "doctor", [*PINCHPOINT, "doctor", "--json"], device)
    recorded(run, "extras", "everything", EVERYTHING, [str(run.out / "plain.py"), "80"], device)
    if device is not None and run.left(CASE_SECONDS):
        folder = str(run.out / "runs/everything")
        asked_once(run, "ncu", [*PINCHPOINT, "ncu", folder, "--top", "2"], device)


def watched(run: Run, device: str | None) -> None:
    """The flight recorder around a program that becomes slower."""
    folder = run.out / "runs/watched"
    command = [sys.executable, str(run.out / "watched.py"), "0", str(folder)]
    done = started(command, run.end, device)
    seen = recordings_of(folder)
    run.keep("extras", "watched", {"stdout": done.stdout, "err": done.stderr[-800:], "seen": seen})
    kernels = seen[0]["kernels"] if seen else None
    run.check("watch records a slowdown", bool(kernels) or (device is None and seen), done.stdout)


def attached(run: Run, device: str | None) -> None:
    """A program that goes on: recorded once by itself, then twice on request."""
    folder = run.out / "runs/attached"
    words = [str(run.out / "endless.py"), "40"]
    command = [*PINCHPOINT, "run", "-o", str(folder), "--no-diagnose", *words]
    process = subprocess.Popen(
        command, env=environment(device), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    answers = []
    try:
        note = wait_for(lambda: first_note(folder, "done"), 40)
        asked_once(run, "monitor", [*PINCHPOINT, "monitor", "--once", "--json"], None)
        for _ in range(2 if note else 0):
            asked = [*PINCHPOINT, "attach", str(note["pid"]), "--timeout", "20"]
            done = started(asked, run.end)
            answers.append({"exit": done.returncode, "out": done.stdout, "err": done.stderr[-400:]})
        err = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        err = process.communicate()[1]
    seen = recordings_of(folder)
    run.keep("extras", "attached", {"answers": answers, "seen": seen, "err": err[-800:]})
    with_kernels = sum(bool(r["kernels"] if device is not None else r["operators"]) for r in seen)
    run.check(
        "attach, twice, after the first recording", with_kernels >= 3, f"{len(seen)} {answers}"
    )


def first_note(folder: Path, stage: str) -> dict | None:
    """What the first process noted, once it has come to this stage."""
    for path in (folder / "processes").glob("rank*.json"):
        note = json.loads(path.read_text())
        return note if note["stage"] == stage else None
    return None


def wait_for(answer: Callable[[], dict | None], seconds: float) -> dict | None:
    """The first answer that is not None, or None after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := answer()) is not None:
            return found
        time.sleep(0.3)
    return None


def asked_once(run: Run, name: str, command: list[str], device: str | None) -> None:
    """A command whose answer is kept as it is."""
    done = started(command, run.end, device)
    kept = {"exit": done.returncode, "out": done.stdout[-20_000:], "err": done.stderr[-1500:]}
    run.keep("extras", name, kept)
    refused = name == "ncu" and done.returncode == 2  # not installed or forbidden, and said so
    run.check(f"pinchpoint {name}", done.returncode == 0 or refused, done.stderr[-200:])


def ranks(run: Run) -> None:
    """Two ranks under torchrun through ``pinchpoint run``."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    recorded(run, "extras", "ranks", [], [*words, str(run.out / "ddp.py")], None).result()
    found = run.report["extras"]["ranks"]
    names = [r["file"] for r in found["recordings"]]
    wanted = ["rank00000of00002", "rank00001of00002"]
    complete = [str(name)[:16] for name in names] == wanted and not found["missing"]
    kernels = [r["kernels"] for r in found["recordings"]]
    run.check("two ranks: a recording each, rank in the name", complete, names)
    run.check("two ranks: kernels", len(kernels) == 2 and all(kernels), kernels)


def environment(device: str | None) -> dict[str, str]:
    """Ours, with Pinchpoint importable, and one device visible if named."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    one = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
    return {**os.environ, "PYTHONPATH": path, **one}


def started(
    command: list[str], end: float, device: str | None = None
) -> subprocess.CompletedProcess:
    """Run a command with Pinchpoint importable, for no longer than is left."""
    limit = max(min(90.0, end - time.monotonic()), 5.0)
    process = subprocess.Popen(
        command,
        env=environment(device),
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


def overhead(run: Run, device: str | None) -> dict:
    """Step times without and with hooks, in pairs whose order alternates."""
    script = str(run.out / "plain.py")
    times: dict[str, list[float]] = {"plain": [], "hooks": []}
    pair = 0
    while time.monotonic() < run.end - 22 and pair < 4:
        for arm in ("plain", "hooks") if pair % 2 == 0 else ("hooks", "plain"):
            folder = str(run.out / "runs" / f"overhead-{pair}")
            hooks = [*PINCHPOINT[1:], "run", "--hooks-only", "-o", folder]
            command = [sys.executable, *(hooks if arm == "hooks" else []), script, "250"]
            match = re.search(r"STEP_MS ([\d.]+)", started(command, run.end, device).stdout)
            if match:
                times[arm].append(float(match[1]))
        pair += 1
    if not times["plain"] or not times["hooks"]:
        return {"pairs": pair, "ratio": None}
    plain, hooks = (statistics.median(times[arm]) for arm in ("plain", "hooks"))
    return {"pairs": pair, "ms": times, "ratio": round(hooks / plain, 4)}


def judge(run: Run, parts: list[str]) -> None:
    """What the programs, the workloads and the step times must show."""
    for part in ("programs", "extras"):
        for name, found in run.report[part].items():
            if "recordings" in found and name != "ranks":
                judge_recorded(run, name, found)
    if "everything" in run.report["extras"] and devices_here():
        snapshots = list((run.out / "runs/everything/memory").glob("*"))
        run.check("everything: a memory snapshot", bool(snapshots), [p.name for p in snapshots])
    right = 0
    for name, found in run.report["workloads"].items():
        first = found["findings"][:1] == [found["truth"]]
        right += first
        print("right" if first else "WRONG", name, found["truth"], "->", found["findings"][:3])
    if total := len(run.report["workloads"]):
        enough = min(RIGHT_WORKLOADS, total)
        run.check("live workloads", right >= enough, f"{right} of {total} right at first")
    if "overhead" in parts:
        ratio = run.report["extras"]["overhead"]["ratio"]
        run.check(
            "hooks only", ratio is not None and ratio < HIGHEST_OVERHEAD, f"{ratio} of the step"
        )


def judge_recorded(run: Run, name: str, found: dict) -> None:
    """A program ends as it would alone, its folder is complete and its recording is not hollow."""
    kernels = [r["kernels"] for r in found["recordings"]]
    work = kernels if devices_here() else [r["operators"] for r in found["recordings"]]
    ok = found["exit_code"] == 0 and not found["missing"] and bool(work) and all(work)
    problems = found.get("run.json", {}).get("problems")
    if any(r["window"] == "times" for r in found["recordings"]):
        named = [r["operators"] for r in found["named"] if r["file"]]
        run.check(f"{name}: a window with names", any(named), named)
    run.check(name, ok, f"kernels {kernels}, problems {problems}, findings {found['findings'][:3]}")


def save(out: Path, report: dict) -> None:
    """Keep what is known so far."""
    (out / "verify.json").write_text(json.dumps(report, indent=1))


def bundle(out: Path) -> None:
    """Keep what was run, without the programs that this folder holds anyway."""
    bundle_runs(out)
    for script in PROGRAMS | EXTRAS:
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


def finish(run: Run) -> int:
    """Write the checks down; 1 if one of them failed."""
    checks = run.report["checks"]
    lines = [f"{'ok    ' if c['ok'] else 'FAILED'} {c['name']}: {c['detail']}" for c in checks]
    (run.out / "checks.txt").write_text("\n".join(lines) + "\n")
    failed = [c["name"] for c in checks if not c["ok"]]
    print(f"{len(checks) - len(failed)} of {len(checks)} checks ok; failed: {failed}")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
