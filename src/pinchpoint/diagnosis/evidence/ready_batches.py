"""What steps win that wait for no batch, where the whole run shows how long they wait."""

from pinchpoint.analysis.mean.growth import Growth, grown_ns, growth
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.predict import what_if
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

LEAST_RATIO = 0.75  # of the waits: a fix leaves some of them


@dataclass(frozen=True)
class Won:
    """Of the mean step, in nanoseconds."""

    range_ns: tuple[int, int]
    likely_ns: int


def won_if_ready(trace: Trace, waits_ns: int, *, divide_among: int | None = None) -> Won:
    """What ``waits_ns`` in the far steps of the run come to once batches are ready.

    Growth of the steps goes with them, where late ones are longer by waits. So may what busy
    workers cost the thread of the steps: as much as any step after a fix may be shorter than said.
    Workers that each do the work of all, ``divide_among`` so many, make a batch in that part of
    today's step once they divide it; where that is less than the step is then, all waits go.
    """
    grown = growth(trace)
    if grown is not None and grows_by_waits(trace, grown):
        waits_ns += grown_ns(trace)
    left, base_ns = what_if(trace, ()), step_base_ns(trace) or 0
    shorter_ns = 0 if left is None else max(left.step_ns - left.range_ns[0], 0)
    most_ns = waits_ns + shorter_ns + round(AFTER_A_FIX.beyond * waits_ns)
    least_ns = round(LEAST_RATIO * waits_ns)
    all_go = divide_among is not None and base_ns <= divide_among * (base_ns - waits_ns)
    return Won((least_ns, most_ns), waits_ns if all_go else (least_ns + waits_ns) // 2)


def grows_by_waits(trace: Trace, found: Growth) -> bool:
    """Whether late steps are longer because more of them wait for their batch, at the place that
    grew most: a loader falls behind once what it had made before is used up."""
    if not found.places:
        return False
    most = found.places[0]
    if 2 * most.more_ns < found.late_ns - found.early_ns:
        return False
    return any(
        cause.kind is GapKind.DATA
        and cause.recurs
        and cause.place.at is not None
        and (cause.place.at.file, cause.place.at.function) == (most.at.file, most.at.function)
        for cause in rare_causes(trace)[:1]
    )
