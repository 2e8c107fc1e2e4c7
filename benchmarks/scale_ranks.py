"""How does `pinchpoint ranks` grow with the number of ranks? Made-up jobs, measured.

    python benchmarks/scale_ranks.py [--ranks 128 256 512 1024] [--merge 2048 8192] [--json OUT]

For each job: wall time, the most memory that the driver held (its workers left out), the time of
the reduce alone, the size of the records, and whether every culprit was found. With ``--merge``
the records of 128 ranks are repeated under other numbers: the memory that merging so many takes.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from make_ranks import Truth, write
from pinchpoint.jobs.run import write_shard

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


_MERGE = """
import json, resource, sys
from pathlib import Path
import pinchpoint.jobs.run as job

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

empty = most()
report = job.merge_parts([Path(sys.argv[1])])
print(json.dumps({"empty_bytes": empty, "driver_bytes": most(), "ranks": report.job.ranks}))
"""


def merged(counts: list[int]) -> list[dict[str, Any]]:
    """Merging that many ranks: memory of the driver, and what each rank more takes of it."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        place, small = Path(scratch), Path(scratch) / "128.part"
        write(place / "job", 128)
        write_shard([place / "job"], (1, 1), small)
        head, *records = small.read_text().splitlines()
        for count in counts:
            part = place / f"{count}.part"
            with part.open("w") as file:
                file.write(json.dumps(json.loads(head) | {"files": count}) + "\n")
                for rank in range(count):
                    file.write(_as_rank(records[rank % len(records)], rank, count) + "\n")
            done = subprocess.run(
                [sys.executable, "-c", _MERGE, part], capture_output=True, text=True, check=True
            )
            row = json.loads(done.stdout)
            if rows:
                more = row["driver_bytes"] - rows[-1]["driver_bytes"]
                row["bytes_a_rank_more"] = round(more / (row["ranks"] - rows[-1]["ranks"]))
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def _as_rank(record: str, rank: int, world: int) -> str:
    """A record under another number, in a world of another size."""
    renamed = re.sub(r"rank\d+_trace", f"rank{rank}_trace", record, count=1)
    renamed = re.sub(r'"rank":\d+', f'"rank":{rank}', renamed)
    return renamed.replace('"world_size":128', f'"world_size":{world}')


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
    parser.add_argument("--ranks", type=int, nargs="*", default=[128, 256, 512, 1024])
    parser.add_argument("--merge", type=int, nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for ranks in options.ranks:
        rows.append(measure(ranks))
        print(json.dumps(rows[-1]), flush=True)
    rows += merged(options.merge) if options.merge else []
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
