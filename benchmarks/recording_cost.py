"""Fit what recording costs the host, an event, and print what is left of the error.

    python benchmarks/recording_cost.py CORPUS [--fit]

CORPUS holds ``labelled/truth.jsonl``: the same programs with and without the profiler. The costs in
``analysis/replay/recording_cost.py`` come from ``--fit``: coordinate descent on the mean error,
with rows whose two unprofiled windows agree within 5 % counted twice, and errors above 35 % cut so
that a row which no cost explains does not decide.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.replay.predict import Replayable, replayable
from pinchpoint.analysis.replay.recording_cost import COSTS, EventCosts, cost_in_windows
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import Trace

STABLE_RATIO, USABLE_RATIO, CUT = 0.05, 0.15, 0.35


@dataclass(frozen=True, eq=False)
class Sample:
    """One recording with its true step."""

    name: str
    trace: Trace
    base: Replayable
    typical_ns: int
    true_ns: float
    stable: bool

    def ratio(self, costs: EventCosts) -> float:
        """Predicted over true."""
        graph, gap = self.base.graph, self.base.graph.gap_ns.copy()
        for lane, threads in enumerate(graph.lane_threads):
            at = np.flatnonzero(graph.lane == lane)
            start, end = graph.previous_end_ns[at], graph.start_ns[at]
            cost = cost_in_windows(self.trace, threads, start, end, costs)
            gap[at] -= np.minimum(cost, np.maximum(gap[at], 0))
        without = self.base.mean_ns(replace(graph, gap_ns=gap))
        return self.typical_ns * min(without / self.base.settled_ns, 1.0) / self.true_ns


def samples(corpus: Path) -> list[Sample]:
    """Every recording whose true step is known well enough."""
    found = []
    for line in (corpus / "labelled" / "truth.jsonl").read_text().splitlines():
        fact = json.loads(line)
        first, second = fact["step_ms_unprofiled"]
        apart = abs(first - second) / min(first, second)
        if not fact["trace"] or apart > USABLE_RATIO:
            continue
        trace = pp.load(corpus / "labelled" / fact["trace"])
        base, typical = replayable(trace), steps(trace).typical_ns
        if base is not None and typical is not None:
            true = min(first, second) * 1e6
            found.append(Sample(fact["trace"], trace, base, typical, true, apart <= STABLE_RATIO))
    return found


def loss(rows: list[Sample], costs: EventCosts) -> float:
    """Mean of cut errors, stable rows twice."""
    weight = np.array([2.0 if r.stable else 1.0 for r in rows])
    error = np.array([min(abs(np.log(max(r.ratio(costs), 1e-9))), CUT) for r in rows])
    return float((weight * error).sum() / weight.sum())


def fit(rows: list[Sample]) -> EventCosts:
    """Coordinate descent from the costs in use."""
    best, least = COSTS, loss(rows, COSTS)
    for _ in range(2):
        for field in ("operator_ns", "python_ns", "call_ns"):
            for factor in (0.7, 0.85, 1.2, 1.4):
                trial = replace(best, **{field: getattr(best, field) * factor})
                value = loss(rows, trial)
                if value < least - 1e-4:
                    best, least = trial, value
                    print(f"{value:.4f}  {trial}", flush=True)
    return best


def main() -> int:
    """Print errors with and without correction, and the fit if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    rows = samples(options.corpus)
    costs = fit(rows) if options.fit else COSTS
    stable = [r for r in rows if r.stable]
    nothing = EventCosts(0, 0, 0)
    print(f"{len(rows)} recordings, {len(stable)} of them stable; {costs}")
    for label, used in (("as recorded, profiler's own steps out", nothing), ("corrected", costs)):
        error = sorted(abs(r.ratio(used) - 1) for r in stable)
        print(
            f"{label:40s} median {error[len(error) // 2]:6.1%}"
            f"  90th percentile {error[9 * len(error) // 10]:6.1%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
