"""A/A and planted slow-downs on a real machine: does ``bench ab`` keep its promise here?

    python benchmarks/aa.py sleep --comparisons 20
    python benchmarks/aa.py gpu --comparisons 20

Each comparison is a whole session: warm-up runs, interleaved pairs in fresh processes, looks, a
verdict. First identical commands (no ``regressed`` may come out), then B with 5 % more of the work
(all must be found). ``sleep`` waits, ``cpu`` adds numbers, ``gpu`` multiplies matrices with
torch and has 5 % more products of the same kernel.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pinchpoint.bench.ab import AbPlan, run_ab
from pinchpoint.bench.ab_result import AbResult
from pinchpoint.bench.measurement import measurement
from pinchpoint.bench.run import Arm, RunOptions
from pinchpoint.bench.timed import TimingRules

PLANTED = 0.05
PROGRAMS = {
    "sleep": """
import sys, time, pinchpoint_step_recorder as r
for _ in range(40):
    time.sleep(0.004 * float(sys.argv[1])); r.mark()
""",
    "cpu": """
import sys, pinchpoint_step_recorder as r
for _ in range(40):
    sum(range(int(100_000 * float(sys.argv[1])))); r.mark()
""",
    "gpu": """
import sys, torch, pinchpoint_step_recorder as r
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for _ in range(150):
    for _ in range(int(20 * float(sys.argv[1]))):
        torch.mm(x, x)
    r.mark()
""",
}


def compare(program: str, work_b: float, pairs: int, folder: Path, *, first: bool) -> AbResult:
    """One session of the program against itself, B with this much of A's work.

    File caches are warm after the ``first`` one.
    """
    arms = [
        Arm(name, (sys.executable, "-c", PROGRAMS[program], str(work)))
        for name, work in (("A", 1.0), ("B", work_b))
    ]
    with measurement("ab", {"program": program}, folder) as session:
        timing = TimingRules(warmup_steps=10)
        options = session.options(RunOptions(program, timing=timing, timeout_s=60))
        plan = AbPlan(*arms, options, most_pairs=pairs, warmup_runs=int(first))
        result = run_ab(plan, session.session, lambda text: None, warnings=session.warnings)
        session.finish(result, verdict=result.verdict)
    return result


def series(
    program: str, work_b: float, comparisons: int, pairs: int, folder: Path
) -> dict[str, object]:
    """Verdicts of many sessions, and the noise that they saw."""
    results = []
    for i in range(comparisons):
        where = folder / f"{work_b:g}-{i:02d}"
        results.append(compare(program, work_b, pairs, where, first=i == 0))
        print(f"{program} x {work_b:g}: {results[-1].verdict} ({results[-1].why})", flush=True)
    step = [m for r in results for m in r.measures if m.name == "step_time_ms"]
    return {
        "verdicts": dict(Counter(r.verdict for r in results)),
        "pairs": [r.pairs_measured for r in results],
        "sd_of_a_pair": sorted(round(m.sd_pair_log or 0.0, 5) for m in step)[len(step) // 2],
        "estimates": [round(m.estimate_ratio, 4) for m in step],
    }


def main() -> None:
    """Run and print both series."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--planted", type=int, default=5, help="comparisons with 5 %% more work")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begin, load = time.time(), os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        same = series(options.program, 1.0, options.comparisons, options.pairs, where)
        slower = series(options.program, 1 + PLANTED, options.planted, options.pairs, where)
    result = {
        "program": options.program,
        "identical": same,
        "five_percent_slower": slower,
        "load_before_and_after": [load, os.getloadavg()],
        "seconds": round(time.time() - begin),
    }
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
