"""A/A and planted slow-downs on a real machine: does ``bench ab`` keep its promise here?

    python benchmarks/aa.py sleep --comparisons 20
    python benchmarks/aa.py gpu --comparisons 20 --seconds 170 --json aa.json

Each comparison is a whole session: interleaved pairs in fresh processes, looks, a verdict. First
identical commands (no ``regressed`` may come out), then B with 5 % more of the work (all must be
found). ``sleep`` waits, ``cpu`` adds numbers, ``gpu`` multiplies matrices with torch, and its B
either pauses for 5 % of a step or has products with a 5 % longer inner dimension.

The processes of ``gpu`` are forked from one that has imported torch and touched no device, so that
hundreds of them fit into minutes: each has its own CUDA context, allocator and kernels.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forked_programs import CLIENT, forking_server
from pinchpoint.bench.ab import AbPlan, run_ab
from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.folders import write_atomic
from pinchpoint.bench.measurement import measurement
from pinchpoint.bench.run import Arm, RunOptions
from pinchpoint.bench.run.timed import TimingRules

SLOWER = "1.05"
PROGRAMS = {
    "sleep": """
import sys, time
from pinchpoint.inside import step_recorder as r
for _ in range(40):
    time.sleep(0.004 * float(sys.argv[1])); r.mark()
""",
    "cpu": """
import sys
from pinchpoint.inside import step_recorder as r
for _ in range(40):
    sum(range(int(100_000 * float(sys.argv[1])))); r.mark()
""",
    "gpu": """
import sys, time, torch
from pinchpoint.inside import step_recorder as r
inner = 4304 if sys.argv[1] == "kernel" else 4096
pause = 0.05 if sys.argv[1] == "sleep" else 0.0
x = torch.randn(4096, inner, device="cuda", dtype=torch.bfloat16)
for _ in range(70):
    begin = time.perf_counter()
    for _ in range(20):
        torch.mm(x, x.T)
    torch.cuda.synchronize()
    now = time.perf_counter()
    end = now + pause * (now - begin)
    while time.perf_counter() < end:
        pass
    r.mark()
""",
}
PLANTED = {"sleep": (SLOWER,), "cpu": (SLOWER,), "gpu": ("kernel", "sleep")}


@dataclass
class Series:
    """Sessions with one kind of B."""

    planted: str
    results: list[AbResult] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """Verdicts, and the noise that they saw."""
        step = [m for r in self.results for m in r.measures if m.name == "step_time_ms"]
        noise = sorted(m.sd_pair_log or 0.0 for m in step)
        return {
            "verdicts": dict(Counter(r.verdict for r in self.results)),
            "pairs": [r.pairs_measured for r in self.results],
            "sd_of_a_pair": round(noise[len(noise) // 2], 5) if noise else None,
            "estimates": [round(m.estimate_ratio, 4) for m in step],
        }


def command(program: str, work: str, server: Path | None) -> tuple[str, ...]:
    """One run: a new interpreter, or a fork of the one behind ``server``."""
    code = PROGRAMS[program]
    if server is None:
        return (sys.executable, "-c", code, work)
    return (sys.executable, "-S", "-c", CLIENT, str(server), code, work)


def compare(
    program: str, work_b: str, pairs: int, folder: Path, server: Path | None, *, first: bool
) -> AbResult:
    """One session of the program against itself, B with this much of A's work.

    File caches are warm after the ``first`` one.
    """
    arms = [Arm(name, command(program, work, server)) for name, work in (("A", "1"), ("B", work_b))]
    with measurement("ab", {"program": program}, folder) as session:
        timing = TimingRules(warmup_steps=10)
        options = session.options(RunOptions(program, timing=timing, timeout_s=60))
        plan = AbPlan(*arms, options, most_pairs=pairs, warmup_runs=int(first))
        result = run_ab(plan, session.session, lambda text: None, warnings=session.warnings)
        session.finish(result, verdict=result.verdict)
    return result


def sessions(options: argparse.Namespace) -> Iterator[str]:
    """What B does in each session, in order: planted ones spread among the identical ones."""
    kinds = PLANTED[options.program]
    every = max(1, options.comparisons // max(1, options.planted * len(kinds)))
    left = [kind for _ in range(options.planted) for kind in kinds]
    for i in range(options.comparisons):
        yield "1"
        if (i + 1) % every == 0 and left:
            yield left.pop(0)
    yield from left


def measure(options: argparse.Namespace, server: Path | None) -> None:
    """All sessions, until the time is up; what is known so far is written after each."""
    found: dict[str, Series] = {}
    begin, load = time.time(), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        for i, work in enumerate(sessions(options)):
            if options.seconds and time.time() - begin > options.seconds:
                print("time is up", flush=True)
                break
            where = Path(folder) / f"{i:03d}"
            result = compare(options.program, work, options.pairs, where, server, first=i == 0)
            found.setdefault(work, Series(work)).results.append(result)
            took = f"{time.time() - begin:.0f} s"
            print(f"{took} {options.program} {work}: {result.verdict} ({result.why})", flush=True)
            if options.json:
                so_far = summary(options.program, found, load, time.time() - begin)
                write_atomic(options.json, json.dumps(so_far, indent=1).encode() + b"\n")
    print(json.dumps(summary(options.program, found, load, time.time() - begin)))


def summary(
    program: str, found: dict[str, Series], load: tuple[float, ...], seconds: float
) -> dict[str, object]:
    """Everything, for JSON."""
    planted = {kind: series.summary() for kind, series in found.items() if kind != "1"}
    return {
        "program": program,
        "identical": found.get("1", Series("1")).summary(),
        "five_percent_slower": planted,
        "load_before_and_after": [load, os.getloadavg()],
        "seconds": round(seconds),
    }


@contextmanager
def server_for(program: str) -> Iterator[Path | None]:
    """The process to fork from, where importing takes longer than measuring."""
    if program != "gpu":
        yield None
        return
    with forking_server("import torch") as path:
        yield path


def main() -> None:
    """Run and print the series."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--planted", type=int, default=4, help="comparisons of each kind of B")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, help="begin no comparison after that long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        with server_for(options.program) as server:
            measure(options, server)
    except KeyboardInterrupt:
        raise SystemExit("ended early; the comparisons so far are in the JSON file") from None


if __name__ == "__main__":
    main()
