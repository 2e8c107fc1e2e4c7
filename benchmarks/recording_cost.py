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
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pinchpoint as pp
from accuracy_rows import STABLE_RATIO, recordings
from pinchpoint.analysis.replay.predict import Replayable, replayable
from pinchpoint.analysis.replay.recording_cost import (
    COSTS,
    EventCosts,
    RecordedEvents,
    events_in_windows,
)
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import Trace

USABLE_RATIO, CUT = 0.15, 0.35
_TRIED = {
    "operator_ns": (3_000, 5_000, 7_000, 8_500),
    "python_ns": (700, 1_400, 2_000, 2_800),
    "call_ns": (1_500, 3_000, 4_500, 6_000, 8_000),
}
NOTHING = EventCosts(0, 0, 0)


@dataclass(frozen=True, eq=False)
class Sample:
    """One recording with its true step, and what is needed to take recording out of it."""

    family: str
    base: Replayable
    lanes: tuple[tuple[NDArray[np.intp], RecordedEvents], ...]  # nodes, and what came before each
    typical_ns: int
    true_ns: float
    apart: float  # of its two unprofiled windows

    @property
    def stable(self) -> bool:
        """Whether the windows agree, so that an error is one of the prediction."""
        return self.apart <= STABLE_RATIO

    def ratio(self, costs: EventCosts) -> float:
        """Predicted over true."""
        graph = self.base.graph
        gap = graph.gap_ns.copy()
        for at, events in self.lanes:
            gap[at] -= np.minimum(events.cost_ns(costs), np.maximum(gap[at], 0))
        without = self.base.mean_ns(replace(graph, gap_ns=gap))
        return self.typical_ns * min(without / self.base.settled_ns, 1.0) / self.true_ns


@dataclass(frozen=True)
class HeldOutCosts:
    """Errors of the step without the profiler; families have no part in the costs they get."""

    families: tuple[str, ...]  # of each sample
    stable: tuple[bool, ...]
    as_recorded: tuple[float, ...]  # errors, |predicted / true - 1|
    in_use: tuple[float, ...]
    held_out: tuple[float, ...]
    chosen: tuple[tuple[EventCosts, int], ...]  # costs, and how many families got them
    with_all: EventCosts


def sample(trace: Trace, family: str, true_ns: float, apart: float) -> Sample | None:
    """What a recording says about costs; None where its true step is not known well enough."""
    base, typical = replayable(trace), steps(trace).typical_ns
    if apart > USABLE_RATIO or base is None or typical is None or base.settled_ns <= 0:
        return None
    graph, lanes = base.graph, []
    for lane, threads in enumerate(graph.lane_threads):
        at = np.flatnonzero(graph.lane == lane)
        start, end = graph.previous_end_ns[at], graph.start_ns[at]
        lanes.append((at, events_in_windows(trace, threads, start, end)))
    return Sample(family, base, tuple(lanes), typical, true_ns, apart)


def tried() -> list[EventCosts]:
    """The costs in use first, then the grid."""
    grid = [EventCosts(*values) for values in product(*_TRIED.values())]
    return list(dict.fromkeys((COSTS, *grid)))


def held_out(rows: Sequence[Sample]) -> HeldOutCosts | None:
    """Each family with the costs that fit the others best."""
    if not rows:
        return None
    ratio = np.array([[row.ratio(costs) for costs in tried()] for row in rows])
    cut = np.minimum(np.abs(np.log(np.maximum(ratio, 1e-9))), CUT)
    loss = cut * np.array([[2.0 if row.stable else 1.0] for row in rows])
    error = np.abs(ratio - 1)
    families = np.array([row.family for row in rows])
    left, chosen = np.zeros(len(rows)), Counter[EventCosts]()
    for family in sorted(set(families.tolist())):
        others = families != family
        best = int(loss[others].sum(axis=0).argmin())
        chosen[tried()[best]] += 1
        left[~others] = error[~others, best]
    return HeldOutCosts(
        tuple(families.tolist()),
        tuple(row.stable for row in rows),
        tuple(abs(row.ratio(NOTHING) - 1) for row in rows),
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
    _print("as recorded", [abs(row.ratio(NOTHING) - 1) for row in stable])
    _print("corrected", [abs(row.ratio(COSTS) - 1) for row in stable])
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
