"""How a comparison that did not decide can be made to: in commands, with what they cost."""

import os
from collections.abc import Mapping, Sequence
from math import ceil

from pinchpoint.bench.ab.at_once import why_apart
from pinchpoint.bench.ab.decision import Decision
from pinchpoint.bench.ab.pairs import Pair, pair_seconds
from pinchpoint.bench.measures import DURATION, WORK
from pinchpoint.bench.run.validity import BUSY_LOAD_RATIO, is_busy

MOST_PAIRS = 400  # of runs; more take a day of any program worth measuring
_MARGIN = 1.1  # of what the spread so far asks for: it is an estimate


def advice(
    decisions: Mapping[str, Decision],
    pairs: Sequence[Pair],
    *,
    at_once_tried: bool = False,
    in_budget: bool = False,
) -> tuple[str, ...]:
    """One sentence a way, the surest first; empty if all is decided.

    ``in_budget``: a budget of time says how many pairs there are, as in ``bench check``.
    """
    still_open = {n: d for n, d in decisions.items() if d.verdict == "inconclusive"}
    if not still_open:
        return ()
    said = []
    load = os.getloadavg()[0]
    runs = [run for pair in pairs for run in pair]
    if not at_once_tried and not any(run.at_once for run in runs) and not why_apart(runs):
        said.append(
            "--at-once, if A and B write no file of the same name: both of a pair then meet the"
            " same machine"
        )
    if is_busy(load, os.cpu_count()):
        cpus = os.cpu_count() or 1
        quiet = f"{BUSY_LOAD_RATIO * cpus:g}"
        said.append(f"the load is {load:.0f} on {cpus} CPUs: wait until it is below {quiet}")
    if set(still_open) <= {WORK, DURATION}:
        said.append(
            "time its steps: pinchpoint.step() at the end of each, or --step-function NAME of what"
            " repeats"
        )
    needed = [d.pairs_needed for d in still_open.values()]
    known = [n for n in needed if n is not None]
    if len(known) == len(needed):
        wanted = ceil(_MARGIN * max(known))
        minutes = max(1, round(wanted * pair_seconds(pairs) / 60))
        said.append(
            f"--budget {minutes}m: {wanted} pairs as long as these"
            if in_budget
            else f"--pairs {wanted}, about {minutes} min here"
        )
    else:
        said.append(f"longer runs: even {MOST_PAIRS} pairs as short as these would not tell")
    seen = [d.smallest_visible_ratio for d in still_open.values()]
    visible = max((s for s in seen if s is not None), default=None)
    if visible is not None and visible < 1:
        least = "a threshold of " if in_budget else "--threshold "
        said.append(f"{least}{ceil(100 * visible)}%: what this many pairs can see")
    return tuple(said)
