"""Two profiles, A and B: what changed in a step, as a document (``pinchpoint.compare/1``).

``parts`` and ``rows`` each add up to the change of the typical step as it was recorded, in integer
nanoseconds. Positive means that B takes longer.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.steps.in_steps import sum_per_window
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.tables.operators import operators
from pinchpoint.analysis.time.accounting import Breakdown, breakdown
from pinchpoint.bench.measures import MEASURES, STEP_TIME
from pinchpoint.compare.changed_rows import ChangedRow, Matched, changed_rows
from pinchpoint.compare.fix import FixOutcome
from pinchpoint.compare.gates import Compared, Gated, judged
from pinchpoint.compare.noise import noise
from pinchpoint.compare.step_groups import counted_steps
from pinchpoint.compare.worth import ChangedWorth, changed_worth
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Ints

SCHEMA = "pinchpoint.compare/1"
ONE_PROGRAM_RATIO = 0.5  # of the longer step's operations; fixes that fuse many fall below it too


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two recordings."""

    path: str
    format: str
    producer: str | None
    devices: tuple[str, ...]
    steps: int
    step_how: str
    step_ns: int | None  # as recorded
    launches_per_step: float | None
    unprofiled_step_ns: int | None = None  # measured without the profiler, or estimated
    # The mean step without the profiler, as `diagnose` counts gains from it; null where it is not
    # known, and the step above where exceptional steps or several kinds do not make it differ.
    mean_step_ns: int | None = None
    whole_run: bool = False  # what is called a step is the whole run, by looks at its threads
    command: tuple[str, ...] = ()  # of its run folder; empty: not known


class ChangedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the breakdown."""

    part: str
    label: str
    group: str
    a_ns: int
    b_ns: int
    change_ns: int
    noise_ns: int | None  # half width of the 95 % interval, from step to step
    sure: bool | None  # it is more than noise; null: too few steps to tell


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of one side, or of both."""

    id: str
    summary: str
    change: str  # appeared, went, stayed
    a_cost_ns: int | None
    b_cost_ns: int | None


class CauseOfChange(msgspec.Struct, frozen=True, kw_only=True):
    """What explains the difference, or a part of it. Positive times: B takes longer by it."""

    id: str  # of a rule, of a contrast, or "piece": a piece of the causal profile
    summary: str  # one sentence
    rests_on: str  # finding, contrast, piece
    change_ns: int | None = None  # of the step, that it explains; null: its cost is not time
    a_saving_ns: int | None = None  # what fixing it would give in A; null: it is not there
    b_saving_ns: int | None = None
    saving_bytes: int | None = None
    where: str | None = None  # in the program
    possible: tuple[str, ...] = ()  # rules that may lie behind a contrast


class ProfileComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, largest changes first."""

    schema: str = SCHEMA
    a: Side
    b: Side
    a_step_ns: int | None
    b_step_ns: int | None
    change_ns: int | None
    change_ratio: float | None
    noise_ns: int | None  # half width of the 95 % interval, from step to step
    change_range_ns: tuple[int, int] | None = None  # that interval; null: too few steps for one
    sure: bool | None  # it is more than noise; null: too few steps to tell
    parts: tuple[ChangedPart, ...]
    rows: tuple[ChangedRow, ...]
    matched: Matched | None
    causes: tuple[CauseOfChange, ...] = ()  # most telling first
    findings: tuple[FindingChange, ...] = ()
    worth: tuple[ChangedWorth, ...] = ()  # pieces that became worth more or less, largest first
    warnings: tuple[str, ...] = ()
    unknown: dict[str, str] = {}
    fix: FixOutcome | None = None  # null: a side has no step
    gates: tuple[Gated, ...] = ()


def gated(found: ProfileComparison, asked: Sequence[str]) -> ProfileComparison:
    """The same with the outcome of each gate: the time of a step is what profiles can be gated by.

    UsageError for another measure, or where a side has no step.
    """
    ratio = found.change_ratio
    step = Compared(
        name=STEP_TIME,
        label=MEASURES[STEP_TIME].label,
        a=(found.a_step_ns or 0) / 1e6,
        change_ratio=ratio,
        worse=bool(found.sure and ratio is not None and ratio > 0),
    )
    known = [step] if ratio is not None else []
    return msgspec.structs.replace(found, gates=judged(known, asked, MEASURES))


def compare_profiles(a: Trace, b: Trace) -> ProfileComparison:
    """Compare two recordings of the same program, or of one model on two machines."""
    first, second = steps(a), steps(b)
    rows, matched = changed_rows(a, b)
    spread = noise(lasting(a), lasting(b))
    change = None
    if first.typical_ns is not None and second.typical_ns is not None:
        change = second.typical_ns - first.typical_ns
    unknown = {}
    if spread.interval_ns is None:
        unknown["noise_ns"] = "an interval needs four complete steps on each side, or so"
    if change is None:
        unknown["change_ns"] = "a side has no step"
    if matched is None:
        unknown["matched"] = "a side has no device operations in steps: parts are compared only"
    return ProfileComparison(
        a=_side(a, first),
        b=_side(b, second),
        a_step_ns=first.typical_ns,
        b_step_ns=second.typical_ns,
        change_ns=change,
        change_ratio=change / first.typical_ns if change is not None and first.typical_ns else None,
        noise_ns=spread.half_ns,
        change_range_ns=spread.interval_ns,
        sure=None if change is None else spread.sure,
        parts=_parts(a, b),
        rows=rows,
        matched=matched,
        worth=changed_worth(a, b),
        warnings=(*doubts(doubt_of_one_program(a, b, matched)), *_warnings(a, b, first, second)),
        unknown=unknown,
    )


def lasting(trace: Trace) -> Ints:
    """How long the steps take that a comparison rests on, as recorded."""
    found = steps(trace)
    counted: Ints = (found.end_ns - found.start_ns)[counted_steps(trace)]
    return counted


def _side(trace: Trace, windows: Steps) -> Side:
    return Side(
        path=trace.source.path,
        format=trace.source.format,
        producer=trace.source.producer,
        devices=tuple(dict.fromkeys(d.name for d in trace.devices if d.name)),
        steps=int(windows.complete.sum()),
        step_how=windows.how,
        step_ns=windows.typical_ns,
        launches_per_step=_launches(trace, windows),
        unprofiled_step_ns=corrected_step_ns(trace),
        mean_step_ns=step_base_ns(trace),
        command=trace.run.command if trace.run else (),
    )


def _launches(trace: Trace, windows: Steps) -> float | None:
    calls = trace.api_calls
    if calls is None or not windows.typical.any():
        return None
    launch = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    count = sum_per_window(calls["start_ns"][launch], windows.host_start_ns, windows.host_end_ns)
    return float(count[windows.typical].mean())


def _parts(a: Trace, b: Trace) -> tuple[ChangedPart, ...]:
    left, right = breakdown(a), breakdown(b)
    parts = {p.id: p for side in (left, right) for p in side.parts}
    columns = {id_: (_column(left, id_), _column(right, id_)) for id_ in parts}
    found = []
    for id_, part in parts.items():
        a_ns, b_ns = left.of_part(id_), right.of_part(id_)
        spread = noise(columns[id_][0][counted_steps(a)], columns[id_][1][counted_steps(b)])
        found.append(
            ChangedPart(
                part=id_,
                label=part.label,
                group=part.group,
                a_ns=a_ns,
                b_ns=b_ns,
                change_ns=b_ns - a_ns,
                noise_ns=spread.half_ns,
                sure=spread.sure,
            )
        )
    return tuple(sorted(found, key=lambda p: -abs(p.change_ns)))


def _column(side: Breakdown, part_id: str) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Time of a part in every step; zeros if the side does not have it."""
    for position, part in enumerate(side.parts):
        if part.id == part_id:
            column: np.ndarray[Any, np.dtype[np.int64]] = side.by_step[:, position]
            return column
    return np.zeros(len(side.by_step), np.int64)


def doubt_of_one_program(a: Trace, b: Trace, matched: Matched | None) -> str | None:
    """How little both have in common, where that leaves open whether the two are one program.

    Of device operations those with a partner; without a device operators, by how often each runs;
    where neither was recorded, whether the same command was.
    """
    if matched is not None:
        if matched.matched >= ONE_PROGRAM_RATIO * max(matched.a, matched.b):
            return None
        return (
            f"only {matched.matched} of {matched.a} device operations in A and {matched.b} in B"
            " have a partner"
        )
    calls = [_calls_a_step(trace) for trace in (a, b)]
    if all(calls):
        alike, most = (calls[0] & calls[1]).total(), max(side.total() for side in calls)
        if alike >= ONE_PROGRAM_RATIO * most:
            return None
        return f"only {alike} of {most} operators of a step are the same"
    commands = [trace.run.command if trace.run else () for trace in (a, b)]
    return "they are two commands" if all(commands) and commands[0] != commands[1] else None


def _calls_a_step(trace: Trace) -> Counter[str]:
    """How often each operator runs in a step."""
    found = max(len(steps(trace)), 1)
    rows = () if trace.host_ops is None else operators(trace).rows
    return Counter({row.name: -(-row.calls // found) for row in rows})


def doubts(doubt: str | None) -> tuple[str, ...]:
    """What it means for the changes."""
    said = f"{doubt}: what differs between two programs is no effect of a change"
    return (said,) if doubt else ()


def _warnings(a: Trace, b: Trace, first: Steps, second: Steps) -> list[str]:
    found = []
    devices = [sorted({d.name for d in t.devices if d.name}) for t in (a, b)]
    if devices[0] != devices[1]:
        names = " and ".join(", ".join(d) or "no device" for d in devices)
        found.append(f"different devices: {names}")
    recorded = [_options(t) for t in (a, b)]
    for option in sorted(set(recorded[0]) | set(recorded[1])):
        values = [r.get(option) for r in recorded]
        if values[0] != values[1]:
            found.append(
                f"recorded differently: {option} is {values[0]} in A and {values[1]} in B; "
                "recording slows the host"
            )
    for name, windows in (("A", first), ("B", second)):
        if not windows.complete.any():
            found.append(f"{name}: no complete step; a partial one is compared")
        if windows.how != "marker":
            found.append(f"{name}: steps are {windows.how} ({windows.basis})")
    found.append(
        "steps of one recording share its run: what differs between runs is not in the noise; "
        "a verdict needs pinchpoint bench ab"
    )
    return found


def _options(trace: Trace) -> dict[str, Any]:
    """The options of the profiler that cost the program time."""
    costly = ("with_stack", "record_shapes", "profile_memory", "with_modules")
    return {k: trace.source.options[k] for k in costly if k in trace.source.options}
