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
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fuzz.checks import scanners_agree
from fuzz.mutators import as_bytes, damaged, odd_cells, odd_messages, spoilt
from fuzz.samples import samples, trace
from fuzz.shapes import (
    odd_database,
    odd_fields,
    odd_json,
    odd_pickle,
    odd_tar,
    odd_text,
    odd_zip,
)
from importers import test_benchmark_results, test_formats, test_program_logs
from importers.memory_snapshot import snapshots
from importers.ncu_report import report, result
from importers.test_nsys_stats import GPU_TRACE, SUMMARY
from importers.test_rocpd import old_database
from importers.test_telemetry import BOXES
from importers.xplane.test_xplane import space
from kineto_documents import call, document, event, kernel, launched, op, step
from pinchpoint.errors import OutOfMemory, PinchpointError
from pinchpoint.importers import execution_trace, load
from pinchpoint.importers.kineto.reading import scanner
from pinchpoint.importers.open import as_folder, guarded
from pinchpoint.report import diagnose
from pinchpoint.report.documents.report import encode
from pinchpoint.trace import Trace

MOST_CPU_S, MOST_BYTES = 10, 300 << 20  # for any file that is small
DIAGNOSED_RATIO = 0.01  # of those that are read
COMPARED_RATIO = 0.05  # of PyTorch's: native scanner and plain one
KEPT_OF_A_KIND = 3
BESIDE = "t_et.json"
EVENTS = "traceEvents"
SEVERAL_RATIO = 0.9
MOST_OF_AN_EVENT = 2  # changes: it has a dozen values
COPIES = 100  # damaged copies of the events of one document of PyTorch's: a mutant each
MOST_COLUMNS, MOST_LINES = 40, 40  # of tables of which only long ones are kept
DATA = test_formats.DATA


Damage = Callable[[bytes, random.Random], bytes]


class Hang(BaseException):
    """More CPU than a small file may take. Nothing catches it on its way."""


class Warned(BaseException):
    """A warning, which a user would see among the answers. Nothing catches it either."""


@dataclass
class Attack:
    """A reader's files, one of which is damaged each time, and what came of it."""

    files: dict[str, bytes]
    given: str
    counts: Counter = field(default_factory=Counter)
    failed: dict[str, list[tuple[bytes, str]]] = field(default_factory=dict)
    slowest_s: float = 0.0
    cpu_s: float = 0.0  # of its rounds, with the making of the mutants
    damaged: str = ""  # the file that the last round wrote anew


MADE = (
    *("nsys", "bench folder", "DCGM exporter text", "pinchpoint telemetry"),
    *("rocpd", "TensorFlow stats", "load test", "Ascend database"),
    *("TensorRT layers", "ONNX Runtime profile", "llama-bench", "NCCL inspector", "program log"),
    *("table of figures", "JAX memory profile", "rocprofv3 instructions"),
    *("tegrastats", "Gaudi hardware trace", "nvprof GPU trace"),
)


def attacks(folder: Path) -> dict[str, Attack]:
    """Small files of every reader by a name; ``folder`` is for those that are made on a disk."""
    found = {name: Attack(made.files, made.given[0]) for name, made in samples().items()}
    beside = found["execution trace"].files[BESIDE]
    found["execution trace"] = Attack({BESIDE: beside}, BESIDE)
    for name in MADE:
        found[name] = _of_formats(name, folder / name.replace(" ", "-"))
    metrics = {"gpu__time_duration.sum": 12.5, "launch__grid_size": 3, "device__name": "A"}
    texts: list[str] = []
    profiled = result(texts, "gemm", metrics)
    plain = {
        "kineto": ("t.json", trace().encode()),
        "kineto with all": ("t.json", _of_all_kinds()),
        "JAX trace": ("t.trace.json", _of_jax()),
        "snapshot": (
            "m.pickle",
            snapshots.write(folder / "m.pickle", snapshots.small()).read_bytes(),
        ),
        "xplane": ("x.xplane.pb", space()),
        "ncu report": ("n.ncu-rep", report([profiled], texts)),
        "rocprof 1": ("old.db", old_database(folder).read_bytes()),
        "nsys trace CSV": ("a.csv", GPU_TRACE.encode()),
        "nsys sums CSV": ("b.csv", SUMMARY.encode()),
        "logs": ("all.log", test_program_logs.ALL.encode()),
        "notebook": (
            "a.ipynb",
            test_program_logs.notebook(folder, test_program_logs.ALL).read_bytes(),
        ),
        "TensorRT times": (
            "t.json",
            json.dumps([*map(test_benchmark_results.run, range(9))]).encode(),
        ),
        "nvidia-smi CSV": ("s.csv", _lines(DATA / "nvidia-smi/nvidia-smi.csv", 6)),
        "nvidia-smi table": ("s.log", BOXES.encode()),
        "nvidia-smi dmon": ("d.log", _lines(DATA / "nvidia-smi/dmon.log", 6)),
        "ncu details": ("p.csv", _lines(DATA / "ncu/kernels.details.csv.gz", MOST_LINES)),
        "ncu text": ("p.txt", _lines(DATA / "ncu/kernels.details.txt.gz", MOST_LINES)),
        "ncu raw": ("p.csv", _columns(DATA / "ncu/kernels.raw.csv.gz")),
    }
    return found | {name: Attack({file: raw}, file) for name, (file, raw) in plain.items()}


PYTORCH = ("kineto", "kineto with all", "JAX trace", "ascend view")
# A reader each; files in one bracket take turns.
READERS = (
    PYTORCH,
    *(("zip", "zip of two", "tar", "plain tar"), ("nsys",), ("nsys trace CSV", "nsys sums CSV")),
    *(("ncu report",), ("ncu details", "ncu text", "ncu raw")),
    *(("rocprofv3",), ("rocprofv3 csv",), ("rocpd", "rocprof 1")),
    *(
        ("perfetto",),
        ("ascend table",),
        ("Ascend database",),
        ("memory timeline",),
        ("execution trace",),
    ),
    *(("run folder",), ("bench folder",), ("snapshot",), ("xplane",)),
    *(("DCGM exporter text",), ("pinchpoint telemetry",)),
    *(("nvidia-smi CSV",), ("nvidia-smi dmon",), ("nvidia-smi table",)),
    *(("tegrastats",), ("Gaudi hardware trace",), ("nvprof GPU trace",)),
    *(("TensorFlow stats",), ("ONNX Runtime profile",), ("load test",)),
    *(("TensorRT layers", "TensorRT times"), ("llama-bench",), ("NCCL inspector",)),
    ("program log", "logs", "notebook"),
    *(("table of figures",), ("JAX memory profile",), ("rocprofv3 instructions",)),
)


def turns(number: int, found: dict[str, Attack], each: int, pytorch: int) -> list[str]:
    """Whose files are damaged in a round: those of readers that had too few mutants so far."""
    return [
        reader[number % len(reader)]
        for reader in READERS
        if mutants(reader, found) < (pytorch if reader is PYTORCH else each)
    ]


def mutants(reader: tuple[str, ...], found: dict[str, Attack]) -> int:
    """How many mutants of its files a reader had."""
    return sum(found[name].counts["mutants"] for name in reader)


def _of_formats(name: str, home: Path) -> Attack:
    home.mkdir()
    first = test_formats.SAMPLES[name](home)[0]
    files = {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}
    return Attack(files, str(first.relative_to(home)))


def _lines(path: Path, count: int) -> bytes:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return b"".join(raw.splitlines(keepends=True)[:count])


def _of_all_kinds() -> bytes:
    """One event of each kind that PyTorch writes, of each phase that a trace may have."""
    host = {"pid": 10, "tid": 10}
    frame = {"Python_id": 1, "Python_parent_id": None, "Python_module_id": 0}
    freed = {"Total Reserved": 9, "Total Allocated": 4, "Bytes": -4, "Addr": 77, "Device Type": 1}
    copy = {"stream": 7, "correlation": 6, "bytes": 4096, "device": 0, "memory bandwidth (GB/s)": 2}
    events = [
        {"ph": "M", "name": "process_name", **host, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
        {"ph": "M", "name": "thread_name", **host, "args": {"name": "thread 7 (python)"}},
        step(3, 0, 100),
        event("t.py(3): main", "python_function", 1, 90, **frame),
        event("forward", "user_annotation", 2, 80, External_id=3),
        op("aten::add", 3, 5, Input_Dims=[[2, 3], [2, 3], []], Sequence_number=4),
        *launched("k", 10, 14, 5, 5),
        call("cudaMemcpyAsync", 20, 4, 6),
        {**kernel("Memcpy HtoD (Pinned -> Device)", 22, 3, 6), "cat": "gpu_memcpy", "args": copy},
        call("cudaStreamSynchronize", 26, 9, 8),
        {"ph": "s", "id": 5, **host, "ts": 10, "cat": "ac2g", "name": "ac2g"},
        {
            "ph": "f",
            "id": 5,
            "pid": 0,
            "tid": 7,
            "ts": 14,
            "cat": "ac2g",
            "name": "ac2g",
            "bp": "e",
        },
        {"ph": "i", "name": "[memory]", "s": "t", **host, "ts": 30, "args": freed},
        {"ph": "C", "name": "load", "pid": 10, "ts": 5, "args": {"value": 3}},
        {"ph": "B", "name": "open", **host, "ts": 40, "cat": "cpu_op"},
        {"ph": "E", **host, "ts": 50},
        {"ph": "b", "id": 1, "name": "later", **host, "ts": 41, "cat": "async"},
        {"ph": "e", "id": 1, "name": "later", **host, "ts": 44, "cat": "async"},
    ]
    device = {"id": 0, "name": "A", "computeMajor": 9, "numSms": 132, "totalGlobalMem": 85e9}
    job = {"rank": 0, "world_size": 2, "backend": "nccl", "pg_count": 1}
    return document(*events, deviceProperties=[device], distributedInfo=job).encode()


def _of_jax() -> bytes:
    """The lanes, and a few events of each."""
    whole = json.loads(gzip.decompress((DATA / "xplane/h100_train.trace.json.gz").read_bytes()))
    events = [e for e in whole["traceEvents"] if e]
    lanes = [e for e in events if e["ph"] == "M"]
    return as_bytes(
        whole | {"traceEvents": [*lanes[:12], *(e for e in events if e["ph"] == "X")][:24]}
    )


def _columns(path: Path) -> bytes:
    rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(row[:MOST_COLUMNS] for row in rows)
    return out.getvalue().encode()


def limited() -> None:
    """From here on this process may have so much more memory; a hang is an error with a stack."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]  # only root may raise it
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, most))

    def hangs(*_: object) -> None:
        raise Hang(f"{MOST_CPU_S} s of CPU")

    def warned(message: object, category: object, *_: object) -> None:
        raise Warned(f"{category}: {message}")

    signal.signal(signal.SIGVTALRM, hangs)
    warnings.simplefilter("always")
    warnings.showwarning = warned
    scanner.ThreadPoolExecutor = _Here  # to start threads takes longer than such files do


class _Here(Executor):
    """Does at once, in this thread, what is submitted."""

    def __init__(self, threads: int) -> None:
        del threads

    def submit(self, work, /, *args, **named) -> Future:
        done: Future = Future()
        done.set_result(work(*args, **named))
        return done


def one_round(name: str, attack: Attack, rng: random.Random, folder: Path) -> None:
    """A mutant of one of its files, and what must hold of it."""
    started = time.process_time()
    file, copies = rng.choice(list(attack.files)), 1
    if name in PYTORCH and rng.random() < SEVERAL_RATIO:
        raw, copies = several(attack.files[file], rng), COPIES
    else:
        raw = mutant(file, attack.files[file], rng)
    for other, content in attack.files.items():
        if other == file or attack.counts["files"] == 0 or attack.damaged == other:
            place = folder / other
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw if other == file else content)
    attack.damaged = file
    began = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        _read(name, attack, folder / attack.given, rng, copies)
    except (Exception, Hang, Warned) as error:
        told = f"{type(error).__name__}: {error}"[:200].replace(str(folder), "")
        kept = attack.failed.setdefault(f"{type(error).__name__} at {_place(error)}: {told}", [])
        attack.counts["failed"] += 1
        if len(kept) < KEPT_OF_A_KIND:
            kept.append((raw, Path(file).name))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        ended = time.process_time()
        attack.slowest_s = max(attack.slowest_s, ended - began)
        attack.cpu_s += ended - started


def _read(name: str, attack: Attack, path: Path, rng: random.Random, copies: int) -> None:
    attack.counts["files"] += 1
    if name in PYTORCH and rng.random() < COMPARED_RATIO:
        attack.counts["scanners compared"] += 1
        scanners_agree(path)
    try:
        if path.name == BESIDE:
            with guarded(path, execution_trace.FORMAT):
                found = execution_trace.joined(_beside(path.parent), path)
        elif name == "zip of two":
            with as_folder(path) as inside:
                found = load(next((p for p in inside.rglob("*") if p.is_file()), inside))
        else:
            found = load(path)
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


@cache
def _beside(folder: Path) -> Trace:
    """The trace that execution traces are joined with; it stays as it is."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "t.json"
    path.write_text(trace())
    return load(path)


def several(raw: bytes, rng: random.Random) -> bytes:
    """A document with many copies of its events, each copy damaged in an event or a few."""
    whole = json.loads(raw)
    events = whole[EVENTS] if isinstance(whole, dict) else whole
    sound = [as_bytes(event) for event in events]
    found = []
    for _ in range(COPIES):
        copy = sound[:]
        for at in rng.choices(range(len(copy)), k=rng.choice((1, 1, 2, 4))):
            copy[at] = as_bytes(spoilt(json.loads(sound[at]), rng, MOST_OF_AN_EVENT))
        found += copy
    text = b"[" + b",".join(found) + b"]"
    if not isinstance(whole, dict):
        return text
    return as_bytes(whole | {EVENTS: "HERE"}).replace(b'"HERE"', text)


def mutant(name: str, raw: bytes, rng: random.Random) -> bytes:
    """Damaged as the format is built (values, cells, messages) or byte by byte."""
    packed = raw[:2] == b"\x1f\x8b" and rng.random() < 0.9
    text = gzip.decompress(raw) if packed else raw
    changed = rng.choice(_built(name, text))(text, rng)
    return gzip.compress(changed, 1) if packed else changed


def _built(name: str, text: bytes) -> tuple[Damage, ...]:
    """What damages such a file; byte by byte is one in three or four."""
    for begin, ways in _BY_MAGIC:
        if text.startswith(begin):
            return ways
    if name.endswith(".pickle"):
        return odd_pickle, odd_pickle, damaged
    if text[257:262] == b"ustar":
        return odd_tar, odd_tar, damaged
    if text[:1] in (b"{", b"[") and not name.endswith((".txt", ".log")):
        return odd_json, odd_json, damaged
    if name.endswith((".csv", ".log", ".txt", ".prom")):
        return odd_cells, odd_cells, odd_text, damaged
    if name.endswith((".pftrace", ".pb")):
        return odd_fields, odd_fields, odd_messages, damaged
    return odd_messages, damaged


_BY_MAGIC: tuple[tuple[bytes, tuple[Damage, ...]], ...] = (
    (b"PK\x03\x04", (odd_zip, odd_zip, damaged)),
    (b"SQLite format 3\0", (odd_database, odd_database, damaged)),
)


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else "?"
