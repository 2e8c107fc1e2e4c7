"""Runs programs with known causes under ``pinchpoint run`` with default options; prints a table.

    python benchmarks/live.py                             six small programs on the CPU
    python benchmarks/live.py benchmarks/shape_programs   Trainer, Lightning, Ray, JAX, threads, …
    python benchmarks/live.py FOLDER --device cuda        all programs of a folder
    python benchmarks/live.py FOLDER --budget-seconds 540 --out OUT --variants slow fixed

These name the slow function in ``SLOW`` (``a|b``: either of two spellings), which counts as found
where the verdict or the first finding names it, and in ``LAUNCH`` what stands before the script.
Another folder has a
``truth.jsonl`` in or beside it, with ``case``, ``truth`` and ``variant`` (or
``variant_with_cause``). A truth that is the id of a rule is judged by it, "healthy" by no finding;
of one in words the row says what was found, for a person to judge. Its programs take ``--variant``,
``--device`` and ``--steps``.

What no longer fits into the budget is left out and said. ``--out`` keeps ``table.md``,
``results.jsonl`` and the run folders in archives of at most 15 MB, four at most; recordings that do
not fit are left out of them. A folder is diagnosed while the next program runs.
"""

import argparse
import ast
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.run_folder.documents import read as read_document
from pinchpoint.run_folder.layout import METRICS_FILE
from pinchpoint.run_folder.metrics import MetricsDocument, cost_of_ten_minutes, cost_ratio

SMALL = Path(__file__).parent / "live_programs"
LONGEST_S = 150.0  # of one program; the machine is somebody's
ARCHIVE_BYTES, ARCHIVES = 15_000_000, 4
HEAD = "| program | truth | recorded | cost here | cost of ten minutes | first finding | right |"
LINE = "|---|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Program:
    """What to run, and what should be found."""

    path: Path
    variant: str
    arguments: tuple[str, ...]
    truth: str
    by_place: bool
    launch: tuple[str, ...] = ()  # before the script: -m torch.distributed.run …

    @property
    def name(self) -> str:
        """Of its row and run folder."""
        return f"{self.path.stem}-{self.variant}" if self.variant else self.path.stem


@dataclass(frozen=True)
class Result:
    """What was recorded and said. None: not known."""

    name: str
    truth: str
    windows: str
    exit_code: int | None
    cost_ratio: float | None  # of this run: windows and samples
    long_cost_ratio: float | None  # the same windows and samples in a run of ten minutes
    findings: tuple[str, ...]  # first three: id and place
    said: str
    seconds: float
    right: str


def small(folder: Path, steps: int) -> Iterator[Program]:
    """Programs that say themselves what is slow in them."""
    for path in sorted(folder.glob("*.py")):
        said = {
            ast.unparse(node.targets[0]): node.value
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
        }
        slow, *launch = (ast.literal_eval(said[n]) for n in ("SLOW", "LAUNCH") if n in said)
        yield Program(path, "", (str(steps),), slow, True, *launch)


def of_folder(folder: Path, variants: list[str], device: str, steps: int) -> Iterator[Program]:
    """Programs of a folder whose truth is known; one without a cause has the variant "healthy".

    A variant that has no row of its own, such as "fixed", is healthy.
    """
    places = (folder / "truth.jsonl", folder.parent / "truth.jsonl")
    truth = next(place for place in places if place.exists())
    rows = [json.loads(line) for line in truth.read_text().splitlines() if line.strip()]
    known: dict[str, dict[str, str]] = {}
    for one in rows:
        of = one.get("variant") or one.get("variant_with_cause") or "healthy"
        known.setdefault(one["case"], {})[of] = one["truth"]
    for variant in (*variants, "healthy"):
        options = ("--variant", variant, "--device", device, "--steps", str(steps))
        for case, truths in sorted(known.items()):
            has = variant in truths or (variant == "fixed" and "healthy" not in truths)
            if has and (folder / f"{case}.py").exists():
                what = truths.get(variant, "healthy")
                what = "healthy" if what.startswith("healthy") else what
                yield Program(folder / f"{case}.py", variant, options, what, False)


def run(program: Program, home: Path) -> tuple[int | None, float]:
    """Record one program as a user would; its exit code, None if it took too long, and seconds."""
    command = [sys.executable, "-m", "pinchpoint", "run", "-o", str(home / program.name)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [
                *command,
                "--no-diff",
                "--no-diagnose",
                *program.launch,
                str(program.path),
                *program.arguments,
            ],
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        code: int | None = done.returncode
    except subprocess.TimeoutExpired:
        code = None
    return code, time.monotonic() - began


def read(program: Program, home: Path, code: int | None, seconds: float) -> Result:
    """Diagnose the folder as a user would, and judge the answer."""
    folder = home / program.name
    several = len(list((folder / "processes").glob("rank*.json"))) > 1
    what = "ranks" if several else "diagnose"  # as `run` itself says after the program
    command = [sys.executable, "-m", "pinchpoint", what, str(folder), "--json"]
    report = _report(command)
    found = report["findings"][:3]
    said = f"{report['verdict']} " + " ".join(f"{_place(f)} {f['summary']}" for f in found[:1])
    windows = _windows(folder)
    here, long = _costs(folder)
    findings = tuple(f"{f['id']} {_place(f)}".strip() for f in found)
    right = _right(program, [f["id"] for f in found], said, recorded=bool(windows))
    result = Result(
        program.name,
        program.truth,
        windows or "nothing",
        code,
        here,
        long,
        findings,
        said,
        round(seconds, 1),
        right,
    )
    print(row(result), flush=True)
    return result


def _report(command: list[str]) -> dict:
    """The document of a diagnosis; one with the reason as its verdict where there is none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        why = f"not diagnosed within {LONGEST_S:g} s"
    except ValueError:
        why = next(iter(done.stderr.strip().splitlines()), "nothing")
    return {"findings": [], "verdict": why}


def _place(finding: dict) -> str:
    at = finding.get("location") or {}
    return f"{at.get('function') or ''} ({at['file']}:{at['line']})" if at.get("file") else ""


def _windows(folder: Path) -> str:
    notes = (json.loads(p.read_text()) for p in sorted((folder / "processes").glob("rank*.json")))
    return "+".join(r["window"] for note in notes for r in note["recordings"] if r["file"])


def _costs(folder: Path) -> tuple[float | None, float | None]:
    """Share of this run that recording and sampling took, and of one of ten minutes."""
    try:
        metrics = read_document(folder / METRICS_FILE, MetricsDocument).document
    except UnreadableFile:
        return None, None
    return cost_ratio(metrics), cost_of_ten_minutes(metrics)


def _right(program: Program, ids: list[str], said: str, *, recorded: bool) -> str:
    """Whether the cause came first, among the first three, or not at all."""
    if program.by_place:
        return "yes" if any(place in said for place in program.truth.split("|")) else "no"
    if program.truth == "healthy":
        return ("no" if ids else "yes") if recorded else "unrecorded"
    if " " in program.truth:
        return "read it"
    if program.truth in ids:
        return "yes" if ids[0] == program.truth else "in three"
    return "no"


def row(result: Result) -> str:
    """One line of the table."""
    cells = (
        result.name,
        result.truth[:60],
        result.windows,
        _percent(result.cost_ratio),
        _percent(result.long_cost_ratio),
        (result.findings or ("nothing",))[0],
        result.right,
    )
    return f"| {' | '.join(cells)} |"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f} %"


def sums(results: list[Result], left_out: list[str]) -> str:
    """What the table says in all."""
    judged = [r for r in results if r.right != "read it"]
    first = sum(r.right == "yes" for r in judged)
    near = first + sum(r.right == "in three" for r in judged)
    cost = [r.long_cost_ratio for r in results if r.long_cost_ratio is not None]
    lines = [
        f"first right: {first} of {len(judged)}; in the first three: {near}",
        f"unrecorded: {sum(r.windows == 'nothing' for r in results)} of {len(results)}",
        f"most that recording costs of ten minutes: {_percent(max(cost, default=None))}",
    ]
    if left_out:
        lines.append(f"not run within the budget: {', '.join(left_out)}")
    return "\n".join(lines)


def archive(home: Path, out: Path) -> None:
    """The run folders in archives of bounded size; what does not fit keeps its documents."""
    waiting = sorted((p for p in home.iterdir() if p.is_dir()), key=_size)
    for number in range(1, ARCHIVES + 1):
        taken = 0
        with tarfile.open(out / f"runs-{number}.tar", "w") as tar:
            while waiting and taken + _size(waiting[0]) < ARCHIVE_BYTES:
                folder = waiting.pop(0)
                taken += _size(folder)
                tar.add(folder, folder.name)
            if number == ARCHIVES:
                for folder in waiting:
                    for path in folder.rglob("*.json"):
                        tar.add(path, path.relative_to(home))


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def main() -> None:
    """Run what fits into the budget, print a row each, then the sums."""
    asked = _asked()
    folder, steps = asked.folder or SMALL, asked.steps or 160
    labelled = any((place / "truth.jsonl").exists() for place in (folder, folder.parent))
    programs = list(
        of_folder(folder, asked.variants, asked.device, steps) if labelled else small(folder, steps)
    )
    programs = [p for p in programs if not asked.only or p.path.stem in asked.only]
    end = time.monotonic() + asked.budget_seconds
    left_out = []
    print(f"{HEAD}\n{LINE}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="pinchpoint-live-") as home,
        ThreadPoolExecutor(2) as by,
    ):
        reading = []
        longest = 0.0
        for program in programs:
            if time.monotonic() + longest > end:
                left_out.append(program.name)
                continue
            code, seconds = run(program, Path(home))
            longest = max(longest, min(seconds, LONGEST_S / 2))
            reading.append(by.submit(read, program, Path(home), code, seconds))
        results = [done.result() for done in reading]
        text = sums(results, left_out)
        print(f"\n{text}")
        if asked.out:
            keep(asked.out, Path(home), results, text)


def keep(out: Path, home: Path, results: list[Result], text: str) -> None:
    """Write table, results and archives."""
    out.mkdir(parents=True, exist_ok=True)
    table = "\n".join([HEAD, LINE, *map(row, results), "", text, ""])
    (out / "table.md").write_text(table)
    rows = "\n".join(json.dumps(asdict(result)) for result in results)
    (out / "results.jsonl").write_text(rows + "\n")
    archive(home, out)
    for path in out.glob("runs-*.tar"):
        with tarfile.open(path) as tar:
            empty = not tar.getnames()
        if empty:
            path.unlink()


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--variants", nargs="*", default=["slow"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--budget-seconds", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, help="keep table, results and run folders here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
