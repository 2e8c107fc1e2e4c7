"""The fuzzers for as long as one likes: python tests/fuzz/long_run.py --minutes 60 [--seed 1]."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from fuzz import samples  # noqa: E402
from fuzz.checks import Tally, one_round, same_answer_round, seeds  # noqa: E402

SAME_ANSWER_RATIO = 0.02  # each takes five diagnoses of a whole recording


def main() -> int:
    """Fuzz, keep what failed in a folder, print the tally; 1 if anything failed."""
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    chosen = options.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
