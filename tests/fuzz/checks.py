"""What must hold of every recording, damaged or not."""

import gzip
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import pinchpoint as pp
from fuzz.mutators import SAME_ANSWER, as_bytes, damaged, odd_values
from pinchpoint.errors import PinchpointError
from pinchpoint.importers import kineto
from pinchpoint.importers.kineto.reading.scanner import available
from pinchpoint.report import diagnose
from pinchpoint.report.documents.report import encode
from pinchpoint.trace import TABLES

DATA = Path(__file__).parents[1] / "data"
LARGEST_SEED_BYTES = 60_000


@dataclass
class Tally:
    """How many of each outcome, and what failed: the kind of failure, and the file."""

    counts: Counter = field(default_factory=Counter)
    failures: list[tuple[str, bytes, str]] = field(default_factory=list)


def seeds(root: Path = DATA) -> list[Path]:
    """Small recordings of every format, in a fixed order."""
    files = (p for p in sorted(root.rglob("*")) if p.is_file())
    kinds = (".gz", ".csv", ".log", ".txt", ".prom", ".sqlite", ".json")
    return [p for p in files if p.suffix in kinds and p.stat().st_size <= LARGEST_SEED_BYTES]


def one_round(seed: Path, rng: random.Random, folder: Path, tally: Tally) -> None:
    """One mutant of the seed, and what must hold of it."""
    raw = seed.read_bytes()
    name = seed.name
    document = _json(raw) if "json" in seed.suffixes[-2:][0] else None
    if document is not None and rng.random() < 0.5:
        raw, name = as_bytes(odd_values(document, rng)), "mutant.json"
    else:
        raw = damaged(raw, rng)
    path = folder / name
    path.write_bytes(raw)
    _noted(tally, raw, name, lambda: _answers(path, tally))
    if "json" in name:
        tally.counts["compared"] += 1
        _noted(tally, raw, name, lambda: scanners_agree(path))


def same_answer_round(seed: Path, rng: random.Random, folder: Path, tally: Tally) -> None:
    """A change that must change nothing: the same steps, times and findings."""
    document = _json(seed.read_bytes())
    path = folder / "changed.json"
    path.write_bytes(as_bytes(document))
    before = summary(path)
    for change in SAME_ANSWER:
        raw = as_bytes(change(document, rng))
        path.write_bytes(raw)
        tally.counts["same answer"] += 1
        if (after := summary(path)) != before:
            told = f"{change.__name__} of {seed.name}: {before} became {after}"
            tally.failures.append((told, raw, path.name))


def summary(path: Path) -> object:
    """What a diagnosis says, without names of threads and times of day."""
    document = json.loads(encode(diagnose(pp.load(path))))
    return {
        "steps": document["steps"],
        "breakdown": document["breakdown"],
        "findings": [(f["id"], f["predicted_step_ns"]) for f in document["findings"]],
        "clear": document["clear"],
    }


def _answers(path: Path, tally: Tally) -> None:
    try:
        report = diagnose(pp.load(path))
        encode(report)
        tally.counts["read"] += 1
        assert not report.crashed, f"rules that crashed: {report.crashed}"
    except PinchpointError as error:
        tally.counts["refused"] += 1
        if error.__cause__ is not None:  # only the guard around all readers noticed
            tally.counts[f"guarded {type(error.__cause__).__name__}"] += 1


def scanners_agree(path: Path) -> None:
    """The native scanner and the plain one give the same trace, or the same refusal."""
    if available() != "native":
        return
    native, plain = _by(path, "native"), _by(path, "plain")
    if isinstance(native, str) or isinstance(plain, str):
        assert isinstance(native, str) == isinstance(plain, str), f"{native} / {plain}"
        return
    assert tuple(native.names) == tuple(plain.names), "names differ"
    for name in TABLES:
        mine, other = getattr(native, name, None), getattr(plain, name, None)
        assert (mine is None) == (other is None), f"{name} is in one only"
        for column in mine.columns if mine is not None else ():
            same = np.array_equal(mine.known(column), other.known(column))
            same &= np.array_equal(mine.filled(column, 0), other.filled(column, 0))
            assert same, f"{name}.{column} differs"


def _by(path: Path, scanner: str) -> object:
    try:
        return kineto.read(path, scanner=scanner)
    except PinchpointError as error:
        return error.message
    except Exception as error:  # what the guard makes of it is judged elsewhere
        return type(error).__name__


def _noted(tally: Tally, raw: bytes, name: str, check) -> None:
    try:
        check()
    except Exception as error:
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
        tally.failures.append((f"{type(error).__name__}: {error} at {place}"[:300], raw, name))


def _json(raw: bytes) -> object:
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except ValueError:
        return None
