"""Two runs of which nothing was recorded but looks at their threads: the whole run is compared."""

from collections.abc import Iterator

from pinchpoint.analysis.mean.ways import Way
from pinchpoint.analysis.mean.whole_run import RunAccount, RunPlace, run_account
from pinchpoint.compare.profiles import (
    CauseOfChange,
    ChangedPart,
    ProfileComparison,
    Side,
    doubt_of_one_program,
    doubts,
)
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

LEAST_OF_CHANGE = 0.1  # of the change: places with less are in the documents of both runs
MOST_PLACES = 3  # as many as a reader looks at
_NOTHING = RunAccount(0, 0, {}, ())


def compare_runs(a: Trace, b: Trace) -> ProfileComparison:
    """How long both took, what their main threads did with it, and which functions changed most."""
    first, second = run_account(a) or _NOTHING, run_account(b) or _NOTHING
    change = second.total_ns - first.total_ns
    return ProfileComparison(
        a=_side(a, first),
        b=_side(b, second),
        a_step_ns=first.total_ns,
        b_step_ns=second.total_ns,
        change_ns=change,
        change_ratio=change / first.total_ns if first.total_ns else None,
        noise_ns=None,
        sure=None,
        parts=tuple(_parts(first, second)),
        rows=(),
        matched=None,
        causes=tuple(_places(first, second, change)),
        warnings=(
            *doubts(doubt_of_one_program(a, b, None)),
            "one run each: how much runs of the program differ by themselves is not known; several"
            " pairs, one after the other, tell",
        ),
        unknown={"noise_ns": "one run on each side", "matched": "nothing was recorded"},
    )


def _side(trace: Trace, account: RunAccount) -> Side:
    return Side(
        path=trace.source.path,
        format=trace.source.format,
        producer=None,
        devices=(),
        steps=0,
        step_how="none",
        step_ns=account.total_ns,
        launches_per_step=None,
        whole_run=True,
        command=trace.run.command if trace.run else (),
    )


def _parts(a: RunAccount, b: RunAccount) -> list[ChangedPart]:
    found = [
        ChangedPart(
            part=way.value,
            label=way.label,
            group="idle" if way.waits or way is Way.NO_CORE else "host",
            a_ns=a.ways.get(way, 0),
            b_ns=b.ways.get(way, 0),
            change_ns=b.ways.get(way, 0) - a.ways.get(way, 0),
            noise_ns=None,
            sure=None,
        )
        for way in {**a.ways, **b.ways}
    ]
    return sorted(found, key=lambda part: -abs(part.change_ns))


def _places(a: RunAccount, b: RunAccount, change: int) -> Iterator[CauseOfChange]:
    """The functions of the program that explain most of the change, in its direction."""
    sides = [{_key(p): p for p in account.places if p.at} for account in (a, b)]
    changes = {
        key: sum(
            sign * side[key].share.ns
            for sign, side in zip((-1, 1), sides, strict=True)
            if key in side
        )
        for key in {**sides[0], **sides[1]}
    }
    for key, ns in sorted(changes.items(), key=lambda one: -abs(one[1]))[:MOST_PLACES]:
        if ns * change <= 0 or abs(ns) < LEAST_OF_CHANGE * abs(change):
            continue
        took = [duration(side[key].share.ns) if key in side else "not seen" for side in sides]
        at = (sides[1].get(key) or sides[0][key]).at
        assert at is not None
        where = f"{at.function} ({at.file}:{at.line})"
        said = f"{where}: {took[0]} in A, {took[1]} in B"
        yield CauseOfChange(id="piece", summary=said, rests_on="piece", change_ns=ns, where=where)


def _key(place: RunPlace) -> tuple[str, str]:
    assert place.at is not None
    return place.at.file, place.at.function
