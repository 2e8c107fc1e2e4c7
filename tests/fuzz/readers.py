"""Every reader alone: what it makes of mutants of its smallest file, as fast as they can be made.

Nothing is diagnosed but a few, so a mutant takes some milliseconds. It is read or refused; what
only the guard around all readers noticed is counted; 10 s of CPU or 300 MB more is a failure.
"""

import csv
import gzip
import io
import json
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.checks import scanners_agree
from fuzz.mutators import as_bytes, damaged, odd_cells, odd_messages, odd_values
from fuzz.samples import samples, trace
from importers import test_formats
from importers.memory_snapshot import snapshots
from importers.ncu_report import report, result
from importers.test_nsys_stats import GPU_TRACE, SUMMARY
from importers.xplane.test_xplane import space
from pinchpoint.errors import OutOfMemory, PinchpointError
from pinchpoint.importers import execution_trace, load
from pinchpoint.importers.open import guarded
from pinchpoint.report import diagnose
from pinchpoint.report.documents.report import encode

MOST_CPU_S, MOST_BYTES = 10, 300 << 20  # for any file that is small
DIAGNOSED_RATIO = 0.01  # of those that are read
COMPARED_RATIO = 0.05  # of PyTorch's: native scanner and plain one
KEPT_OF_A_KIND = 3
KINETO, BESIDE = "t.json", "t_et.json"
SEVERAL_RATIO = 0.9
COPIES = 10  # damaged copies of the events of one document of PyTorch's: a mutant each
MOST_COLUMNS, MOST_LINES = 40, 40  # of tables of which only long ones are kept
DATA = test_formats.DATA


class Hang(BaseException):
    """More CPU than a small file may take. Nothing catches it on its way."""


@dataclass
class Attack:
    """A reader's files, one of which is damaged each time, and what came of it."""

    files: dict[str, bytes]
    given: str
    counts: Counter = field(default_factory=Counter)
    failed: dict[str, list[tuple[bytes, str]]] = field(default_factory=dict)
    slowest_s: float = 0.0


def attacks(folder: Path) -> dict[str, Attack]:
    """Small files of every reader by a name; ``folder`` is for those that are made on a disk."""
    found = {name: Attack(made.files, made.given[0]) for name, made in samples().items()}
    for name in ("nsys", "bench folder", "DCGM exporter text", "pinchpoint telemetry"):
        found[name] = _of_formats(name, folder / name.replace(" ", "-"))
    metrics = {"gpu__time_duration.sum": 12.5, "launch__grid_size": 3, "device__name": "A"}
    texts: list[str] = []
    profiled = result(texts, "gemm", metrics)
    plain = {
        "kineto": ("t.json", trace().encode()),
        "JAX trace": ("t.trace.json", _of_jax()),
        "snapshot": (
            "m.pickle",
            snapshots.write(folder / "m.pickle", snapshots.small()).read_bytes(),
        ),
        "xplane": ("x.xplane.pb", space()),
        "ncu report": ("n.ncu-rep", report([profiled], texts)),
        "nsys trace CSV": ("a.csv", GPU_TRACE.encode()),
        "nsys sums CSV": ("b.csv", SUMMARY.encode()),
        "nvidia-smi CSV": ("s.csv", _lines(DATA / "nvidia-smi/nvidia-smi.csv", 6)),
        "nvidia-smi dmon": ("d.log", _lines(DATA / "nvidia-smi/dmon.log", 6)),
        "ncu details": ("p.csv", _lines(DATA / "ncu/kernels.details.csv.gz", MOST_LINES)),
        "ncu text": ("p.txt", _lines(DATA / "ncu/kernels.details.txt.gz", MOST_LINES)),
        "ncu raw": ("p.csv", _columns(DATA / "ncu/kernels.raw.csv.gz")),
    }
    return found | {name: Attack({file: raw}, file) for name, (file, raw) in plain.items()}


# Of each round, how many files: what several attacks share is one reader, PyTorch's the most used.
TURNS = (
    *(("kineto",), ("JAX trace", "ascend view")),
    ("zip", "zip of two", "tar", "plain tar"),
    ("ncu report", "ncu details", "ncu text", "ncu raw"),
    *(("nsys",), ("nsys trace CSV", "nsys sums CSV"), ("rocprofv3",), ("rocprofv3 csv",)),
    *(("perfetto",), ("ascend table",), ("memory timeline",), ("execution trace",)),
    *(("run folder", "bench folder"), ("snapshot",), ("xplane",)),
    *(("DCGM exporter text",), ("pinchpoint telemetry",)),
    *(("nvidia-smi CSV",), ("nvidia-smi dmon",)),
)


def _of_formats(name: str, home: Path) -> Attack:
    home.mkdir()
    first = test_formats.SAMPLES[name](home)[0]
    files = {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}
    return Attack(files, str(first.relative_to(home)))


def _lines(path: Path, count: int) -> bytes:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return b"".join(raw.splitlines(keepends=True)[:count])


def _of_jax() -> bytes:
    """The lanes, and a few events of each."""
    whole = json.loads(gzip.decompress((DATA / "xplane/h100_train.trace.json.gz").read_bytes()))
    events = [e for e in whole["traceEvents"] if e]
    lanes = [e for e in events if e["ph"] == "M"]
    return as_bytes(
        whole | {"traceEvents": [*lanes[:20], *(e for e in events if e["ph"] == "X")][:40]}
    )


def _columns(path: Path) -> bytes:
    rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(row[:MOST_COLUMNS] for row in rows)
    return out.getvalue().encode()


def limited() -> None:
    """From here on this process may have so much more memory; a hang is an error with a stack."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, resource.RLIM_INFINITY))

    def hangs(*_: object) -> None:
        raise Hang(f"{MOST_CPU_S} s of CPU")

    signal.signal(signal.SIGVTALRM, hangs)


def one_round(attack: Attack, rng: random.Random, folder: Path) -> None:
    """A mutant of one of its files, and what must hold of it."""
    name, copies = rng.choice(list(attack.files)), 1
    if attack.given == KINETO and name == KINETO and rng.random() < SEVERAL_RATIO:
        raw, copies = several(attack.files[name], rng), COPIES
    else:
        raw = mutant(name, attack.files[name], rng)
    for other, content in attack.files.items():
        place = folder / other
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw if other == name else content)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        _read(attack, folder / attack.given, rng, copies)
    except (Exception, Hang) as error:
        told = f"{type(error).__name__}: {error}"[:200].replace(str(folder), "")
        kept = attack.failed.setdefault(f"{type(error).__name__} at {_place(error)}: {told}", [])
        attack.counts["failed"] += 1
        if len(kept) < KEPT_OF_A_KIND:
            kept.append((raw, Path(name).name))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        attack.slowest_s = max(attack.slowest_s, time.process_time() - began)


def _read(attack: Attack, path: Path, rng: random.Random, copies: int) -> None:
    attack.counts["files"] += 1
    if attack.given == KINETO and rng.random() < COMPARED_RATIO:
        attack.counts["scanners compared"] += 1
        scanners_agree(path)
    try:
        found = load(path)
        if BESIDE in attack.files:
            with guarded(path, execution_trace.FORMAT):
                found = execution_trace.joined(found, path.with_name(BESIDE))
    except PinchpointError as error:
        attack.counts["refused"] += 1
        if error.__cause__ is not None:
            attack.counts[f"guarded {type(error.__cause__).__name__}"] += 1
        attack.counts["mutants"] += 1
        if isinstance(error, OutOfMemory):
            raise MemoryError("more than a small file may take") from error
        return
    attack.counts["read"] += 1
    attack.counts["mutants"] += copies  # one that spoils the whole file would hide the others
    if rng.random() < DIAGNOSED_RATIO:
        attack.counts["diagnosed"] += 1
        said = diagnose(found)
        encode(said)
        assert not said.crashed, f"rules that crashed: {said.crashed}"


def several(raw: bytes, rng: random.Random) -> bytes:
    """A document whose events are many damaged copies of its events."""
    document = json.loads(raw)
    copies = [odd_values(document["traceEvents"], rng) for _ in range(COPIES)]
    return as_bytes(document | {"traceEvents": [event for copy in copies for event in copy]})


def mutant(name: str, raw: bytes, rng: random.Random) -> bytes:
    """Damaged as the format is built (values, cells, messages) or byte by byte."""
    packed = raw[:2] == b"\x1f\x8b" and rng.random() < 0.9
    text = gzip.decompress(raw) if packed else raw
    changed = _built(name, text)(text, rng) if rng.random() < 0.7 else damaged(text, rng)
    return gzip.compress(changed, 1) if packed else changed


def _built(name: str, text: bytes) -> Callable[[bytes, random.Random], bytes]:
    if text[:1] in (b"{", b"[") and not name.endswith((".txt", ".log")):
        return lambda raw, rng: as_bytes(odd_values(json.loads(raw), rng))
    if name.endswith((".csv", ".log", ".txt", ".prom")):
        return odd_cells
    return odd_messages if name.endswith((".pftrace", ".pb", ".ncu-rep")) else damaged


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else "?"
