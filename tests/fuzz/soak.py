"""Thousands of commands in one process, and what grows meanwhile: ./run fuzz --soak N.

A notebook, a server or a test run calls many. Nothing that a command takes may stay when it ends:
not a level of recursion, a file, a thread, a child, a handler, a setting or a folder, and memory
only until caches are full.
"""

import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from fuzz.samples import ran, samples

DATA = Path(__file__).parents[1] / "data"
FORMATS = ("chrome", "speedscope", "collapsed", "csv", "sarif", "tensorboard", "otlp", "parquet")
QUERY = "SELECT count(*), sum(duration_ns) FROM device_ops"
# Caches fill in the first calls of each command on each format.
WARM_RATIO = 0.4
# Of what each command may leave in the caches of Python and NumPy. One that kept its smallest
# recording would leave ten times as much.
MOST_GROWTH_BYTES = 4000
TOLD_EVERY = 200


@dataclass(frozen=True)
class Held:
    """What this process has at a moment."""

    levels: int  # of calls that may still be nested
    files: int
    threads: int
    children: int
    settings: tuple[object, ...]  # which commands have no business to change
    left: int  # files and folders in the folder for temporary ones
    memory_bytes: int
    objects: int

    def but_memory(self) -> tuple[object, ...]:
        """What must be equal at any two moments."""
        return self.levels, self.files, self.threads, self.children, self.settings, self.left


def held(temporary: Path) -> Held:
    """Of this process, after garbage was collected."""
    gc.collect()
    me = psutil.Process()
    settings = (
        tuple(signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)),
        (Path.cwd(), hash(frozenset(os.environ.items())), os.umask(os.umask(0o22))),
        (len(warnings.filters), len(sys.meta_path), len(sys.path), sys.getrecursionlimit()),
        (sys.getprofile(), sys.gettrace(), sys.excepthook, warnings.showwarning),
    )
    return Held(
        _levels(),
        me.num_fds(),
        threading.active_count(),
        len(me.children()),
        settings,
        sum(1 for _ in temporary.iterdir()),
        me.memory_info().rss,
        len(gc.get_objects()),
    )


def _levels() -> int:
    deepest = 0

    def down(level: int) -> None:
        nonlocal deepest
        deepest = level
        down(level + 1)

    try:
        down(0)
    except RecursionError:
        return deepest
    return deepest


def commands(home: Path, rng: random.Random) -> Iterator[list[str]]:
    """Without end: a command on one of the small recordings."""
    files = _recordings(home)
    snapshots = [str(DATA / f"memory/{n}.pickle.gz") for n in ("leak_graph", "oom", "sgd_train")]
    out = str(home / "out")
    while True:
        a, b = rng.choices(files, k=2)
        to = rng.choice(FORMATS)
        yield rng.choice(
            (
                *(["diagnose", a], ["diagnose", a, "--json"], ["diagnose", a, "--markdown"]),
                *(["diagnose", a, "--html", f"{out}.html"], ["report", a, "-o", f"{out}.html"]),
                *(["export", a, "--to", to, "-o", f"{out}.{to}", "--force"], ["compare", a, b]),
                *(["compare", a, a, "--json"], ["memory", rng.choice((a, *snapshots))]),
                *(["kernels", a], ["kernels", a, "--json"], ["roofline", a], ["show", a]),
                *(["causal", a], ["causal", a, "--json"], ["sql", a, QUERY], ["explain"]),
                *(["ranks", a, b], ["health", a], ["diagnose", "--help"], ["sql", a, "SELEC"]),
                *(["diagnose", f"{a}.no"], ["diagnose", a, "--no-such"], ["no-such", a]),
            )
        )


def _recordings(home: Path) -> list[str]:
    found = []
    for number, sample in enumerate(samples().values()):
        own = home / str(number)
        for name, raw in sample.files.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_bytes(raw)
        found.append(str(own / sample.given[0]))
    (damaged := home / "damaged.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1')
    real = ("labelled/c16_sync_in_loop.slow.json.gz", "kineto/decode_cudagraph.json.gz")
    return [*found, str(damaged), *(str(DATA / name) for name in real)]


def soak(count: int, seed: int, tell: bool) -> tuple[list[str], Counter[int]]:
    """What grew, in words, and how often commands ended with which exit code."""
    rng, codes, grew = random.Random(seed), Counter[int](), []
    home = Path(tempfile.mkdtemp(prefix="pinchpoint-soak-"))
    usual, tempfile.tempdir = tempfile.tempdir, str(home / "temporary")
    (home / "temporary").mkdir()
    first: Held | None = None
    began = time.process_time()
    try:
        for number, words in enumerate(commands(home, rng)):
            if number == int(count * WARM_RATIO):
                first = held(home / "temporary")
            if number == count:
                break
            code, said = ran(words)
            codes[code] += 1
            if code == 70:
                grew.append(f"{' '.join(words)}: {said[-200:]}")
            if tell and number % TOLD_EVERY == 0:
                print(number, held(home / "temporary"), f"{time.process_time() - began:.0f} s")
        last = held(home / "temporary")
    finally:
        tempfile.tempdir = usual
        shutil.rmtree(home)
    assert first is not None
    if first.but_memory() != last.but_memory():
        grew.append(f"{first} became {last}")
    more = (last.memory_bytes - first.memory_bytes) / (count - int(count * WARM_RATIO))
    if more > MOST_GROWTH_BYTES:
        grew.append(f"{more:,.0f} bytes a command")
    if tell:
        print(f"{more:,.0f} bytes and {last.objects - first.objects:,} objects more", last)
    return grew, codes


def run(count: int, seed: int) -> int:
    """Run so many commands; 1 if anything grew."""
    grew, codes = soak(count, seed, tell=True)
    print(*(f"GREW {told}" for told in grew), dict(codes), sep="\n")
    return 1 if grew else 0
