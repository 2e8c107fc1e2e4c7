"""The parts of the document that come from looks at the whole run."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import RunAccount, RunPlace, only_samples, run_account
from pinchpoint.analysis.run import run_facts
from pinchpoint.diagnosis.commands import program_of, spelt
from pinchpoint.report.documents.report import (
    Health,
    HealthFact,
    PartOfStep,
    ResultTable,
    StepsInfo,
    TableColumn,
)
from pinchpoint.report.documents.run import PhaseInfo, RunInfo, RunPlaceInfo, WayInfo
from pinchpoint.report.plain import plain
from pinchpoint.report.words.report import CANNOT_CONCLUDE
from pinchpoint.trace import RunSamples, Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.mean.crew import Crew
    from pinchpoint.analysis.mean.outside import Phase


MOST_PLACES = 20  # in the document; the table has as many
FEWEST_LOOKS = 20  # of fewer, a half may be a quarter or three quarters
FEW_LOOKS = 100  # of fewer, shares are uncertain by ten points and more
MOSTLY_RATIO = 0.5  # of the time at a place: then it is named


def run_info(trace: Trace) -> RunInfo | None:
    """None where the run was not looked at."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    if samples is None or account is None:
        return None
    from pinchpoint.analysis.mean.crew import crew

    team, usage = crew(trace), samples.usage
    known = usage is not None and usage.user_ns is not None
    from pinchpoint.analysis.mean.outside import phases

    return RunInfo(
        alone=only_samples(trace),
        total_ns=account.total_ns,
        looks=account.looks,
        every_ns=round(1e9 * samples.every_s),
        cores=_cores(trace, samples),
        disturbed=tuple(map(plain, run_facts(trace).disturbed)),
        cpu_ns=_cpu_ns(samples) if known else None,
        kernel_ns=usage.kernel_ns if usage else None,
        processes=1 + len(samples.children),
        threads=len(samples.threads),
        steps=samples.count,
        steps_ns=samples.total_ns or None,
        step_ns=samples.typical_ns,
        phases=tuple(_phase(phase) for phase in phases(trace)),
        ways=_ways(account.ways),
        places=_places(account.places),
        crew=None if team is None else team.name,
        crew_places=() if team is None else _places(team.places),
    )


def _cores(trace: Trace, samples: RunSamples) -> float | None:
    facts, usage = run_facts(trace), samples.usage
    known = [facts.cores_allowed, facts.cores_there, usage.cores_allowed if usage else None]
    return min((float(cores) for cores in known if cores), default=None)


def _cpu_ns(samples: RunSamples) -> int:
    """Of the main process and of its children, those that ended and those that were looked at."""
    usage = samples.usage
    assert usage is not None
    own = (usage.user_ns or 0) + (usage.kernel_ns or 0)
    looked_at = sum((c.usage.user_ns or 0) + (c.usage.kernel_ns or 0) for c in samples.children)
    return own + max(usage.children_ns or 0, looked_at)


def _phase(phase: "Phase") -> PhaseInfo:
    return PhaseInfo(
        phase=phase.id,
        ns=phase.ns,
        imports_ns=phase.imports_ns,
        places=_places(phase.places),
    )


def _places(places: Iterable[RunPlace]) -> tuple[RunPlaceInfo, ...]:
    from pinchpoint.diagnosis.evidence.run_places import location_of

    return tuple(
        RunPlaceInfo(
            location=location_of(place),
            ns=place.share.ns,
            range_ns=place.share.range_ns,
            looks=place.share.looks,
            ways=_ways(place.ways),
            inside=place.inside if place.inside_ratio >= MOSTLY_RATIO else None,
            call=place.call if place.call and place.call_ratio >= MOSTLY_RATIO else None,
        )
        for place in list(places)[:MOST_PLACES]
    )


def _ways(ways: Mapping[Way, int]) -> tuple[WayInfo, ...]:
    ordered = sorted(ways.items(), key=lambda one: -one[1])
    return tuple(WayInfo(way=way.value, label=way.label, ns=ns) for way, ns in ordered)


# ------------------------------------------------------------------------------------------------
# A run of which nothing but samples was taken: it is judged as one step.


def run_health(trace: Trace, health: Health) -> Health:
    """Whether there are enough looks to conclude from."""
    from pinchpoint.diagnosis.evidence.run_places import account_of

    looks = account_of(trace).looks
    if looks >= FEW_LOOKS or health.verdict == CANNOT_CONCLUDE:
        return health
    few = looks < FEWEST_LOOKS
    said = f"{looks} looks at its main thread: {'too few to conclude from' if few else _UNSURE}"
    fact = HealthFact(
        id="looks-few", severity="fatal" if few else "warning", count=looks, detail=said
    )
    return Health(
        verdict=CANNOT_CONCLUDE if few else "limited",
        facts=(*((fact,) if few else ()), *health.facts, *(() if few else (fact,))),
        record=spelt(_LONGER, program_of(trace)) if few else None,
    )


_LONGER = "let it run longer, or give it more to do: pinchpoint run python train.py"
_UNSURE = "shares are uncertain by ten points and more; a longer run is surer"


def run_steps(trace: Trace) -> StepsInfo:
    """The whole run as one step."""
    from pinchpoint.diagnosis.evidence.run_places import account_of

    return StepsInfo(
        how="none",
        typical_ns=account_of(trace).total_ns or None,
    )


def run_breakdown(trace: Trace) -> tuple[PartOfStep, ...]:
    """What the main thread did; adds up to the run."""
    from pinchpoint.diagnosis.evidence.run_places import account_of

    return tuple(
        PartOfStep(
            part=way.value,
            label=way.label,
            group="idle" if way.waits or way is Way.NO_CORE else "host",
            ns_per_step=ns,
        )
        for way, ns in account_of(trace).ways.items()
    )


def run_tables(trace: Trace) -> dict[str, ResultTable]:
    """Where the main thread was, function by function."""
    from pinchpoint.analysis.mean.crew import crew
    from pinchpoint.diagnosis.evidence.run_places import account_of

    account, team = account_of(trace), crew(trace)
    found = {"run-places": _table("run-places", "Where the main thread was", account)}
    if team is not None:
        title = f"What {team.name} did, of the time that the main thread waited"
        found["run-crew"] = _table("run-crew", title, team)
    return found


def _table(id_: str, title: str, of: "RunAccount | Crew") -> ResultTable:
    columns = (
        TableColumn(id="function", label="function"),
        TableColumn(id="line", label="at"),
        TableColumn(id="ns", label="of the run", unit="ns"),
        TableColumn(id="least_ns", label="least", unit="ns"),
        TableColumn(id="most_ns", label="most", unit="ns"),
        TableColumn(id="way", label="mostly"),
        TableColumn(id="inside", label="at or inside"),
        TableColumn(id="looks", label="looks", unit="count"),
    )
    rows = tuple(
        (
            place.at.function if place.at else "no code of the program",
            f"{place.at.file}:{place.at.line}" if place.at else None,
            place.share.ns,
            *place.share.range_ns,
            place.main_way.label,
            place.inside or place.call or None,
            place.share.looks,
        )
        for place in of.places[:MOST_PLACES]
    )
    return ResultTable(
        id=id_,
        title=title,
        columns=columns,
        rows=rows,
        note="Each with all that it called, imports left out; least and most with 95 % confidence.",
        rows_left_out=max(len(of.places) - MOST_PLACES, 0),
    )


def run_verdict(trace: Trace) -> str:
    """What the main thread mostly did, and where, after threads that died; empty without looks."""
    from pinchpoint.diagnosis.evidence.deaths import died

    return f"{died(trace)}{_mostly_did(trace)}".strip()


def _mostly_did(trace: Trace) -> str:
    from pinchpoint.analysis.mean.crew import crew
    from pinchpoint.diagnosis.evidence.run_places import account_of

    account, team = account_of(trace), crew(trace)
    known = [(way, ns) for way, ns in account.ways.items() if way not in _NOT_DOING]
    if not known:
        return ""
    way, ns = max(known, key=lambda one: one[1])
    lacking = account.ways.get(Way.NO_CORE, 0)
    without = ""
    if lacking >= LEAST_LACKING_RATIO * account.total_ns:
        without = f" For {_percent(lacking, account)} it is ready to run and has no core."
    if team is not None:
        said = f"The main thread waits {_percent(team.wait_ns, account)} of the run for {team.name}"
        return f"{said}{_mostly(team.places, None, account.total_ns)}.{without}"
    where = _mostly(account.places, way, account.total_ns)
    return f"{_VERB[way]} {_percent(ns, account)} of the run{where}.{without}"


_NOT_DOING = (Way.UNSEEN, Way.NO_CORE)
LEAST_LACKING_RATIO = 0.1  # of the run


def _percent(ns: int, account: RunAccount) -> str:
    return f"{100 * ns / max(account.total_ns, 1):.0f} %"


_VERB = {
    Way.IMPORT: "The program imports modules for",
    Way.INTERPRETER: "The interpreter bounds this run: Python, and calls that hold its lock, take",
    Way.OUTSIDE: "Libraries that give Python's lock up, as NumPy does, take",
    Way.GARBAGE: "Garbage is collected for",
    Way.SLEEP: "The main thread sleeps",
    Way.LOCK: "The main thread waits for other threads",
    Way.PROCESS: "The main thread waits for other processes",
    Way.NETWORK: "The main thread waits for the network",
    Way.FILES: "The main thread waits for files",
    Way.WAIT: "The main thread waits",
}


def _mostly(places: tuple[RunPlace, ...], way: Way | None, total_ns: int) -> str:
    """Where most of that is: the function, with what it is at there."""
    timed = [
        (p.ways.get(way, 0) if way else p.share.ns, n, p) for n, p in enumerate(places) if p.at
    ]
    ns, _, place = max(timed, default=(0, 0, None), key=lambda one: one[0])
    if place is None or not ns:
        return ""
    what = place.inside if place.inside_ratio >= MOSTLY_RATIO else ""
    what = what or (place.call if place.call_ratio >= MOSTLY_RATIO else "")
    from pinchpoint.diagnosis.evidence.run_places import in_run, location_of

    return f", {in_run(ns, total_ns)} of it in {location_of(place)}{f' at {what}' if what else ''}"
