"""What steps win that wait for no batch, where the whole run shows how long they wait."""

from pinchpoint.analysis.mean.growth import Growth, grown_ns, growth
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.rare import LEAST_RATIO, won_at_most_ns
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace


@dataclass(frozen=True)
class Won:
    """Of the mean step, in nanoseconds."""

    range_ns: tuple[int, int]
    likely_ns: int


def won_if_ready(trace: Trace, waits_ns: int) -> Won:
    """What ``waits_ns`` in the far steps of the run come to once batches are ready: all of them, as
    in each of five loaders whose fix was measured, in four sets of programs.

    Growth of the steps goes with them, where late ones are longer by waits. So may what busy
    workers cost the thread of the steps: as much as any step after a fix may be shorter than said.
    """
    grown = growth(trace)
    if grown is not None and grows_by_waits(trace, grown):
        waits_ns += grown_ns(trace)
    return Won((round(LEAST_RATIO * waits_ns), won_at_most_ns(trace, waits_ns)), waits_ns)


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
