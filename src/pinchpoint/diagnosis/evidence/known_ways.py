"""What is known of a call of a library at a place that another rule has found to take long."""

from msgspec.structs import replace

from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.diagnosis.evidence.called_lines import CalledLine, found_slow
from pinchpoint.diagnosis.evidence.calls_again import found_again
from pinchpoint.diagnosis.evidence.slow_ways.table import way_of
from pinchpoint.diagnosis.finding import Found, Location, Small
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import Called

FEWEST_LOOKS = 6  # at the call, before it is looked into
MOSTLY_RATIO = 0.5  # of the looks at calls in that function: less of it may be what takes long


def with_known_way(trace: Trace, found: Found | Small, *, keeps_fix: bool = False) -> Found | Small:
    """The same finding with the cause and its fix, where most looks at calls of libraries in its
    function were at one that is known as slow for what it is given, or that is given the same.

    ``keeps_fix``: its own fix helps as well, and is told after that.
    """
    call = _main_call(trace, found.location) if isinstance(found, Found) else None
    if call is None or not isinstance(found, Found):
        return found
    line = CalledLine(call, 0, 1, call.looks)
    known = found_again(line) or (found_slow(line, *way) if (way := way_of(call)) else None)
    if known is None:
        return found
    said = known.summary.removesuffix(": {time}").replace(line.said, line.spelt, 1)
    at = line.location
    return replace(
        found,
        summary=f"{found.summary}; {said}",
        fix=f"{known.fix}. Else {found.fix[:1].lower()}{found.fix[1:]}" if keeps_fix else known.fix,
        hint=known.hint,
        location=replace(found.location, line=at.line) if at and found.location else found.location,
    )


def _main_call(trace: Trace, place: Location | None) -> Called | None:
    samples = trace.run.samples if trace.run else None
    there = [one for one in (samples.called if samples else ()) if _is_in(one, place)]
    most = max(there, key=lambda one: one.looks, default=None)
    if most is None or most.looks < FEWEST_LOOKS:
        return None
    return most if most.looks >= MOSTLY_RATIO * sum(one.looks for one in there) else None


def _is_in(call: Called, place: Location | None) -> bool:
    frame = own_frame((call.at,))
    if frame is None or place is None or frame.function != place.function:
        return False
    # jax.profiler knows the name of a file without its folder.
    return f"/{frame.file}".endswith(f"/{place.file}")
