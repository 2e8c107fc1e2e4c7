"""Fit what recording costs the host, an event, and print what is left of the error.

    python benchmarks/recording_cost.py CORPUS [--held-out]

CORPUS holds ``labelled/truth.jsonl`` and ``h200/truth.jsonl``: the same programs with and without
the profiler. The costs in ``analysis/replay/recording_cost.py`` are compared with those that fit
best: least mean error over a grid, with rows whose two unprofiled windows agree within 5 % counted
twice, and errors above 35 % cut so that a row which no cost explains does not decide.
``--held-out`` makes the fit for each program family without it, and tries it on that family.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

import pinchpoint as pp
from accuracy_rows import STABLE_RATIO, recordings
from pinchpoint.analysis.replay.apply import without_recording
from pinchpoint.analysis.replay.recording_cost import COSTS, RecordingCosts, Share
from pinchpoint.analysis.replay.window import replayable
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import Trace

USABLE_RATIO, CUT = 0.15, 0.35
# Shares (ratio, most in ns) of intervals next to operators, frames, calls and calls that only ask.
# Those close to these differ by less than what one program decides.
_TRIED = (
    ((0.80, 6_000), (0.80, 8_000), (0.85, 8_000), (0.80, 30_000)),
    ((0.80, 5_000), (0.85, 8_000)),
    ((0.65, 12_000), (0.70, 12_000), (0.70, 8_000)),
    ((0.70, 2_000), (0.70, 12_000)),
)


@dataclass(frozen=True)
class Sample:
    """One recording: its step over the true one, as recorded and without recording."""

    family: str
    recorded_ratio: float
    ratios: tuple[float, ...]  # for each of tried()
    apart: float  # of its two unprofiled windows

    @property
    def stable(self) -> bool:
        """Whether the windows agree, so that an error is one of the prediction."""
        return self.apart <= STABLE_RATIO


@dataclass(frozen=True)
class HeldOutCosts:
    """Errors of the step without the profiler; families have no part in the costs they get."""

    families: tuple[str, ...]  # of each sample
    stable: tuple[bool, ...]
    as_recorded: tuple[float, ...]  # errors, |predicted / true - 1|
    in_use: tuple[float, ...]
    held_out: tuple[float, ...]
    chosen: tuple[tuple[RecordingCosts, int], ...]  # costs, and how many families got them
    with_all: RecordingCosts


def sample(trace: Trace, family: str, true_ns: float, apart: float) -> Sample | None:
    """What a recording says about costs; None where its true step is not known well enough."""
    base, typical = replayable(trace), steps(trace).typical_ns
    if apart > USABLE_RATIO or base is None or typical is None or base.settled_ns <= 0:
        return None
    recorded = typical / true_ns

    def ratio(costs: RecordingCosts) -> float:
        without = base.mean_ns(without_recording(trace, base.graph, costs))
        return recorded * min(without / base.settled_ns, 1.0)

    return Sample(family, recorded, tuple(ratio(costs) for costs in tried()), apart)


def tried() -> list[RecordingCosts]:
    """The costs in use first, then the grid."""
    grid = [RecordingCosts(*(Share(*of) for of in shares)) for shares in product(*_TRIED)]
    return list(dict.fromkeys((COSTS, *grid)))


def held_out(rows: Sequence[Sample]) -> HeldOutCosts | None:
    """Each family with the costs that fit the others best."""
    if not rows:
        return None
    ratio = np.array([row.ratios for row in rows])
    cut = np.minimum(np.abs(np.log(np.maximum(ratio, 1e-9))), CUT)
    loss = cut * np.array([[2.0 if row.stable else 1.0] for row in rows])
    error = np.abs(ratio - 1)
    families = np.array([row.family for row in rows])
    left, chosen = np.zeros(len(rows)), Counter[RecordingCosts]()
    for family in sorted(set(families.tolist())):
        others = families != family
        best = int(loss[others].sum(axis=0).argmin())
        chosen[tried()[best]] += 1
        left[~others] = error[~others, best]
    return HeldOutCosts(
        tuple(families.tolist()),
        tuple(row.stable for row in rows),
        tuple(abs(row.recorded_ratio - 1) for row in rows),
        tuple(error[:, 0].tolist()),
        tuple(left.tolist()),
        tuple(chosen.most_common()),
        tried()[int(loss.sum(axis=0).argmin())],
    )


def main() -> int:
    """Print errors with and without correction, and with held-out costs if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    rows = [
        one
        for path, truth in recordings(options.corpus)
        if (one := sample(pp.load(path), truth["case"], truth["unprofiled_ns"], truth["apart"]))
    ]
    stable = [row for row in rows if row.stable]
    print(f"{len(rows)} recordings, {len(stable)} of them stable; {COSTS}")
    _print("as recorded", [abs(row.recorded_ratio - 1) for row in stable])
    _print("corrected", [abs(row.ratios[0] - 1) for row in stable])
    found = held_out(rows) if options.held_out else None
    if found is not None:
        _print(
            "with costs fitted to other families",
            [e for e, ok in zip(found.held_out, found.stable, strict=True) if ok],
        )
        print(f"fitted to all: {found.with_all}")
    return 0


def _print(label: str, errors: list[float]) -> None:
    error = sorted(errors)
    print(
        f"{label:40s} median {error[len(error) // 2]:6.1%}"
        f"  90th percentile {error[9 * len(error) // 10]:6.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
