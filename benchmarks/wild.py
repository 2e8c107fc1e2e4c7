"""What becomes of every file of a folder: read or refused, how long, how much memory, what is said.

    python benchmarks/wild.py FOLDER [--markdown TABLE.md] [--json ROWS.jsonl]

Each file is diagnosed in a process of its own, as a user would. Files may come from anywhere and
are looked at only. A refusal counts as one if it is two lines, the second of which says what to do;
anything else that ends in an error is a *crash*. Memory is the most that the process held, and in
times of what the file unpacks to, less what an empty run of the command holds (of files that
unpack to 20 MB and more: below, the program itself is most of it).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pinchpoint.importers.files.packed import head_of

MOST_SECONDS = 600  # of one file
# The modules that a diagnosis needs beside an empty run take 10 to 40 MB: below this a ratio says
# nothing of the file.
LEAST_RATED_MB = 20
LONGEST_SHOWN = 70  # characters of what was said
MAGIC_BYTES = 8  # more than any packing begins with
SKIPPED = (".md", ".txt", ".toml")  # notes beside the files


@dataclass(frozen=True)
class Row:
    """What became of one file."""

    file: str
    result: str  # read, refused, crash, late
    seconds: float
    memory_mb: float
    memory_ratio: float | None  # to the unpacked file
    format: str | None
    health: str | None
    steps: str | None
    step_ms: float | None
    idle: str | None  # per cent, of each device
    first: str  # finding, or why it was refused


def main() -> int:
    """Print the table; 1 if anything crashed."""
    options = _options()
    empty_mb = _run([sys.executable, "-m", "pinchpoint", "formats"])[2]
    rows = []
    for file in _files(options.folder):
        rows.append(_row(file, options.folder, empty_mb))
        print(_line(rows[-1]), flush=True)
    counts = Counter(row.result for row in rows)
    print("\n" + ", ".join(f"{number} {result}" for result, number in counts.most_common()))
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    if options.markdown:
        options.markdown.write_text(_markdown(rows))
    return 1 if counts["crash"] or counts["late"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in SKIPPED and not path.name.startswith("."):
            yield path


def _row(file: Path, folder: Path, empty_mb: float) -> Row:
    begun = time.monotonic()
    code, output, memory_mb, errors = _run(
        [sys.executable, "-m", "pinchpoint", "diagnose", str(file), "--json"]
    )
    seconds = time.monotonic() - begun
    unpacked_mb = _unpacked_bytes(file) / 1e6
    rated = unpacked_mb >= LEAST_RATED_MB
    ratio = max(memory_mb - empty_mb, 0) / unpacked_mb if rated else None
    common = (str(file.relative_to(folder)), seconds, memory_mb, ratio)
    if code == 0:
        return _read(*common, json.loads(output))
    said = errors.strip().splitlines()
    foreseen = code == 2 and len(said) >= 2 and said[-1].lstrip().startswith("next:")
    result = "refused" if foreseen else "late" if code is None else "crash"
    why = (
        said[-2].partition(": ")[2].replace(str(file), "").lstrip(": ")
        if foreseen
        else errors[-200:]
    )
    return Row(common[0], result, *common[1:], None, None, None, None, None, why)


def _run(command: list[str]) -> tuple[int | None, str, float, str]:
    """Exit code, output, most memory held in MB, errors. None: it took too long."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=output, stderr=errors)
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                code: int | None = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > deadline:
                child.kill()
                _, _, usage = os.wait4(child.pid, 0)
                code = None
                break
            time.sleep(0.02)
        child.returncode = -1  # waited for above
        output.seek(0)
        errors.seek(0)
        return code, output.read(), usage.ru_maxrss / 1000, errors.read()


def _unpacked_bytes(file: Path) -> int:
    with file.open("rb") as source, contextlib.suppress(Exception):
        head = head_of(source, MAGIC_BYTES)
        source.seek(0)
        if head.packings:
            inside = head.packings[0].opened(source)
            return sum(len(chunk) for chunk in iter(lambda: inside.read(1 << 20), b""))
    return file.stat().st_size


def _read(
    name: str, seconds: float, memory_mb: float, ratio: float | None, document: dict[str, Any]
) -> Row:
    several = document.get("reports")
    report = document if several is None else next(iter(several), {})
    steps, devices = report.get("steps") or {}, report.get("devices") or []
    found = report.get("findings") or []
    count = steps.get("count")
    typical = steps.get("typical_ns")
    return Row(
        file=name,
        result="read",
        seconds=seconds,
        memory_mb=memory_mb,
        memory_ratio=ratio,
        format=(report.get("source") or {}).get("format"),
        health=(report.get("health") or {}).get("verdict"),
        steps=f"{count} ({steps.get('how')})" if count is not None else None,
        step_ms=None if typical is None else typical / 1e6,
        idle=", ".join(
            f"{100 * d['idle_ratio']:.1f}" for d in devices if d["idle_ratio"] is not None
        )
        or None,
        first=found[0]["id"] if found else "-",
    )


def _line(row: Row) -> str:
    step = "" if row.step_ms is None else f"{row.step_ms:9.4g} ms"
    return (
        f"{row.result:8}{row.seconds:6.1f} s {row.memory_mb:6.0f} MB  {row.health or '':15}"
        f" {row.steps or '':15} {step:12} idle {row.idle or '-':12}"
        f" {row.first[:LONGEST_SHOWN]:28} {row.file[-LONGEST_SHOWN:]}"
    )


def _markdown(rows: list[Row]) -> str:
    lines = [
        "| file | result | s | MB | × file | health | steps | step | idle % | first finding |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        step = "" if row.step_ms is None else f"{row.step_ms:.4g} ms"
        ratio = "" if row.memory_ratio is None else f"{row.memory_ratio:.1f}"
        first = row.first.replace("|", "\\|").replace("\n", " ")[:LONGEST_SHOWN]
        cells = (row.file, row.result, f"{row.seconds:.1f}", f"{row.memory_mb:.0f}", ratio)
        more = (row.health or "", row.steps or "", step, row.idle or "", first)
        lines.append(f"| {' | '.join((*cells, *more))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
