"""How does `pinchpoint ranks` grow with the number of ranks? Made-up jobs, measured.

    python benchmarks/scale_ranks.py [--ranks 128 256 512 1024] [--json OUT]

For each job: wall time, the most memory that the driver held (its workers left out), the time of
the reduce alone, the size of the records, and whether every culprit was found.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_ranks import Truth, write

_RUN = """
import json, resource, sys, time
from pathlib import Path
import pinchpoint.jobs.run as job
from pinchpoint.report.documents.ranks import encode_ranks
from pinchpoint.report.html import render
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.jobs.parts import read_parts

if __name__ == "__main__":
    folder, part = sys.argv[1], Path(sys.argv[2])
    begin = time.monotonic()
    job.write_shard([folder], (1, 1), part)
    mapped = time.monotonic()
    report = job.report_on(read_parts([part]))
    done = time.monotonic()
    page = render(ranks_page(report, verbose=True, full=True))
    text = encode_ranks(report)
    Path(sys.argv[3]).write_bytes(text)
    print(json.dumps({
        "map_s": mapped - begin, "reduce_s": done - mapped, "page_bytes": len(page),
        "document_bytes": len(text), "records_bytes": part.stat().st_size,
        "driver_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))
"""


def measure(ranks: int) -> dict[str, object]:
    """One job, read in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        place = Path(scratch)
        truth = write(place / "job", ranks)
        files = list((place / "job").iterdir())
        script = place / "run.py"
        script.write_text(_RUN)
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, script, place / "job", place / "1.part", place / "report.json"],
            capture_output=True,
            text=True,
            check=True,
        )
        wall = time.monotonic() - begin
        report = json.loads((place / "report.json").read_text())
        return {
            "ranks": ranks,
            "files_bytes": sum(f.stat().st_size for f in files),
            "wall_s": round(wall, 2),
            "wall_ms_per_rank": round(1000 * wall / ranks, 2),
            "found": found(report, truth),
            **{k: round(v, 3) for k, v in json.loads(done.stdout).items()},
        }


def found(report: dict, truth: Truth) -> dict[str, bool]:
    """Whether each planted thing is named."""
    late = {s["rank"]: s for s in report["stragglers"]}
    doing = {rank: {d["subject"] for d in s["doing"]} for rank, s in late.items()}
    lost = {note["rank"] for note in report["job"]["unreadable"]}
    return {
        "only the two late ranks": set(late) == {truth.stalls, truth.slow},
        "loader": "data" in doing.get(truth.stalls, ()),
        "since": late.get(truth.stalls, {}).get("since_step") == 6,
        "slow device": "slow device" in doing.get(truth.slow, ()),
        "missing": truth.missing in report["job"]["missing"],
        "cut off": truth.cut in lost,
        "no recording": truth.garbage in lost,
        "clocks": (report["clocks"]["uncertainty_ns"] or 10**9) < 20_000,
    }


def main() -> None:
    """Measure and print one line a job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for ranks in options.ranks:
        rows.append(measure(ranks))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
