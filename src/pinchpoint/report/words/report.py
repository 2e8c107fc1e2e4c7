"""The sentences that every format for people shares. Layout is the renderers' business."""

from collections import Counter

import msgspec

from pinchpoint.diagnosis.finding import Finding, Location, Unanswered
from pinchpoint.diagnosis.record import Need
from pinchpoint.report.documents.report import PartOfStep, Report, RoundsInfo, StepsInfo
from pinchpoint.report.quantity import duration, in_unit, percent, size, span, time_unit
from pinchpoint.report.words.run import run_sentence

CANNOT_CONCLUDE = "cannot conclude"
NOT_CORRECTED = "not corrected: "  # and why not
SMALL_PART_RATIO = 0.01  # parts below this share of the step are summed in the overview
MOST_PARTS = 10  # rows of the overview; a longer list is no overview
VISIBLE_COST_RATIO = 0.005  # of the step; three digits show no smaller cost of recording
FEWEST_FOR_SPREAD = 4  # complete steps; of fewer, a 10th and a 90th percentile mean nothing
_SHORT = 60  # characters of a gain, that stands on one line beside the name of its finding
MOST_DEVICES = 8  # of one process, in the terminal: one host's
MOST_KINDS_OF_WORK = 4  # of the device, in one sentence


def source_line(report: Report) -> tuple[str, ...]:
    """What was read: file, device, steps, health."""
    counted = Counter(report.source.devices)
    named = [name if count == 1 else f"{count} × {name}" for name, count in counted.items()]
    concludes = report.health.verdict != CANNOT_CONCLUDE
    none = "CPU only: no device activity" if concludes else "no device activity recorded"
    if any(fact.id == "device-unread" for fact in report.health.facts):
        none = "a device whose activity is not read"
    devices = ", ".join(named) or none
    if report.run is not None and report.run.alone:
        sure = f"{report.run.looks:,} looks at its threads, nothing else recorded"
        return (report.source.path, sure, f"health: {report.health.verdict}")
    if not report.source.events and not named:
        return (report.source.path, report.source.format)
    rank = () if report.source.rank is None else (f"rank {report.source.rank}",)
    health = f"trace health: {report.health.verdict}"
    return (report.source.path, devices, *rank, steps_found(report), health)


def steps_found(report: Report) -> str:
    """How many steps, and how they were found."""
    steps = report.steps
    if steps.how == "none":
        return "no steps found"
    count = f"{steps.count} step{'' if steps.count == 1 else 's'}"
    if steps.how == "marker":
        return f"{count} (markers)"
    sure = "" if steps.confidence is None else f", {100 * steps.confidence:.0f} % sure"
    return f"{count} ({steps.how}{sure})"


def step_sentence(report: Report) -> str | None:
    """How long a step takes, as the one number that gains count from; None if nothing was timed.

    ``A step takes 14.4 ms without the profiler (13.1 to 15.7), 24.6 in the trace``. The number is
    the mean where exceptional steps or several kinds of steps make it another one. Where the
    recording does not tell it closely, the range takes its place, with why.
    """
    steps, base = report.steps, base_ns(report)
    if report.run is not None and report.run.alone:
        return run_sentence(report.run)
    if steps.typical_ns is None or not base:
        return None
    if steps.how == "none":
        return _one_piece(report)
    mean = counts_the_mean(report)
    takes = f"{duration(base)} on average" if mean else duration(base)
    if steps.unprofiled_ns_predicted is None:
        why = steps.unprofiled_how or ""
        more = f"; {why}" if why.startswith(NOT_CORRECTED) else ""
        settled = mean and steps.mean_ns and duration(steps.mean_ns) != duration(base)
        return (
            f"A step takes {takes}, as recorded{', the first ones left out' * bool(settled)}{more}"
        )
    recorded = (steps.mean_ns if mean else steps.typical_ns) or steps.typical_ns
    limits = steps.base_range_ns if mean else steps.unprofiled_ns_range
    if limits and steps.unprofiled_not_closer:
        return _only_a_range(steps, limits, base, recorded, mean)
    between = f" ({span(*limits, time_unit(base))})" if limits else ""
    if abs(recorded - base) < VISIBLE_COST_RATIO * recorded:
        return f"A step takes {takes}, with the profiler or without{between}"
    measured = (steps.unprofiled_how or "").startswith("measured")
    about = "" if measured or between else "about "
    how = ", measured in the same run" if measured else ""
    unit = time_unit(base)
    same = unit == time_unit(recorded)
    trace = in_unit(recorded, unit) if same else duration(recorded)
    return f"A step takes {about}{takes} without the profiler{between}{how}, {trace} in the trace"


def _only_a_range(
    steps: StepsInfo, limits: tuple[int, int], base: int, recorded: int, mean: bool
) -> str:
    unit = time_unit(base)
    trace = in_unit(recorded, unit) if unit == time_unit(recorded) else duration(recorded)
    return (
        f"A step takes {span(*limits, unit)} {unit}{' on average' * mean} without the profiler"
        f" (counted as {in_unit(base, unit)}), {trace} in the trace; {steps.unprofiled_not_closer}"
    )


def _one_piece(report: Report) -> str:
    """A recording in which no steps were found."""
    steps = report.steps
    whole = f"The recording lasts {duration(steps.typical_ns or 0)} and is judged as one step"
    predicted = steps.unprofiled_ns_predicted
    if predicted is None:
        why = steps.unprofiled_how or ""
        return f"{whole}; {why}" if why.startswith(NOT_CORRECTED) else whole
    limits = steps.unprofiled_ns_range
    between = f" ({span(*limits, time_unit(predicted))})" if limits else ""
    if not _is_corrected(report):
        return f"{whole}, the same without the profiler{between}"
    return f"{whole}, about {duration(predicted)} without the profiler{between}"


def counts_the_mean(report: Report) -> bool:
    """Whether gains count from a mean step that is another one than the typical."""
    steps = report.steps
    known = steps.unprofiled_ns_predicted
    typical = steps.typical_ns if known is None else known
    return bool(steps.base_ns and typical and duration(steps.base_ns) != duration(typical))


def spread_sentence(report: Report) -> str | None:
    """What steps were inferred from, how they differ, which stand out; None without any of it."""
    steps = report.steps
    if steps.typical_ns is None:
        return None
    said = [] if steps.how == "marker" or not steps.basis else [steps.basis]
    if steps.spread_ns and steps.typical_ns and len(steps.duration_ns) >= FEWEST_FOR_SPREAD:
        unit = time_unit(steps.typical_ns)
        least, most = (in_unit(ns, unit) for ns in _usual(steps))
        usual = least if least == most else f"{least} to {most}"
        said.append(f"most steps take {usual} {unit} as recorded")
    slow = [f"step {o['step']} took {duration(o['duration_ns'])}" for o in steps.outliers[:3]]
    if slow:
        more = len(steps.outliers) - len(slow)
        said.append(", ".join(slow) + (f" and {more} more stand out" if more else ""))
    sentence = "; ".join(said)
    return sentence[:1].upper() + sentence[1:] if said else None


def serving_sentence(report: Report) -> str | None:
    """What a serving engine did, a clause a kind of rounds; None for other programs."""
    found = report.serving
    if found is None:
        return None
    said = f"{found.engine}, as recorded: {'; '.join(_rounds(kind) for kind in found.kinds)}"
    if found.between_ns:
        said += f". Between two rounds the host takes {duration(found.between_ns)}"
    return said


def kv_cache_sentence(report: Report) -> str | None:
    """What one decode round reads from the cache of keys and values; None where nothing is known.

    ``kv_cache.why`` of the document says what would tell.
    """
    found = report.kv_cache
    if found is None or found.positions is None:
        return None
    each = "round" if report.serving is not None else "step"
    held = f"{found.positions:,.0f} position{'s' if found.positions != 1 else ''} of the KV cache"
    if found.read_bytes is None:
        return f"A decode {each} meets {held}; their size is not known"
    said = f"A decode {each} reads {held}, at most {size(found.read_bytes)}"
    if found.least_ns is not None:
        said += f": {duration(found.least_ns)} at full memory bandwidth"
    return said


def _rounds(kind: RoundsInfo) -> str:
    said = f"{kind.count} {kind.kind} round{'s' if kind.count != 1 else ''}"
    said += f" of {kind.requests:g} request{'s' if kind.requests != 1 else ''}"
    if kind.tokens is not None and kind.tokens != kind.requests:
        said += f" and {kind.tokens:,.0f} tokens"
    said += f", {duration(kind.typical_ns)}{' each' if kind.count != 1 else ''}"
    if kind.tokens_per_s is not None:
        said += f", {kind.tokens_per_s:,.0f} tokens/s"
    return said


def _usual(steps: StepsInfo) -> tuple[int, int]:
    """Between which times eight of ten steps lie, those that are named beside it left out."""
    apart = {one["duration_ns"] for one in steps.outliers}
    usual = sorted(took for took in steps.duration_ns if took not in apart)
    if not apart or not usual:
        return steps.spread_ns or (0, 0)
    tenth = round((len(usual) - 1) / 10)
    return usual[tenth], usual[-1 - tenth]


def base_ns(report: Report) -> int | None:
    """The step that gains are counted from: without the profiler, where that is known.

    The mean one, where exceptional steps or several kinds of steps make it differ from the typical.
    """
    steps = report.steps
    if steps.base_ns is not None:
        return steps.base_ns
    known = steps.unprofiled_ns_predicted is not None
    return steps.unprofiled_ns_predicted if known else steps.typical_ns


def gain(report: Report, finding: Finding) -> str:
    """What fixing a finding gives: ``14.9 → 10.6 ms a step (10.1 to 11.3)``.

    What falls into a few steps only leaves the typical one as it is; then its cost is said.
    """
    base = finding.given_step_ns or base_ns(report)
    if report.run is not None and report.run.alone and finding.consequence:
        return finding.consequence
    if finding.predicted_step_ns is not None and base and finding.predicted_step_ns < base:
        return change(base, finding.predicted_step_ns, finding.predicted_range_ns)
    if finding.cost_ns_per_step and (base or finding.consequence is None):
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


def breakdown_title(report: Report) -> str:
    """What the breakdown is of."""
    clock = "without the profiler" if _parts_are_corrected(report) else "as recorded"
    what = "the time" if report.steps.how == "none" else "a step"
    if report.run is not None and report.run.alone:
        return "Where the run goes"
    return f"Where {what} goes, {clock}"


def _is_corrected(report: Report) -> bool:
    """Whether the step without the profiler is known and visibly another one."""
    recorded, without = report.steps.typical_ns, report.steps.unprofiled_ns_predicted
    if not recorded or without is None:
        return False
    return abs(recorded - without) >= VISIBLE_COST_RATIO * recorded


def _parts_are_corrected(report: Report) -> bool:
    known = all(part.unprofiled_ns_per_step is not None for part in report.breakdown)
    return known and report.steps.unprofiled_ns_predicted is not None


def all_parts(report: Report) -> tuple[tuple[PartOfStep, int], ...]:
    """The parts of the step, longest first, without the profiler's cost where that is known."""
    corrected = _parts_are_corrected(report)
    timed = (
        (part, part.unprofiled_ns_per_step or 0 if corrected else part.ns_per_step)
        for part in report.breakdown
    )
    return tuple(sorted((t for t in timed if t[1]), key=lambda t: -t[1]))


def top_parts(report: Report) -> tuple[tuple[str, int], ...]:
    """Label and time of the largest parts of the step; the rest summed. Adds up to the step."""
    parts = all_parts(report)
    total = sum(ns for _, ns in parts)
    shown = [(p.label, ns) for p, ns in parts if ns >= SMALL_PART_RATIO * total][:MOST_PARTS]
    rest = [(p.label, ns) for p, ns in parts[len(shown) :]]
    if len(rest) > 1:
        rest = [(f"the other {len(rest)} parts", sum(ns for _, ns in rest))]
    return tuple(shown + rest)


def device_work(report: Report) -> str | None:
    """How busy the device was and what its own time of a step consists of; None without one."""
    device = report.device
    if device is None or device.idle_ratio is None:
        return None
    said = f"{_idle_share(report, device.idle_ratio)}{_each_device(report)}"
    parts = [(p.label, ns) for p, ns in all_parts(report) if p.group in ("device", "exposed")]
    total = sum(ns for _, ns in parts)
    large = [(label, ns / total) for label, ns in parts if ns >= SMALL_PART_RATIO * total]
    shown = [f"{label} {100 * ratio:.0f} %" for label, ratio in large[:MOST_KINDS_OF_WORK]]
    more = len(parts) - len(shown)
    rest = f"; {more} more" if more else ""
    return f"{said}. Its work: {'; '.join(shown)}{rest}." if shown else f"{said}."


def _idle_share(report: Report, of_recording: float) -> str:
    """How much of a step no device works, on the clock of its parts."""
    parts = all_parts(report)
    whole = sum(ns for _, ns in parts)
    idle_is = "the device is idle" if len(report.devices) < 2 else "all devices at once are idle"
    if not whole:
        said = f"{idle_is[:1].upper()}{idle_is[1:]} {percent(of_recording)} % of the time"
        return f"{said} from its first operation to its last, as recorded"
    idle = sum(ns for part, ns in parts if part.group == "idle")
    what = "step" if report.steps.how != "none" else "recording"
    clock = "without the profiler" if _parts_are_corrected(report) else "as recorded"
    return f"For all reasons together, {idle_is} {percent(idle / whole)} % of the {what}, {clock}"


def _each_device(report: Report) -> str:
    """Each device alone, where there are several; of the recording from its first operation."""
    if len(report.devices) < 2:
        return ""
    of = "the recording" if report.steps.how != "none" else "it"
    shown = report.devices[:MOST_DEVICES]
    said = [
        f"device {d.device} {percent(d.idle_ratio)} %" for d in shown if d.idle_ratio is not None
    ]
    more = len(report.devices) - len(shown)
    said += [f"{more} more devices"] if more else []
    return f". Each alone is idle of {of}: {', '.join(said)}" if said else ""


def fatal_facts(report: Report) -> tuple[str, ...]:
    """Why nothing can be concluded."""
    return tuple(f.detail for f in report.health.facts if f.severity == "fatal")


def weak_facts(report: Report) -> tuple[str, ...]:
    """What makes answers weaker."""
    return tuple(f.detail for f in report.health.facts if f.severity == "warning")
