"""What was read, what fixing a finding gives and where it is, what was not checked."""

from collections import Counter

import msgspec

from pinchpoint.diagnosis.commands import CHANGED, UNKNOWN
from pinchpoint.diagnosis.finding import Finding, Location, Unanswered
from pinchpoint.diagnosis.record import Need
from pinchpoint.regex import regex
from pinchpoint.report.documents.report import Report
from pinchpoint.report.quantity import duration, in_unit, size, span, time_unit
from pinchpoint.report.words.breakdown import WITHIN_RANGES
from pinchpoint.report.words.steps import base_ns, steps_found

CANNOT_CONCLUDE = "cannot conclude"
_SENTENCES = regex(r"(?<=\.) (?=[A-Z(])")  # where one ends and the next begins
_HEADLINE = 120  # characters: two lines of a laptop's screen in large letters
_SHORT = 60  # characters of a gain, that stands on one line beside the name of its finding


def source_line(report: Report) -> tuple[str, ...]:
    """What was read: file, device, steps, health."""
    counted = Counter(report.source.devices)
    named = [name if count == 1 else f"{count} × {name}" for name, count in counted.items()]
    concludes = report.health.verdict != CANNOT_CONCLUDE
    none = "CPU only: no device activity" if concludes else "no device activity recorded"
    if any(fact.id == "device-unread" for fact in report.health.facts):
        none = "a device whose activity is not read"
    if any(fact.id == "device-left-out" for fact in report.health.facts):
        none = "a device that was not recorded"
    if any(part.label == WITHIN_RANGES for part in report.breakdown):
        none = "annotated ranges alone"
    devices = ", ".join(named) or none
    if report.run is not None and report.run.alone:
        sure = f"{report.run.looks:,} looks at its threads, nothing else recorded"
        return (report.source.path, sure, f"health: {report.health.verdict}")
    if not report.source.events and not named:
        return (report.source.path, report.source.format)
    rank = () if report.source.rank is None else (f"rank {report.source.rank}",)
    health = f"trace health: {report.health.verdict}"
    return (report.source.path, devices, *rank, steps_found(report), health)


def headline(verdict: str) -> tuple[str, str]:
    """The verdict's first sentences, as many as a headline has room for, and the others."""
    first, *others = _SENTENCES.split(verdict)
    while others and len(first) + 1 + len(others[0]) <= _HEADLINE:
        first += f" {others.pop(0)}"
    return first, " ".join(others)


def gain(report: Report, finding: Finding) -> str:
    """What fixing a finding gives: ``14.9 → 10.6 ms a step (10.1 to 11.3)``.

    What falls into a few steps only leaves the typical one as it is; then its cost is said, unless
    it has another consequence: other work hides the time.
    """
    base = finding.given_step_ns or base_ns(report)
    if report.run is not None and report.run.alone and finding.consequence:
        return finding.consequence
    if finding.predicted_step_ns is not None and base and finding.predicted_step_ns < base:
        return change(base, finding.predicted_step_ns, finding.predicted_range_ns)
    hidden = finding.predicted_step_ns is not None and finding.consequence is not None
    if finding.cost_ns_per_step and not hidden and (base or finding.consequence is None):
        unit = time_unit(base or finding.cost_ns_per_step)
        return f"costs {in_unit(finding.cost_ns_per_step, unit)} {unit} a step"
    return in_memory(finding) or "the gain is not known"


def in_memory(finding: Finding) -> str:
    """What fixing it gives in memory, in a few words; the consequence has the whole story."""
    said = finding.consequence or ""
    if finding.saving_bytes and not 0 < len(said) <= _SHORT:
        return f"saves up to {size(finding.saving_bytes)}"
    return said


def given(finding: Finding) -> str | None:
    """Which other fixes come first: the gain counts from the step with them."""
    if not finding.given:
        return None
    *others, last = finding.given
    all_of = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"{all_of} fixed; before that this pays little or nothing"


def hidden(finding: Finding) -> str | None:
    """Why a gain is so much smaller than what the cause costs."""
    cost = finding.cost_ns_per_step
    if finding.hidden_ns is None or cost is None:
        return None
    unit = time_unit(cost)
    part = f"{in_unit(finding.hidden_ns, unit)} of its {in_unit(cost, unit)} {unit} a step"
    return f"about {part} pass while other work goes on: no gain there"


def counted_in(report: Report, finding: Finding) -> str | None:
    """What a cost that is longer than the typical step without the profiler is counted in."""
    base, lasting = base_ns(report), report.steps.duration_ns
    if not base or not lasting or (finding.cost_ns_per_step or 0) <= base:
        return None
    mean_ns = round(sum(lasting) / len(lasting))
    which = "the recorded step" if len(lasting) == 1 else f"all {len(lasting)} recorded steps"
    if len(lasting) < report.steps.count:  # the recording began or ended within the others
        which = f"the {len(lasting)} complete of {report.steps.count} recorded steps"
    long = f", {duration(mean_ns)} on average" if mean_ns >= (finding.cost_ns_per_step or 0) else ""
    return f"in {which}{long}, with the profiler"


def change(before: int, after: int, between: tuple[int, int] | None) -> str:
    """A predicted change of the step's time."""
    unit = time_unit(before)
    text = f"{in_unit(before, unit)} → {in_unit(after, unit)} {unit} a step"
    return text + (f" ({span(*between, unit)})" if between else "")


def place(location: Location | None) -> str | None:
    """Where in the user's program: ``train.py:41, in Block.forward``."""
    if location is None:
        return None
    where = location.file and (
        f"{location.file}:{location.line}" if location.line else location.file
    )
    owner = location.module or location.function
    inside = f"in {owner}" if owner and where else owner
    parts = [p for p in (where, inside) if p]
    return ", ".join(parts) or location.operator


def place_unless_said(finding: Finding) -> str | None:
    """The place, where the summary does not name its line already."""
    at = finding.location
    said = at and at.file and f"{at.file.rpartition('/')[2]}:{at.line}" in finding.summary
    where = place(at)
    return None if said or (where and where in finding.summary) else where


def not_checked_sentence(report: Report) -> str | None:
    """How many causes this recording cannot show, by what they need; None if it shows all."""
    items = report.not_checked
    if not items:
        return None
    needs = Counter(item.needs for item in items).most_common()
    needs.sort(key=lambda need: need[0] is Need.ANOTHER)
    (first, count), *others = needs
    said = [f"{count} cause{' needs' if count == 1 else 's need'} {first}"]
    said += [f"{count} {need}" for need, count in others]
    return f"Not checked: {', '.join(said)}."


def not_checked_grouped(report: Report) -> tuple[Unanswered, ...]:
    """The same reason and the same thing to record said once, with all the ids it is about."""
    alike: dict[tuple[str, str], list[Unanswered]] = {}
    for item in report.not_checked:
        alike.setdefault((item.why, item.record), []).append(item)
    return tuple(
        msgspec.structs.replace(items[0], id=", ".join(item.id for item in items))
        for items in alike.values()
    )


def crashed_sentence(crashed: tuple[Unanswered, ...]) -> str | None:
    """Rules that failed on this recording: a bug of ours, said aloud."""
    if not crashed:
        return None
    said = "; ".join(f"{item.id} ({item.why})" for item in crashed)
    return f"Crashed, please report: {said}"


def to_fill_in(report: Report) -> str | None:
    """What stands for the program in commands to copy, where the recording does not know it."""
    shown = " ".join(finding.confirm for finding in report.findings)
    if UNKNOWN not in shown:
        return None
    changed = f"; {UNKNOWN}, CHANGED: the same with the fix in it" * (CHANGED in shown)
    return (
        f"{UNKNOWN}: the line that starts your program, which this recording does not hold{changed}"
    )


def fatal_facts(report: Report) -> tuple[str, ...]:
    """Why nothing can be concluded; what the profiler itself said of it stands behind."""
    facts = report.health.facts
    why = [f.detail for f in facts if f.severity == "fatal"]
    own = [f"the profiler says: {f.detail}" for f in facts if f.id == "profiler-warning"]
    return (*why, *own)


def weak_facts(report: Report) -> tuple[str, ...]:
    """What makes answers weaker."""
    return tuple(f.detail for f in report.health.facts if f.severity == "warning")
