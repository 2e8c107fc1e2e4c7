"""Sentences about a whole run, by looks at its threads."""

from math import sqrt

from pinchpoint.report.documents.report import Report
from pinchpoint.report.documents.run import PhaseInfo, RunInfo, RunPlaceInfo
from pinchpoint.report.quantity import duration, in_unit, number

HALF_DEVIATE = 1.96 / 2  # of a share of a half, that is surest known least, with 95 % confidence
NO_CORE = "run-no-core"
LEAST_PLACE_RATIO = 0.2  # of a run or phase: what takes less is not the one to look at
LEAST_OUTSIDE_RATIO = 0.3  # of the run: with less outside of them, the steps are the run


def run_sentence(run: RunInfo) -> str:
    """How long the run took, on how many cores, and how sure its parts are."""
    cores = ""
    if run.cpu_ns is not None and run.cores:
        cores = f" on {number(run.cpu_ns / max(run.total_ns, 1))} of {run.cores:g} cores"
    points = 100 * HALF_DEVIATE / sqrt(max(run.looks, 1))
    from pinchpoint.diagnosis.evidence.run_places import in_run

    took = in_run(run.total_ns, run.total_ns)
    return (
        f"The run took {took}{cores}; {run.looks:,} looks at its main thread say where, each part"
        f" to within {points:.0f} points"
    )


def steps_of_run(run: RunInfo) -> str | None:
    """The steps that were told from each other in it; None where there were none."""
    if not run.steps or not run.step_ns:
        return None
    return f"{run.steps:,} of its steps were timed: {duration(run.step_ns)} the typical one"


def closing_of_run(report: Report, run: RunInfo) -> str:
    """What it means that there are no further findings."""
    from pinchpoint.diagnosis.evidence.run_places import SURE_RATIO

    share = f"{100 * SURE_RATIO:.0f} % of the run"
    if not report.findings:
        said = f"No wait, lock, import, want of cores or collection of garbage takes {share}"
        return f"{said}, and no loop of Python a quarter of it.{_heaviest(report, run)}"
    return f"No other cause that was checked takes {share}.{_heaviest(report, run)}"


def _heaviest(report: Report, run: RunInfo) -> str:
    """The function with most of the run, where no finding is about it."""
    told = {(f.location.file, f.location.function) for f in report.findings if f.location}
    places = [
        p
        for p in run.crew_places or run.places
        if p.location is not None and (p.location.file, p.location.function) not in told
    ]
    place = max(places, key=lambda p: p.ns, default=None)
    if place is None or place.ns < LEAST_PLACE_RATIO * run.total_ns:
        return ""
    from pinchpoint.diagnosis.evidence.run_places import run_unit

    unit = run_unit(run.total_ns)
    least, most = (in_unit(ns, unit) for ns in place.range_ns)
    much = "Most" if 2 * place.ns > run.total_ns else "Much"
    left = in_unit(max(run.total_ns - place.ns, 0), unit)
    return (
        f" {much} of the run is {_at(place)}: {in_unit(place.ns, unit)} of"
        f" {in_unit(run.total_ns, unit)} {unit} ({least} to {most}){_doing(place)}. Without it the"
        f" run would take {left} {unit}: is all of it needed?"
    )


def _doing(place: RunPlaceInfo) -> str:
    """What the thread does there, where it has a core."""
    label = next((way.label for way in place.ways if way.way != NO_CORE), None)
    return f", {label}" if label else ""


def _at(place: RunPlaceInfo) -> str:
    what = place.inside or place.call
    return f"{place.location}{f' at {what}' if what else ''}"


def outside_sentence(report: Report) -> str | None:
    """What a run does before and after its steps, where these are not most of it; else None."""
    run = report.run
    if run is None or run.alone or not run.phases:
        return None
    outside = sum(phase.ns for phase in run.phases)
    if outside < LEAST_OUTSIDE_RATIO * run.total_ns:
        return None
    from pinchpoint.diagnosis.evidence.run_places import in_run, run_unit

    unit = run_unit(run.total_ns)
    said = "; ".join(_phase(phase, unit) for phase in run.phases if phase.ns >= 0.05 * run.total_ns)
    steps = in_unit(run.total_ns - outside, unit)
    return (
        f"Its steps are {steps} of the run's {in_run(run.total_ns, run.total_ns)}. The rest: {said}"
    )


def _where(place: RunPlaceInfo) -> str | None:
    """The function; of what no function of the program calls, as its end does, what it is."""
    if place.location is not None:
        return f"in {_at(place)}"
    return f"{place.ways[0].label}, called by no function of it" if place.ways else None


def _phase(phase: PhaseInfo, unit: str) -> str:
    when = "before the third step" if phase.phase == "before" else "after the last one"
    parts = []
    if phase.imports_ns and phase.imports_ns >= LEAST_PLACE_RATIO * phase.ns:
        parts.append(f"{in_unit(phase.imports_ns, unit)} importing modules")
    parts += [
        f"{in_unit(place.ns, unit)} {where}"
        for place in phase.places[:2]
        if (where := _where(place)) and place.ns >= LEAST_PLACE_RATIO * phase.ns
    ]
    return f"{in_unit(phase.ns, unit)} {unit} {when}" + (f" ({', '.join(parts)})" if parts else "")
