"""The ladder of fixes as part of the document."""

from collections.abc import Sequence

from pinchpoint.analysis.mean.mean_step import mean_step, mean_without_profiler_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.engine import Diagnosis
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.diagnosis.ladder import ALIKE_RATIO, Ladder, Rung, by_gain, effort_of, ladder
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.trace import Trace


def ladder_info(trace: Trace, said: Diagnosis, *, host: bool = True) -> LadderInfo | None:
    """The ladder; None where nothing stands on it."""
    found = ladder(trace, said, host=host)
    if found is None or not (found.rungs or found.unexplained or found.heaviest):
        return None
    recorded_ns = _recorded_base_ns(trace)
    rungs = [_info(rung, "finding", found, recorded_ns) for rung in found.rungs]
    if found.unexplained is not None:
        rungs.append(_info(found.unexplained, "piece", found, recorded_ns))
    named = {rung.id: rung.step_ns for rung in rungs}
    rungs += [
        _info(rung, "piece", found, recorded_ns)
        for rung in found.heaviest
        if abs(named.get(rung.id, found.base_ns) - rung.step_ns) >= ALIKE_RATIO * found.base_ns
    ]
    if said.together is not None and len(rungs) > 1:  # of one alone they are the same
        rungs.append(_together(said, found, recorded_ns))
    return LadderInfo(
        base_ns=found.base_ns,
        recorded_base_ns=recorded_ns,
        rungs=tuple(rungs),
        best_single=_best_single(found),
    )


def ladder_of(
    findings: Sequence[Finding], base_ns: int | None, recorded_ns: int | None
) -> LadderInfo | None:
    """The ladder of findings that are predicted already, of a job; None where none has a gain."""
    if not base_ns:
        return None
    rungs = [rung for finding in findings if (rung := _rung_of(finding, base_ns))]
    rungs.sort(key=by_gain)
    found = Ladder(base_ns, tuple(rungs))
    return (
        LadderInfo(
            base_ns=base_ns,
            recorded_base_ns=recorded_ns,
            rungs=tuple(_info(rung, "finding", found, recorded_ns) for rung in rungs),
            best_single=_best_single(found),
        )
        if rungs
        else None
    )


def _rung_of(finding: Finding, base_ns: int) -> Rung | None:
    step_ns = finding.predicted_step_ns
    counted_from = finding.given_step_ns or base_ns
    if step_ns is None or step_ns >= counted_from:
        return None
    between = finding.predicted_range_ns or (step_ns, step_ns)
    effort = effort_of(finding.id, finding.confirm)
    at = finding.location
    return Rung(
        finding.id,
        step_ns,
        between,
        counted_from,
        effort,
        finding.given,
        where=(at.short or None) if at else None,
    )


def _recorded_base_ns(trace: Trace) -> int | None:
    """The step of the trace that the base is without the profiler: mean or typical."""
    mean = mean_step(trace)
    if mean is not None and mean_without_profiler_ns(trace) is not None:
        return mean.mean_ns
    return steps(trace).typical_ns


def _best_single(found: Ladder) -> str | None:
    alone = [rung for rung in found.rungs if not rung.after]
    best = min(alone, key=lambda rung: rung.step_ns, default=None)
    return None if best is None or best is alone[0] else best.id


def _info(rung: Rung, kind: str, found: Ladder, recorded_ns: int | None) -> RungInfo:
    return RungInfo(
        id=rung.id,
        kind=kind,
        step_ns=rung.step_ns,
        range_ns=rung.range_ns,
        sure_ns=rung.sure_ns,
        base_ns=rung.base_ns,
        recorded_step_ns=_as_recorded(rung.step_ns, found.base_ns, recorded_ns),
        effort=rung.effort.value,
        after=rung.after,
        on_host=rung.on_host,
        once_a_step=rung.once_a_step,
        free=rung.free,
        where=rung.where,
    )


def _together(said: Diagnosis, found: Ladder, recorded_ns: int | None) -> RungInfo:
    assert said.together is not None
    step_ns, range_ns = said.together.step_ns, said.together.range_ns
    return RungInfo(
        id="all",
        kind="together",
        step_ns=step_ns,
        range_ns=range_ns,
        sure_ns=max(found.base_ns - range_ns[1], 0),
        base_ns=found.base_ns,
        recorded_step_ns=_as_recorded(step_ns, found.base_ns, recorded_ns),
    )


def _as_recorded(step_ns: int, base_ns: int, recorded_ns: int | None) -> int | None:
    """The same share of the recorded step: recording costs each part about alike."""
    return None if recorded_ns is None or not base_ns else round(step_ns / base_ns * recorded_ns)
