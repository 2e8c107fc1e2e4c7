"""The fuzzers for as long as one likes: python tests/fuzz/long_run.py --minutes 60 [--seed 1].

``--commands`` gives every command that takes a file what is no good one (``commands.py``).
``--soak N`` calls N commands in one process, and nothing may grow meanwhile (``soak.py``).
``--readers`` damages small files and reads them, some hundred times as many as are diagnosed
without it; ``--each N`` ends it when every reader had N mutants, PyTorch's ten times as many or
what ``--pytorch`` says; ``--only perfetto`` is for that reader alone. ``readers.json`` in the
folder of ``--keep`` has the same in numbers.
"""

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from fuzz import readers, samples  # noqa: E402
from fuzz.checks import Tally, one_round, same_answer_round, seeds  # noqa: E402

SAME_ANSWER_RATIO = 0.02  # each takes five diagnoses of a whole recording
TOLD_EVERY_S = 60


def main() -> int:
    """Fuzz, keep what failed in a folder, print the tally; 1 if anything failed."""
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--commands", action="store_true")
    options.add_argument("--soak", type=int)
    options.add_argument("--readers", action="store_true")
    options.add_argument("--each", type=int, default=10**9)
    options.add_argument("--pytorch", type=int)
    options.add_argument("--only", choices=[name for reader in readers.READERS for name in reader])
    options.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    chosen = options.parse_args()
    if chosen.commands:
        from fuzz import commands

        return commands.run(few=False, each=chosen.each, seed=chosen.seed, only=[])
    if chosen.soak:
        from fuzz import soak

        return soak.run(chosen.soak, chosen.seed)
    if chosen.readers:
        return _readers(chosen)
    tally, files = fuzz(chosen.minutes, random.Random(chosen.seed))
    kept = {told: (raw, name) for told, raw, name in tally.failures}
    for number, (told, (raw, name)) in enumerate(kept.items()):
        chosen.keep.mkdir(parents=True, exist_ok=True)
        (chosen.keep / f"{number:03}-{name}").write_bytes(raw)
        print(f"FAILED {number:03}-{name}: {told}")
    for what, count in sorted(tally.counts.items()):
        print(f"{count:9,} {what}")
    print(f"{len(files):9,} seeds, {len(tally.failures):,} failures, {len(kept):,} kinds")
    return 1 if kept else 0


def fuzz(minutes: float, rng: random.Random) -> tuple[Tally, list[Path]]:
    """Rounds over all seeds in turn until the time is over."""
    tally, files = Tally(), seeds()
    made = list(samples.samples().values())
    traces = [p for p in files if p.parent.name in ("kineto", "labelled", "ranks")]
    until = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="pinchpoint-fuzz-") as folder:
        while time.monotonic() < until:
            one_round(rng.choice(files), rng, Path(folder), tally)
            with tempfile.TemporaryDirectory(dir=folder) as own:
                samples.one_round(rng.choice(made), rng, Path(own), tally)
            if rng.random() < SAME_ANSWER_RATIO:
                same_answer_round(rng.choice(traces), rng, Path(folder), tally)
    return tally, files


def _readers(chosen: argparse.Namespace) -> int:
    """Turns of all readers; what came of it so far is in the folder, once a minute."""
    rng, until = random.Random(chosen.seed), time.monotonic() + chosen.minutes * 60
    chosen.keep.mkdir(parents=True, exist_ok=True)
    memory = Path("/dev/shm")  # a disk would take longer than the readers
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        tempfile.tempdir = scratch  # what readers unpack as well
        (home := Path(scratch) / "made").mkdir()
        found = readers.attacks(home)
        if chosen.only is not None:
            readers.READERS = tuple(each for each in readers.READERS if chosen.only in each)
            found = {name: found[name] for reader in readers.READERS for name in reader}
        gc.freeze()  # all that is loaded stays: it need not be looked through again and again
        readers.limited()
        told, number = 0.0, 0
        pytorch = 10 * chosen.each if chosen.pytorch is None else chosen.pytorch
        while names := readers.turns(number, found, chosen.each, pytorch):
            number += 1
            for name in names:
                readers.one_round(name, found[name], rng, Path(scratch) / name)
            if time.monotonic() > min(until, told):
                told = time.monotonic() + TOLD_EVERY_S
                _tell(found, chosen.keep)
            if time.monotonic() > until:
                break
    return _tell(found, chosen.keep)


def _tell(found: dict[str, readers.Attack], keep: Path) -> int:
    """Write and print the tally; 1 if anything failed."""
    whole: Counter[str] = Counter()
    lines = []
    for name, attack in found.items():
        whole.update(attack.counts)
        seen = ", ".join(f"{n:,} {what}" for what, n in sorted(attack.counts.items()))
        spent = f"slowest {attack.slowest_s:.2f} s of CPU"
        rate = attack.counts["mutants"] / attack.cpu_s if attack.cpu_s else 0.0
        lines.append(f"{name}: {seen}, {spent}, {rate:,.0f} mutants a second of CPU")
        for number, (told, files) in enumerate(attack.failed.items()):
            for at, (raw, file) in enumerate(files):
                (keep / f"{name.replace(' ', '-')}-{number:03}-{at}-{file}").write_bytes(raw)
            lines.append(f"FAILED {name} {number:03}: {told}")
    lines.append(json.dumps(whole))
    counted = {
        " / ".join(reader): {
            "mutants": readers.mutants(reader, found),
            "cpu_s": round(sum(found[name].cpu_s for name in reader), 2),
            "failed": sum(found[name].counts["failed"] for name in reader),
        }
        for reader in readers.READERS
    }
    (keep / "readers.json").write_text(json.dumps(counted, indent=1) + "\n")
    (keep / "readers.txt").write_text("\n".join(lines) + "\n")
    if whole["failed"]:
        print(f"{whole['failed']:,} failures: {keep}/readers.txt", flush=True)
    return 1 if whole["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
