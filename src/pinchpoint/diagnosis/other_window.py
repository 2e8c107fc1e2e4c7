"""A finding of one window of a run in the terms of the other: its place, its times, its gain."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np

from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.engine import Ranked, no_less_than_one
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.registry import rules
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

_LOADING = "loading"
MOSTLY_RATIO = 0.5  # of the host time of an operator; where it is less, several places have a part
SLOWED_RATIO = 0.8  # of the step with stacks: below it, times there mislead beside the bare step
_OF_A_STEP = regex(r"\d (µs|ms|s) (a|of each|of the)( mean)?( recorded)? step")


def placed(bare: Ranked, named: Ranked) -> Ranked:
    """The times of one, the place and the advice of the other.

    What loaders do shows in the run beside the bare window, and in no stacks of the thread that
    waits: a place that the bare window has from there stays, and its advice.
    """
    known = {fact.what for fact in bare.finding.evidence}
    words = [f for f in named.finding.evidence if isinstance(f.value, str) and f.what not in known]
    at = bare.finding.location
    if rules()[bare.id].family == _LOADING and at is not None and at.file is not None:
        finding = msgspec.structs.replace(bare.finding, evidence=(*bare.finding.evidence, *words))
        return replace(bare, finding=finding)
    finding = msgspec.structs.replace(
        bare.finding,
        location=named.finding.location or bare.finding.location,
        fix=named.finding.fix or bare.finding.fix,
        hint=named.finding.hint or bare.finding.hint,
        confirm=named.finding.confirm or bare.finding.confirm,
        evidence=(*bare.finding.evidence, *words),
    )
    return replace(bare, finding=finding)


def located(one: Ranked, named: Trace) -> Ranked:
    """The finding with the place of its operator, where it knows no more than that."""
    at, host = one.finding.location, named.host_ops
    if at is None or at.file is not None or at.module is not None or host is None:
        return one
    asked = [name == at.operator for name in named.names]
    rows = np.flatnonzero(np.array([*asked, False], np.bool_)[host["name"]])
    weight = host["duration_ns"][rows]
    place, there = busiest_place(named, rows, weight)
    if place is None or place.file is None:
        return one
    least, frame = MOSTLY_RATIO * weight.sum(), places(named).frame[rows]
    if weight[there].sum() < least:  # one line, called by several modules
        if weight[frame == frame[there[0]]].sum() < least:
            return one
        place = msgspec.structs.replace(place, module=None)
    return replace(one, finding=msgspec.structs.replace(one.finding, location=place))


def scaled(named: Ranked, ratio: float, base_ns: int | None) -> Ranked:
    """A finding of the window for names alone, in times of the bare one.

    Its rows and times are of another recording, and so are left out.
    """
    cost_ns = named.finding.cost_ns_per_step
    where = Evidence(
        "found in the window with stacks and shapes; its gain was scaled by", ratio, ""
    )
    finding: Found = msgspec.structs.replace(
        named.finding,
        cost_ns_per_step=None if cost_ns is None else round(cost_ns * ratio),
        evidence=(*(msgspec.structs.replace(e, at_ns=None) for e in named.finding.evidence), where),
        confidence="medium" if named.finding.confidence == "high" else named.finding.confidence,
        changes=(),
        rows=(),
        saving_ns_per_step=None,
    )
    predicted = counted(named.predicted, base_ns)
    if predicted and named.predicted:  # what it wins once others are fixed counts from these
        ratio = predicted.base_ns / named.predicted.base_ns
    saving_ns = round(named.saving_ns * ratio)
    return Ranked(named.id, finding, predicted, saving_ns, named.given)


def with_gain(bare: Ranked, named: Ranked, base_ns: int | None) -> Ranked:
    """The finding with the gain of its match, as a share of the step."""
    predicted = counted(named.predicted, base_ns)
    if predicted is None:
        return bare
    return replace(bare, predicted=predicted, saving_ns=predicted.base_ns - predicted.step_ns)


def counted(named: Prediction | None, base_ns: int | None) -> Prediction | None:
    """The same gain as a share of the bare window's step."""
    if named is None or base_ns is None or not named.base_ns:
        return None
    return named.counted_from(base_ns)


def less(one: Ranked, ratio: float) -> Ranked:
    """The finding with a part of its gain."""
    if one.predicted is None or ratio >= 1:
        return one
    base_ns = one.predicted.base_ns
    step_ns, low_ns, high_ns = (
        base_ns - round(ratio * (base_ns - ns))
        for ns in (one.predicted.step_ns, *one.predicted.range_ns)
    )
    part = Prediction(step_ns, (low_ns, high_ns), base_ns)
    return replace(one, predicted=part, saving_ns=round(ratio * one.saving_ns))


def no_more_than_each(together: Prediction | None, found: Iterable[Ranked]) -> Prediction | None:
    """On one thread, fixes together win what each wins at most, and no less than one of them."""
    found = tuple(found)
    together = no_less_than_one(together, found)
    if together is None:
        return None
    won_ns = sum(max(r.saving_ns, 0) for r in found if r.predicted)
    least_ns = together.base_ns - won_ns
    low_ns, high_ns = together.range_ns
    return Prediction(
        max(together.step_ns, least_ns),
        (max(low_ns, least_ns), max(high_ns, least_ns)),
        together.base_ns,
    )


def by_itself(one: Ranked) -> Ranked:
    """One that counts from no other any more, from the step that all others count from."""
    after = one.predicted
    if one.given or after is None or after.base_ns - after.step_ns == one.saving_ns:
        return one
    earlier_ns = after.base_ns - after.step_ns - one.saving_ns  # what the others won
    range_ns = tuple(min(ns + earlier_ns, after.base_ns) for ns in after.range_ns)
    moved = Prediction(after.step_ns + earlier_ns, (range_ns[0], range_ns[1]), after.base_ns)
    return replace(one, predicted=moved)


def longer_ns(named: Trace, base_ns: int | None) -> int | None:
    """The step as recorded with names, where that made it far longer; else None."""
    took_ns = steps(named).typical_ns
    return took_ns if took_ns and base_ns and base_ns < SLOWED_RATIO * took_ns else None


def as_with_stacks(one: Ranked, longer_ns: int | None) -> Ranked:
    """The finding, saying of which step its times are, where the bare one is far shorter."""
    said = one.finding.summary
    if longer_ns is None or not _OF_A_STEP.search(said):
        return one
    said += f" (as recorded with stacks, where a step takes {duration(longer_ns)})"
    return replace(one, finding=msgspec.structs.replace(one.finding, summary=said))
