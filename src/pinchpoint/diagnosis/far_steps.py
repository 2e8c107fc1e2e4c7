"""What the rules say about a far step of the run that was foreseen and recorded by itself.

A rollout every sixteenth step, an evaluation, a save: the recorded usual steps do not show what
makes it long, and samples show no more than its place. So the rules are asked about the far step
alone, and what they find there counts as often as such steps come.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.mean.mean_step import usual_error_ns
from pinchpoint.analysis.mean.rare_steps import RareCause, rare_causes
from pinchpoint.analysis.mean.what_if import saved_mean, step_base_ns
from pinchpoint.analysis.steps.steps import IRREGULAR_RATIO, steps
from pinchpoint.diagnosis import engine
from pinchpoint.diagnosis.engine import (
    SURELY_MATERIAL_RATIO,
    UNSURE_MATERIAL_RATIO,
    Diagnosis,
    Ranked,
)
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import About, Outcome
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration


@dataclass(frozen=True, eq=False)
class _Far:
    """Far steps of the run, and the recording of one of them that is asked about it alone."""

    cause: RareCause
    alone: Trace
    ns_per_step: float  # all time of such steps, of the run's mean step


def with_far_steps(trace: Trace, said: Diagnosis) -> Diagnosis:
    """Add what is found in the recorded far step, and in no usual one, with what it gives the mean
    step of the run."""
    far, base_ns = _far(trace), step_base_ns(trace)
    if far is None or base_ns is None:
        return said
    known = {o.id for o in said.outcomes if o.answer in ("found", "covered")}
    added = [one for one in _of_the_mean(trace, far, base_ns) if one.id not in known]
    if not added:
        return said
    by = tuple(one.id for one in added)
    told = {r.id for r in said.found if _is_explained(r, far, added)}
    kept = (r for r in said.found if r.id not in told)
    found = sorted((*kept, *added), key=lambda r: (len(r.given), -r.saving_ns, r.id))
    new = {r.id: Outcome(r.id, "found", (r.finding,)) for r in added}
    new |= {
        id_: Outcome(id_, "covered", why=f"covered by {' and '.join(by)}", covered_by=by)
        for id_ in told
    }
    outcomes = tuple(new.get(o.id, o) for o in said.outcomes)
    return replace(said, found=tuple(found), outcomes=outcomes)


def _is_explained(one: Ranked, far: _Far, by: list[Ranked]) -> bool:
    """Whether a finding tells no more than that these far steps are long, and others say why: they
    win half of what it does, at least."""
    at, place = one.finding.location, far.cause.place.at
    if not rules()[one.id].rule.residual or at is None or place is None:
        return False
    here = (at.file, at.function) == (place.file, place.function)
    return here and 2 * max(r.saving_ns for r in by) >= one.saving_ns


@once_per_trace
def _far(trace: Trace) -> _Far | None:
    """None unless far steps of the run come again, and one of them was recorded: by itself, where
    it was foreseen, or among the usual ones."""
    run = trace.run
    causes = [c for c in rare_causes(trace) if c.recurs and not c.no_core and c.place.at]
    if run is None or not causes:
        return None
    for window in (run.rare, run.named):
        rows = _far_rows(window)
        if window is None or not len(rows):
            continue
        ran = _functions(window, rows)
        for cause in causes:
            at = cause.place.at
            if at and (at.file, at.function) in ran:
                return _of(cause, window, rows)
    rows = _far_rows(trace)
    if not len(rows):
        return None
    lasting = steps(trace).end_ns[rows] - steps(trace).start_ns[rows]
    most = _mostly(trace, causes[0])
    return _of(causes[0], trace, rows) if most and lasting.min() >= causes[0].usual_ns / 2 else None


# Of what all far steps of the run add: a recorded one that shows no functions is of that cause.
MOSTLY_RATIO = 0.9


def _mostly(trace: Trace, cause: RareCause) -> bool:
    all_ns = sum(one.ns_per_step for one in rare_causes(trace))
    return cause.every is not None and cause.ns_per_step >= MOSTLY_RATIO * all_ns


def _far_rows(window: Trace | None) -> Rows:
    """Complete steps of a recording that are far longer than its usual ones."""
    found = None if window is None else steps(window)
    if found is None or found.typical_ns is None:
        return np.zeros(0, np.intp)
    lasting = found.end_ns - found.start_ns
    return np.flatnonzero(found.complete & (lasting > IRREGULAR_RATIO * found.typical_ns))


def _of(cause: RareCause, window: Trace, rows: Rows) -> _Far:
    alone = replace(window, only_steps=tuple(rows.tolist()), run=None)
    beyond_ns = max(cause.usual_ns - cause.step_ns, 1)
    return _Far(cause, alone, cause.ns_per_step * cause.usual_ns / beyond_ns)


def _functions(trace: Trace, rows: Rows) -> set[tuple[str, str]]:
    """File and name of the Python functions that began within these steps."""
    host, found = trace.host_ops, steps(trace)
    if host is None:
        return set()
    within = np.zeros(len(host), np.bool_)
    for row in rows.tolist():
        begun = host["start_ns"] >= found.host_start_ns[row]
        within |= begun & (host["start_ns"] < found.host_end_ns[row])
    names = (frame_of(trace.names[name]) for name in np.unique(host["name"][within]).tolist())
    return {(frame.file, frame.function) for frame in names if frame is not None}


def _of_the_mean(trace: Trace, far: _Far, base_ns: int) -> Iterator[Ranked]:
    """The far step's own causes, with what each gives the mean step, where that is material."""
    for one in engine.diagnose(far.alone).found:
        rule, after = rules()[one.id].rule, one.predicted
        if one.given or after is None or rule.residual or rule.generic:
            continue
        if rule.about is not About.TIME:
            continue
        low, expected, high = (
            round(far.ns_per_step * (1 - end / after.base_ns))
            for end in (after.range_ns[1], after.step_ns, after.range_ns[0])
        )
        least = SURELY_MATERIAL_RATIO if low > 0 else UNSURE_MATERIAL_RATIO
        mean = saved_mean(trace, (low, high), round(base_ns - high))
        if expected >= least * base_ns and mean is not None:
            # What is left is usual steps, of which a few were timed.
            low_ns, high_ns = mean.range_ns
            error_ns = usual_error_ns(trace)
            around = max(low_ns - error_ns, 0), min(high_ns + error_ns, base_ns)
            least_ns = max((mean.bound_ns or 0) - error_ns, 0)
            mean = replace(mean, step_ns=base_ns - expected, range_ns=around, bound_ns=least_ns)
            yield Ranked(one.id, _told(one, far, (low, high)), mean, expected)


def _told(one: Ranked, far: _Far, saving_ns: tuple[int, int]) -> Found:
    """The finding as one about the mean step, that says which steps it is about; its rows and
    times are those of another recording, and so are left out."""
    first, cause = one.finding, far.cause
    often = f"come every {cause.every}" if cause.every else "come again and again"
    cost = first.cost_ns_per_step
    share = far.ns_per_step / max(steps(far.alone).durations_ns.mean(), 1.0)
    return msgspec.structs.replace(
        first,
        summary=(
            f"In the steps of {duration(cause.usual_ns)} that {often}:"
            f" {first.summary[:1].lower()}{first.summary[1:]}"
        ),
        cost_ns_per_step=None if cost is None else round(share * cost),
        evidence=tuple(Evidence(e.what, e.value, e.unit) for e in first.evidence),
        saving_ns_per_step=saving_ns,
        changes=(),
        at_best=(),
        rows=(),
        location=_place(first.location, cause),
        confidence="medium" if first.confidence == "high" else first.confidence,
    )


def _place(known: Location | None, cause: RareCause) -> Location | None:
    """Where the far steps were seen at, in place of no more than the name of an operator."""
    at = cause.place.at
    if at is None or (known is not None and known.file is not None):
        return known
    return Location(
        at.file, at.line, at.function, operator=None if known is None else known.operator
    )
