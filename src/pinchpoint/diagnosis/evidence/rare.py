"""Findings about steps of the whole run that were far from typical, as its samples tell them."""

from collections.abc import Collection, Iterator

from pinchpoint.analysis.mean.mean_step import DIFFERENT_RATIO, mean_without_profiler_ns
from pinchpoint.analysis.mean.rare_steps import RareCause, rare_causes
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.predict import what_if
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.tried_ways import TriedWay, tried_in
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import TriedAt

LEAST_RATIO = 0.75  # of the excess: a fix may leave some of it; of five measured, none did
_LEAST_OF_STEP_RATIO = MATERIAL_STEP_RATIO / LEAST_RATIO  # of which the sure part is material
FEW = 3  # far steps: fewer are an accident that the next run may not have

_WHAT = {
    GapKind.DATA: "it waits for its batch",
    GapKind.GC: "garbage is collected",
    GapKind.CHECKPOINT: "a checkpoint is saved or loaded",
    GapKind.LOGGING: "logs, pictures or files are written",
    GapKind.COMPILE: "something is compiled",
    GapKind.WAIT: "it waits for another thread or process",
    GapKind.AUTOGRAD: "the backward pass takes longer",
}


def rare_found(
    trace: Trace, kinds: Collection[GapKind], *, fix: str, hint: str | None = None
) -> Iterator[Found]:
    """Findings about causes of these kinds that come again and are worth fixing."""
    base = step_base_ns(trace)
    for cause in material(trace) if base else ():
        if cause.kind in kinds:
            yield found_of(trace, cause, fix, hint)


def rare_and_small(trace: Trace, kinds: Collection[GapKind]) -> Iterator[Small]:
    """The others of these kinds: they come again and are not worth fixing."""
    base, told = step_base_ns(trace), material(trace)
    for cause in _that_recur(trace) if base else ():
        if cause.kind in kinds and cause not in told:
            yield Small(cause.ns_per_step / (base or 1), _LEAST_OF_STEP_RATIO)


def material(trace: Trace) -> list[RareCause]:
    """Causes of far steps that come again and are worth fixing, most time first."""
    base = step_base_ns(trace)
    if base is None:
        return []
    return [c for c in _that_recur(trace) if c.ns_per_step >= _LEAST_OF_STEP_RATIO * base]


def _that_recur(trace: Trace) -> list[RareCause]:
    return [c for c in rare_causes(trace) if c.recurs and c.kind is not GapKind.UNRECORDED]


def won_at_most_ns(trace: Trace, ns: int) -> int:
    """What a fix may win that takes ``ns`` of the far steps away: usual steps are left, which may
    be as much shorter as any step after a fix."""
    left = what_if(trace, ())
    shorter_ns = 0 if left is None else max(left.step_ns - left.range_ns[0], 0)
    return ns + shorter_ns + round(AFTER_A_FIX.beyond * ns)


def found_of(trace: Trace, cause: RareCause, fix: str, hint: str | None = None) -> Found:
    """What is said of one cause; where a run tried another way in that function, what that wins."""
    tried = tried_in(trace, location(cause))
    if tried is not None:
        return _by_another_way(trace, cause, *tried)
    low, won = round(LEAST_RATIO * cause.ns_per_step), cause.ns_per_step
    # On a CPU, what makes steps far is in part what others do to them.
    alone = trace.device_ops is not None and len(trace.device_ops) > 0
    return Found(
        summary=sentence(trace, cause),
        evidence=tuple(evidence(trace, cause)),
        cost_ns_per_step=cause.ns_per_step,
        saving_ns_per_step=(low, won_at_most_ns(trace, won) if alone else won),
        likely_saving_ns=won if alone else None,
        location=location(cause),
        fix=fix,
        hint=hint,
        confidence="high" if cause.every is not None or len(cause.steps) >= FEW else "medium",
    )


def _by_another_way(trace: Trace, cause: RareCause, way: TriedWay, one: TriedAt) -> Found:
    """What makes these steps far is slow for a reason that is known."""
    won = round((1 - one.left_ratio) * cause.ns_per_step)
    return Found(
        summary=(
            f"{sentence(trace, cause)}, where {one.operator} {way.what}: another way gave the same"
            f" in {duration(round(one.tried_ns * one.left_ratio))} where it took"
            f" {duration(one.tried_ns)}, tried in this run"
        ),
        evidence=tuple(evidence(trace, cause)),
        cost_ns_per_step=cause.ns_per_step,
        saving_ns_per_step=(round(LEAST_RATIO * won), cause.ns_per_step),
        likely_saving_ns=won,
        location=location(cause),
        fix=f"{way.instead}{', ' if way.only_where else ''}{way.only_where}",
        hint=way.hint,
        confidence="high" if cause.every is not None or len(cause.steps) >= FEW else "medium",
    )


def sentence(trace: Trace, cause: RareCause) -> str:
    """``Every 5 steps one takes 504 ms instead of 27 ms: save (train.py:88), in torch.save``."""
    assert trace.run is not None
    assert trace.run.samples is not None
    samples = trace.run.samples
    often = (
        f"Every {cause.every} steps one"
        if cause.every is not None
        else f"Of {samples.count:,} steps {len(cause.steps)}"
    )
    takes = "takes" if cause.every is not None else "take about"
    at, inside = location(cause), cause.place.inside
    where = f"{at}, in {inside}" if at and inside else str(at) if at else inside or ""
    what = _WHAT.get(cause.kind, "")
    said = ", ".join(
        part for part in (where, what if not where or cause.kind in _SAID else "") if part
    )
    return (
        f"{often} {takes} {duration(cause.usual_ns)} instead of"
        f" {duration(cause.step_ns)}: {said or cause.kind.label}"
    )


_SAID = (GapKind.DATA, GapKind.GC, GapKind.WAIT)  # a place alone does not say these


def evidence(trace: Trace, cause: RareCause) -> Iterator[Evidence]:
    """What was seen of these steps."""
    assert trace.run is not None
    assert trace.run.samples is not None
    samples, longest = trace.run.samples, cause.steps[0]
    yield Evidence("typical step of the run", cause.step_ns, "ns")
    all_ns, again_ns = samples.total_ns // max(samples.count, 1), mean_without_profiler_ns(trace)
    yield Evidence("mean step of the run", again_ns or all_ns, "ns")
    if again_ns and abs(all_ns - again_ns) > DIFFERENT_RATIO * again_ns:
        yield Evidence(f"mean of {samples.count} steps, with what came once", all_ns, "ns")
    yield Evidence("far steps like these", len(cause.steps), f"of {samples.count}")
    numbers = sorted(step.step for step in cause.steps)[:10]
    yield Evidence("their numbers", ", ".join(map(str, numbers)), "")
    yield Evidence("longest", cause.longest_ns, "ns")
    for what, ns in (
        ("waiting for its batch", longest.wait_ns),
        ("in torch.save", longest.save_ns),
        ("collecting garbage", longest.gc_ns),
        ("ready to run without a core", longest.queued_ns or 0),
    ):
        if ns:
            yield Evidence(f"longest: {what}", ns, "ns")
    if trace.run.rare_recording is not None and cause.every is not None:
        yield Evidence("one of them was recorded", trace.run.rare_recording, "")
    yield Evidence("looks in the longest", longest.looks, "")


def location(cause: RareCause) -> Location | None:
    """The line of the program that was running."""
    at = cause.place.at
    return None if at is None else Location(file=at.file, line=at.line, function=at.function)
