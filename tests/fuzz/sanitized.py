"""The native modules under AddressSanitizer and UBSan: python tests/fuzz/sanitized.py [--files N].

Builds them into a copy of the package below build/, checks that each was loaded from there, reads
mutants of the smallest trace of PyTorch's, and diagnoses two recordings, which replays them. A
wrong access ends the process with a report; exit code 0 where there was none, 3 without a compiler
or its sanitizers.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/sanitized"
SANITIZERS = "-fsanitize=address,undefined"
FLAGS = f"{SANITIZERS} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"
NO_COMPILER = 3
# What is checked runs inside Python, which keeps memory to its end.
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
ATTACK = """
import random, sys, tempfile
from pathlib import Path
from fuzz import checks, readers
from pinchpoint.analysis.memory.allocator import _blocks
from pinchpoint.analysis.replay import _passes
from pinchpoint.importers.kineto.native import _nest, _scan
from pinchpoint.importers.memory_snapshot import _runs
import pinchpoint as pp
home = Path(sys.argv[1])
for module in (_passes, _nest, _scan, _runs, _blocks):
    assert Path(module.__file__).is_relative_to(home), module.__file__
with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    (place / "made").mkdir()
    attack = readers.attacks(place / "made")["kineto with all"]
    rng = random.Random(int(sys.argv[3]))
    for _ in range(int(sys.argv[2])):
        readers.one_round("kineto with all", attack, rng, place / "kineto")
    for name in ("kineto/decode_cudagraph", "labelled/c21_python_gc.slow"):
        pp.diagnose(str(checks.DATA / f"{name}.json.gz"))
print(dict(attack.counts), attack.failed and list(attack.failed))
sys.exit(1 if attack.failed else 0)
"""


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
