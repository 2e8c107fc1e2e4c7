"""The native modules under AddressSanitizer and UBSan: python tests/fuzz/sanitized.py [--files N].

Builds them into a copy of the package below build/ and checks that each was loaded from there.
Reads mutants of a trace of PyTorch's, answers about mutants of histories of the allocator and of
recordings that are replayed, and calls the replay of blocks with any numbers. A wrong access ends
the process with a report; exit code 0 where there was none, 3 without a compiler or its sanitizers.
"""

import argparse
import gzip
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np

from fuzz.mutators import as_bytes, damaged, spoilt

if TYPE_CHECKING:
    from fuzz.checks import Tally

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/sanitized"
SANITIZERS = "-fsanitize=address,undefined"
FLAGS = f"{SANITIZERS} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"
NO_COMPILER = 3
# What is checked runs inside Python, which keeps memory to its end.
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
ATTACK = """
import sys
from fuzz.sanitized import attacked
from pinchpoint.analysis.host import _chains
from pinchpoint.analysis.memory.allocator import _blocks
from pinchpoint.analysis.replay import _passes
from pinchpoint.importers.kineto.native import _nest, _scan
from pinchpoint.importers.memory_snapshot import _runs
for module in (_passes, _nest, _scan, _runs, _blocks, _chains):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
sys.exit(attacked(int(sys.argv[2]), int(sys.argv[3])))
"""
REPLAYED = ("kineto/decode_cudagraph", "labelled/c21_python_gc.slow")
SNAPSHOTS, REPLAYS, BLOCKS = 5, 100, 20  # one of so many files is of this kind


def main() -> int:
    """Build, then attack."""
    options = argparse.ArgumentParser()
    options.add_argument("--files", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    library = asan()
    if library is None:
        print("no compiler with sanitizers here", file=sys.stderr)
        return NO_COMPILER
    build()
    words = [sys.executable, "-c", ATTACK, str(BUILT), str(chosen.files), str(chosen.seed)]
    path = os.pathsep.join((str(BUILT), str(ROOT / "tests")))
    env = os.environ | SETTINGS | {"LD_PRELOAD": library, "PYTHONPATH": path}
    return subprocess.run(words, env=env, cwd=ROOT).returncode


def attacked(files: int, seed: int) -> int:
    """Mutants for each module; 1 where a reader or a rule failed, or two forms differ."""
    from fuzz import readers
    from fuzz.checks import DATA, Tally
    from fuzz.samples import ran

    rng, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "made").mkdir()
        attack = readers.attacks(folder / "made")["kineto with all"]
        for _ in range(files):
            readers.one_round("kineto with all", attack, rng, folder / "kineto")
        for _ in range(files // SNAPSHOTS):
            path = folder / "m.pickle"
            path.write_bytes(snapshot(rng))
            _noted(tally, "snapshots", *ran(["memory", str(path), "--json"]))
        for number in range(len(REPLAYED) + files // REPLAYS):
            raw = gzip.decompress((DATA / f"{REPLAYED[number % 2]}.json.gz").read_bytes())
            document = json.loads(raw)
            if number >= len(REPLAYED):
                spoilt(document["traceEvents"], rng)
            path = folder / "t.json"
            path.write_bytes(as_bytes(document))
            _noted(tally, "replays", *ran(["diagnose", str(path), "--json"]))
        for _ in range(files // BLOCKS):
            any_blocks(rng)
    print(dict(attack.counts), dict(tally.counts), f"{files // BLOCKS} runs of blocks")
    print(*attack.failed, *(told for told, _, _ in tally.failures), sep="\n")
    return 1 if attack.failed or tally.failures else 0


def _noted(tally: "Tally", what: str, code: int, said: str) -> None:
    tally.counts[what] += 1
    tally.counts[f"{what} read"] += code == 0
    if code not in (0, 2):
        tally.failures.append((f"{what}: {code}: {said}", b"", ""))


def snapshot(rng: random.Random) -> bytes:
    """A history long enough for the compiled reader; two of three are damaged."""
    stacks = [[{"name": f"f{i}", "filename": "a.py", "line": i}] for i in range(3)]
    ends = [1 << 40]
    events, alive = [], []
    for at in range(rng.choice((40, 400, 3000))):
        size = rng.choice((1, 512, 513, 1 << 20, 3 << 20, rng.randrange(1, 1 << 30)))
        base = {"stream": rng.choice((0, 0, 7)), "frames": rng.choice(stacks), "time_us": at}
        if alive and rng.random() < 0.5:
            one = alive.pop(rng.randrange(len(alive)))
            events += [base | one | {"action": a} for a in ("free_requested", "free_completed")]
            continue
        one = {"addr": rng.choice(ends), "size": size}
        alive.append(one)
        ends.append(one["addr"] + -(-size // 512) * 512)
        if rng.random() < 0.1:
            events.append(base | one | {"action": rng.choice(SEGMENTS)})
        events.append(base | one | {"action": "alloc"})
    held = {"segments": [], "device_traces": [events]}
    how = rng.randrange(3)
    if how == 1:
        spoilt(held, rng)
    raw = pickle.dumps(held, rng.choice((2, 4)))
    return damaged(raw, rng) if how == 2 else raw


SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


def any_blocks(rng: random.Random) -> None:
    """Calls in any order, with any numbers; where they make sense, tests compare the two forms."""
    from pinchpoint.analysis.memory.allocator import block_sizes

    split = rng.choice((None, 1, 1 << 21))
    rules = block_sizes.Rules(expandable=rng.random() < 0.5, max_split_bytes=split)
    blocks = block_sizes.made(rules)
    first = rng.choice((0, 1 << 40, (1 << 63) - 4096, (1 << 64) - 8192))
    near = [first + 512 * at for at in range(rng.choice((12, 6000)))]
    near = [at for at in near if at < 1 << 64]
    for _ in range(rng.choice((5, 50))):
        start, end = sorted((rng.choice(near), rng.choice(near)))
        how, kind = rng.choice(("join", "use", "lose", "run", "run")), rng.randrange(4)
        if how == "run":
            count = rng.choice((0, 40, 5000))
            born = np.array([rng.random() < 0.5 for _ in range(count)], np.uint8)
            address = np.array([rng.choice(near) for _ in range(count)], np.uint64)
            least = np.array([rng.choice((1, 512, 1 << 62)) for _ in range(count)], np.int64)
            assert len(blocks.run(born, address, least)) == int(born.sum())
        else:
            getattr(blocks, how)(start, end, kind % 2 if how == "lose" else kind)


def asan() -> str | None:
    """The library that must be loaded first, as Python itself is not built with it."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        return None
    asked = [compiler, "-print-file-name=libasan.so"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return found if Path(found).is_absolute() else None


def build() -> None:
    """The package with its native modules, built with checks."""
    shutil.rmtree(BUILT, ignore_errors=True)
    ours = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "src/pinchpoint", BUILT / "pinchpoint", ignore=ours)
    env = os.environ | {"CFLAGS": FLAGS, "LDFLAGS": SANITIZERS}
    words = [sys.executable, "setup.py", "-q", "build_ext", "--force", "--build-lib", str(BUILT)]
    subprocess.run([*words, "--build-temp", str(BUILT / "objects")], cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    sys.exit(main())
