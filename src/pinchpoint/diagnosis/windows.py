"""One answer from all recordings of a run: times from the bare window, names from the other.

Stacks, shapes and modules slow the host, so what a step takes, what bounds it and what a fix gives
are read from the bare window; on a CPU it is asked with the inputs of its operators, which the
other has. The same rules are asked about the window for names. Findings are matched by cause, in
the order in which each window gives them:

* found in both: as the bare window has it, with the place and the advice of the other;
* found only with names, by a rule that could not judge the bare window: kept, its gain as a share
  of the step;
* found only with names although the bare window was judged clear: kept if both windows are bound
  by the same thing; else what was found is the cost of the recording;
* found only in the bare window: kept, unless one that is kept explains the same time; its place is
  where the window for names runs the same operator, if that is mostly one.

What only a snapshot of the allocator shows is added from it: causes about memory.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.binding import bound
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.engine import (
    SPECIFIC_RATIO,
    Diagnosis,
    Ranked,
    after_fixes,
    parents,
    run_ratio,
)
from pinchpoint.diagnosis.evidence.python_kept import kept_ratio
from pinchpoint.diagnosis.far_steps import with_far_steps
from pinchpoint.diagnosis.kinds import diagnose as diagnose_one
from pinchpoint.diagnosis.looked_at_places import with_inner_places
from pinchpoint.diagnosis.other_window import (
    as_with_stacks,
    by_itself,
    counted,
    less,
    located,
    longer_ns,
    no_more_than_each,
    placed,
    scaled,
    with_gain,
)
from pinchpoint.diagnosis.record import (
    RUN_FOLDER,
    SHAPES,
    SHAPES_AND_STRIDES,
    SHAPES_AND_TYPES,
    SHAPES_OF_INPUTS,
    WATCHED_RUN,
    Need,
)
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import About, Outcome
from pinchpoint.trace import Trace, once_per_trace


def names_of(trace: Trace) -> Trace:
    """The window of the same run that has names and places; the trace itself if there is none."""
    return trace.with_names


@once_per_trace
def diagnose(trace: Trace) -> Diagnosis:
    """What the rules say about a run; of a trace alone, what they say about that."""
    said = with_inner_places(trace, _with_names(trace, diagnose_one(with_inputs(trace))))
    said = with_far_steps(trace, said)
    memory = trace.run.memory if trace.run else None
    return said if memory is None else _with_memory(said, diagnose_one(memory))


def _with_memory(said: Diagnosis, memory: Diagnosis) -> Diagnosis:
    """Add the causes about memory that the trace could not be asked about."""
    about = {id_ for id_, known in rules().items() if known.rule.about is About.MEMORY}
    open_ = {o.id for o in said.outcomes if o.answer == "not checked" and o.id in about}
    other = {o.id: o for o in memory.outcomes}
    found = tuple(_without_rows(r) for r in memory.found if r.id in open_)
    outcomes = tuple(other[o.id] if o.id in open_ else o for o in said.outcomes)
    return Diagnosis((*said.found, *found), said.together, outcomes)


def _without_rows(ranked: Ranked) -> Ranked:
    """The finding without positions in tables, which are those of another recording."""
    return replace(ranked, finding=msgspec.structs.replace(ranked.finding, changes=(), rows=()))


def _with_names(trace: Trace, bare: Diagnosis) -> Diagnosis:
    """Join what both windows say."""
    named_trace = names_of(trace)
    ratio = None if named_trace is trace else _length_ratio(trace, named_trace)
    if ratio is None:
        return bare
    named = diagnose_one(named_trace)
    base_ns = _base_ns(trace, bare)
    allowed = _may_be_told(trace, named_trace, bare.outcomes)
    common = _pairs(bare.found, named.found, ratio, base_ns)
    kept = list(common.values())
    new = [r for r in named.found if r.id in allowed and r.id not in {c.id for c in kept}]
    new = _on_what_is_told(new, {r.id for r in (*kept, *new)}, bare.outcomes)
    if base_ns and computes_on_cpu(named_trace):  # recording costs time everywhere there
        usual_ns = min(base_ns, _usual_ns(trace) or base_ns)
        ratio = usual_ns / (steps(named_trace).typical_ns or usual_ns)
    slowed_ns = longer_ns(named_trace, base_ns)
    if slowed_ns is not None or (base_ns and computes_on_cpu(named_trace)):
        new = [less(r, kept_ratio(trace, named_trace, r.finding)) for r in new]
    kept += [as_with_stacks(scaled(r, ratio, base_ns), slowed_ns) for r in new]
    covered = _covered(kept, new, bare.found, named.outcomes)
    left = _in_order([r for r in kept if r.id not in covered])
    found = [located(r, named_trace) for r in left]
    lent = [n for n, one in enumerate(bare.found) if common[n].predicted and not one.predicted]
    together = counted(named.together, base_ns) if new or lent else bare.together
    if new and computes_on_cpu(named_trace):
        together = no_more_than_each(together, found)
    return Diagnosis(
        tuple(found),
        together,
        tuple(_outcomes(bare.outcomes, named.outcomes, found, covered)),
    )


def _base_ns(trace: Trace, said: Diagnosis) -> int | None:
    """The step that gains count from, also where only the other window has any."""
    predicted = (r.predicted.base_ns for r in said.found if r.predicted)
    return next(predicted, None) or step_base_ns(trace) or _usual_ns(trace)


def _usual_ns(trace: Trace) -> int | None:
    return corrected_step_ns(trace) or steps(trace).typical_ns


def _length_ratio(trace: Trace, named: Trace) -> float | None:
    """A step of the bare window against one with names; None where either is not known.

    Where the run timed steps without the profiler both are that step, and the ratio is 1.
    """
    bare_ns, named_ns = _usual_ns(trace), _usual_ns(named)
    return bare_ns / named_ns if bare_ns and named_ns else None


def _may_be_told(trace: Trace, named: Trace, outcomes: Iterable[Outcome]) -> frozenset[str]:
    """Causes that the window for names may add."""
    alike = bound(trace).by == bound(named).by
    open_ = {o.id for o in outcomes if o.answer in ("not checked", "crashed")}
    told = frozenset(open_ | {o.id for o in outcomes if alike and o.nothing_found})
    if with_inputs(trace) is trace:
        return told
    # These were judged here with all that the other window knows of operators.
    return told - {o.id for o in outcomes if o.nothing_found and _by_operators(o.id)}


def _on_what_is_told(
    new: Iterable[Ranked], told: Collection[str], outcomes: Iterable[Outcome]
) -> list[Ranked]:
    """Findings of the window for names that count from fixes of others, where these are told.

    What the bare window judged clear or too small is the cost of the recording: without it a
    finding wins at once what it wins there afterwards. What it did not judge so has to be fixed
    first, and where it is not told, neither is what counts from it.
    """
    recording = {o.id for o in outcomes if o.answer in ("clear", "smaller")} - set(told)
    kept = [replace(r, given=tuple(i for i in r.given if i not in recording)) for r in new]
    return [by_itself(r) for r in kept if set(r.given) <= set(told)]


_OF_OPERATORS = (
    *(SHAPES, SHAPES_OF_INPUTS, SHAPES_AND_TYPES, SHAPES_AND_STRIDES),
    *(RUN_FOLDER, WATCHED_RUN),
)


def _by_operators(id_: str) -> bool:
    """Whether a rule goes by operators, their inputs and facts of the run: not by stacks."""
    return rules()[id_].rule.record in _OF_OPERATORS


def _pairs(
    bare: Iterable[Ranked], named: Iterable[Ranked], ratio: float, base_ns: int | None
) -> dict[int, Ranked]:
    """Every finding of the bare window, with the place of its match where there is one.

    Where the bare window tells no gain, for want of shapes say, it is the other's.
    """
    waiting: dict[str, list[Ranked]] = {}
    for one in named:
        waiting.setdefault(one.id, []).append(one)
    out: dict[int, Ranked] = {}
    for number, one in enumerate(bare):
        match = _taken(one, waiting.get(one.id, []))
        if match is None:
            out[number] = one
        elif one.predicted is None and match.predicted is not None:
            out[number] = scaled(match, ratio, base_ns)
        elif _better_with_shapes(one.id) and match.predicted is not None:
            out[number] = with_gain(placed(one, match), match, base_ns)
        else:
            out[number] = placed(one, match)
    return out


def _better_with_shapes(id_: str) -> bool:
    """Whether shapes tell a rule about the device alone what its work needs."""
    rule = rules()[id_].rule
    return rule.record.need is Need.RECORD_SHAPES and "host_ops" not in rule.needs


def _taken(bare: Ranked, waiting: list[Ranked]) -> Ranked | None:
    """The first finding about the same operator, else the first, taken out of those that wait."""
    operator = _operator(bare)
    same = (n for n, one in enumerate(waiting) if operator and _operator(one) == operator)
    return waiting.pop(next(same, 0)) if waiting else None


def _operator(one: Ranked) -> str | None:
    return one.finding.location.operator if one.finding.location else None


def predicted_by_names(trace: Trace, ids: Collection[str]) -> Prediction | None:
    """The step without findings that the window for names shows, replayed together there.

    None where it does not show each of them with what to replay.
    """
    named = names_of(trace)
    shown = [r for r in diagnose_one(named).found if r.id in ids and r.finding.changes]
    if {r.id for r in shown} != set(ids):
        return None
    together = after_fixes(named, [r.finding for r in shown])
    said = counted(together, _base_ns(trace, diagnose_one(with_inputs(trace))))
    mine = [r for r in diagnose(trace).found if r.id in ids]
    return no_more_than_each(said, mine) if computes_on_cpu(named) else said


def _covered(
    kept: Iterable[Ranked], new: Iterable[Ranked], bare: Iterable[Ranked], named: Iterable[Outcome]
) -> Mapping[str, tuple[str, ...]]:
    """Findings of the bare window that those with names explain, by id, with the ids of these."""
    saving = {r.id: r.saving_ns for r in kept}
    added = {r.id for r in new}
    general = {parent: r.id for r in new for parent in parents(r.id)}
    said = {o.id: o for o in named}
    covered: dict[str, tuple[str, ...]] = {}
    for one in bare:
        by = tuple(id_ for id_ in _explaining(said, one.id) if id_ in added)
        if said[one.id].answer == "covered" and by:
            covered[one.id] = by
        elif one.id in general and 2 * saving[general[one.id]] >= one.saving_ns:
            covered[one.id] = (general[one.id],)
    return covered


def _explaining(said: Mapping[str, Outcome], id_: str) -> list[str]:
    """Findings that explain one, and those that explain these where they are not shown either."""
    found = list(said[id_].covered_by)
    for nearest in found:  # grows meanwhile
        found += [by for by in said[nearest].covered_by if by not in found]
    return found


def _in_order(found: list[Ranked]) -> list[Ranked]:
    """As the engine orders them: what pays by itself, specific causes before generic ones."""
    generic = [r.saving_ns for r in found if rules()[r.id].rule.generic]
    least = SPECIFIC_RATIO * max(generic, default=0)

    def late(one: Ranked) -> bool:
        return bool(generic) and (rules()[one.id].rule.generic or one.saving_ns < least)

    def place(one: Ranked) -> tuple[float, int, bool, int, str]:
        return -run_ratio(one, found), len(one.given), late(one), -one.saving_ns, one.id

    return sorted(found, key=place)


def _outcomes(
    bare: Iterable[Outcome],
    named: Iterable[Outcome],
    found: Iterable[Ranked],
    covered: Mapping[str, tuple[str, ...]],
) -> Iterator[Outcome]:
    """One answer a rule: the bare window's, or that of the other where it could not judge."""
    shown, other = {r.id for r in found}, {o.id: o for o in named}
    for one in bare:
        there = other[one.id]
        if one.id in covered:
            by = covered[one.id]
            why = f"covered by {' and '.join(by)}"
            yield replace(one, answer="covered", why=why, covered_by=by)
        elif one.id in shown:
            yield one if one.answer == "found" else there
        else:
            yield there if one.answer == "not checked" and there.answer != "found" else one
