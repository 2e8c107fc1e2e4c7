"""Places of findings that looks at the whole run know better than the recording does.

torch's profiler may lose where a function ends (2.13, where one is left by an operator that has a
mode of its own): what it does from then on belongs to its caller. Looks have each stack as it was.
Where these cannot have been in a function for most of what is found there, and were in one function
that it calls, that is the place; of an operator, in a call that the function makes.
"""

from collections import Counter
from dataclasses import replace

import msgspec

from pinchpoint.analysis.host.frames import PythonFrame, frame_of
from pinchpoint.analysis.mean.stacks import own_frame, own_functions
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.evidence.thread_of_steps import steps_on_main_thread
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

LEAST_RATIO = 0.25  # of the step: what takes less, some hundred looks do not place for sure
AGREES_RATIO = 0.5  # of its share: looks and a recording differ by less in steps that are alike
FEWEST_LOOKS = 50  # at the main thread; of fewer, a quarter is seen a dozen times

_Function = tuple[str, str]  # file, name


@dataclass(frozen=True)
class _Looks:
    """Shares of the main thread's time in its steps, the first two left out."""

    inner: dict[_Function, float]  # by the innermost function of the program
    below: dict[_Function, Counter[PythonFrame]]  # the same frames, by a function further out
    in_calls: dict[_Function, Counter[PythonFrame]]  # of them those that were in a call


def with_inner_places(trace: Trace, said: Diagnosis) -> Diagnosis:
    """The same findings, each in the function in which it was seen."""
    base_ns, looks = step_base_ns(trace), _looks(trace)
    if looks is None or not base_ns:
        return said
    return replace(said, found=tuple(_placed(one, looks, base_ns) for one in said.found))


def _placed(one: Ranked, looks: _Looks, base_ns: int) -> Ranked:
    at, cost_ns = one.finding.location, one.finding.cost_ns_per_step
    if at is None or at.function is None or at.file is None or at.module or cost_ns is None:
        return one
    here, least = (at.file, at.function), AGREES_RATIO * min(cost_ns / base_ns, 1.0)
    if least < AGREES_RATIO * LEAST_RATIO or looks.inner.get(here, 0.0) >= least:
        return one
    below = (looks.in_calls if at.operator else looks.below).get(here, Counter())
    places: Counter[_Function] = Counter()
    for frame, share in below.items():
        places[frame.file, frame.function] += share
    function, most = max(places.items(), key=lambda item: item[1], default=(here, 0.0))
    if most < least:
        return one
    lines = {f: n for f, n in below.items() if (f.file, f.function) == function}
    line = max(lines, key=lambda frame: lines[frame]).line
    place = Location(function[0], line, function[1], operator=at.operator)
    return replace(one, finding=msgspec.structs.replace(one.finding, location=place))


def _looks(trace: Trace) -> _Looks | None:
    samples = trace.run.samples if trace.run else None
    main = None if samples is None else next((t for t in samples.threads if t.main), None)
    if main is None or not main.spent or not steps_on_main_thread(trace):
        return None
    if sum(one.looks for one in main.spent) < FEWEST_LOOKS:
        return None
    after = {samples.spelt(row): us for row, us in samples.after} if samples else {}
    spent = [(one, max(one.us - after.get(one.frames, 0), 0)) for one in main.spent]
    whole = max(sum(us for _, us in spent), 1)
    inner: Counter[_Function] = Counter()
    below: dict[_Function, Counter[PythonFrame]] = {}
    in_calls: dict[_Function, Counter[PythonFrame]] = {}
    for one, us in spent:
        frame = own_frame(one.frames)
        if frame is None:
            continue
        mine = (frame.file, frame.function)
        inner[mine] += us
        calls = bool(one.doing) or frame_of(one.frames[0]) != frame
        for outer in own_functions(one.frames):
            if outer != mine:
                for table in (below, in_calls)[: 1 + calls]:
                    table.setdefault(outer, Counter())[frame] += us
    return _Looks(
        {place: us / whole for place, us in inner.items()},
        _shares(below, whole),
        _shares(in_calls, whole),
    )


def _shares(
    of: dict[_Function, Counter[PythonFrame]], whole: int
) -> dict[_Function, Counter[PythonFrame]]:
    return {
        outer: Counter({frame: us / whole for frame, us in frames.items()})
        for outer, frames in of.items()
    }
