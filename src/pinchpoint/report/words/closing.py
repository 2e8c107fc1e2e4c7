"""What it means that there are no findings, or no further ones."""

from collections import Counter

from pinchpoint.analysis.device.activity import TURNS_RATIO
from pinchpoint.analysis.mean.base_parts import OUTSIDE
from pinchpoint.analysis.replay.binding import HELD_UP_RATIO
from pinchpoint.analysis.steps.candidates import FEWEST_LAUNCHES
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.diagnosis.record import Need
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO
from pinchpoint.report.documents.causal import PieceInfo
from pinchpoint.report.documents.report import PartOfStep, Report
from pinchpoint.report.quantity import duration
from pinchpoint.report.words.breakdown import WITHIN_RANGES, part_ns
from pinchpoint.report.words.mean import unexplained_exceptions
from pinchpoint.report.words.run import closing_of_run

_IDLE_KINDS = frozenset(kind.id for kind in GapKind)
_SILENT = (
    GapKind.UNRECORDED.id,
    GapKind.DEPENDENCY.id,
    GapKind.UNRECORDED.id.replace("idle-", "host-"),
)
# What an ordinary recording holds; counters, snapshots and other machines are other measurements.
_RECORDABLE = frozenset(
    {
        Need.CPU_AND_DEVICE,
        Need.DEVICE,
        Need.RECORD_SHAPES,
        Need.WITH_STACK,
        Need.SHAPES,
        Need.STACKS,
    }
)
_NOT_THE_PROGRAM = (GapKind.PROFILER.id, GapKind.START_LATENCY.id)


def closing_sentence(report: Report) -> str | None:
    """What the absence of further findings means; None if no rule looked at a step."""
    if report.run is not None and report.run.alone:
        answered = report.findings or report.clear or report.not_shown
        return closing_of_run(report, report.run) if answered else None
    said = _said(report)
    ends_in_a_command = said is not None and not said.endswith(".")
    return said if said is None or ends_in_a_command else said + _too_short(report)


def _too_short(report: Report) -> str:
    """What a recording of more steps would show, where a loader's queue may have hidden it."""
    short = next((item for item in report.not_checked if item.needs == Need.LONGER), None)
    if short is None or _waits_for_batches(report):
        return ""
    return (
        " Whether the loader keeps up does not show: its queue may have been full when the"
        f" recording began. To see it, record {short.record}."
    )


_OF_BATCHES = (GapKind.DATA.id, GapKind.DATA.id.replace("idle-", "host-"))


def _waits_for_batches(report: Report) -> bool:
    """Whether so much of the step goes to batches that the loader does not keep up."""
    waits_ns = sum(part_ns(part) for part in report.breakdown if part.part in _OF_BATCHES)
    return waits_ns >= HELD_UP_RATIO * sum(map(part_ns, report.breakdown)) > 0


def _said(report: Report) -> str | None:
    if not (report.findings or report.clear or report.not_shown):
        return None
    if report.steps.typical_ns is None:  # launches or samples alone: no step to hold them against
        return None
    if _too_little(report):
        return None
    worth = f"{_surely(report)}worth {100 * MATERIAL_STEP_RATIO:.0f} % of the step"
    where = "" if report.source.one_of is None else " inside this rank alone"
    if not report.findings and any(p.label == WITHIN_RANGES for p in report.breakdown):
        return (
            "The ranges say where a step goes, not why: what ran inside of them was not recorded."
            " To judge it: pinchpoint run train.py"
        )
    if any(f.predicted_step_ns is not None or f.cost_ns_per_step for f in report.findings):
        return f"No other cause that was checked{where} is {worth}.{_what_is_left(report)}"
    if now_and_then := unexplained_exceptions(report):
        doubt = _not_judged(report) or _heaviest(report)
        return f"No cause that was checked{where} is {worth}, yet {now_and_then}.{doubt}"
    left = _in_longer_steps(report) or _lost_without_a_cause(report)
    if unexplained := left or _far_from_its_limit(report):
        open_ = "" if where else _undecided(report)
        return f"No cause that was checked{where} is {worth}, yet {unexplained}{open_}"
    if _in_turns(report):
        return f"No cause that was checked is {worth}, yet each device waits while another works."
    if few := _mostly_unchecked(report):
        return few
    return _nothing(report, where, worth)


def _nothing(report: Report, where: str, worth: str) -> str:
    """Not even a doubt is left, unless what takes most cannot be judged."""
    if report.crashed:
        failed = len(report.crashed)
        return (
            f"No cause that was checked is {worth}; {failed} could not be, as their checks failed."
        )
    if report.findings:  # of memory, or of how the program measures
        return f"No cause that was checked{where} is {worth}."
    if where:
        return f"Nothing{where} is {worth}.{_not_judged(report)}"
    doubt, open_ = _not_judged(report), _undecided(report)
    if report.not_applicable:
        doubt = doubt + open_ or _heaviest(report)
        return (
            f"No cause of programs on CPUs that was checked is {worth}"
            f" ({len(report.not_applicable)} others are causes on devices).{doubt}"
        )
    if said := doubt + _heaviest(report) + (_unknown(report) if not doubt else "") + open_:
        return f"No cause that was checked is {worth}.{said}"
    if _surely(report):
        return f"No cause that was checked is {worth}."
    return f"Nothing worth fixing here: no cause is {worth}."


def _surely(report: Report) -> str:
    """The word that keeps it true beside a cause that was seen and takes that much, yet less than
    its rule asks for: how much of it a fix wins is not sure."""
    open_ = any((one.step_ratio or 0) >= MATERIAL_STEP_RATIO for one in report.not_shown)
    return "surely " if open_ else ""


# Good kernels reach 0.85 to 0.9 of what data sheets allow, and limits count what is attainable: the
# rest is no waste that anybody could take out.
AT_LIMIT_RATIO = 0.85
LITTLE_ELSE_RATIO = 0.05  # of the step: what is left without a piece is no figure to plan with
LITTLE_WON_RATIO = 0.25  # of the step: with more of it won, the findings are what to read first


def _what_is_left(report: Report) -> str:
    """Beside findings that leave most of the step as it is, where the rest of it is made."""
    step_ns = sum(part_ns(part) for part in report.breakdown)
    alone = (f.predicted_step_ns for f in report.findings if f.predicted_step_ns is not None)
    left_ns = report.together_ns or min(alone, default=None)
    much = left_ns is not None and left_ns < (1 - LITTLE_WON_RATIO) * step_ns
    rest = _grew(report) or _not_judged(report) or ("" if much else _heaviest(report))
    return rest + _undecided(report, only=_TRIAL)


GROWS = "growing-steps"


def _grew(report: Report) -> str:
    """What is known of steps that grew, where most of what the step takes is in no recorded one."""
    step_ns = sum(part_ns(part) for part in report.breakdown)
    outside_ns = sum(part_ns(part) for part in report.breakdown if part.part == OUTSIDE.id)
    open_ = next((item for item in report.not_checked if item.id == GROWS and item.fits), None)
    if open_ is None or not outside_ns or outside_ns < HELD_UP_RATIO * step_ns:
        return ""
    return f" Undecided is {GROWS}: {open_.why}."


def _heaviest(report: Report) -> str:
    """The function of the program that gives the device most of its work.

    Whether the work is needed no recording tells: that is for its reader to judge.
    """
    line = report.heaviest_line
    if line is None or any(_is_about(f, line.name) for f in report.findings):
        return ""
    if report.device is None:
        return _longest_operator(report, line)
    said = (
        f" Most of the device's work is that of {line.name}: {duration(line.device_ns)} a step in"
        f" {line.calls:.0f} operations"
    )
    if line.limit_ns is not None:
        needs_ns = min(line.limit_ns, line.device_ns)
        if needs_ns >= AT_LIMIT_RATIO * line.device_ns:
            return f"{said}, near the machine's limit for it: to be shorter, it has to be less."
        said += f", of which the machine needs {duration(needs_ns)}"
    if line.step_if_free_ns < LITTLE_ELSE_RATIO * sum(map(part_ns, report.breakdown)):
        return f"{said}. Little else is in the step: is all of it needed?"
    without = f"Without it the step would be {duration(line.step_if_free_ns)}"
    return f"{said}. {without}: is all of it needed?"


def _is_about(finding: Finding, line: str) -> bool:
    """Whether a finding names this line of the program, whatever else its place says."""
    at = finding.location
    there = at is not None and at.line is not None and line.endswith(f"({at.file}:{at.line})")
    return there or line == str(at) or line in finding.summary


def _longest_operator(report: Report, piece: PieceInfo) -> str:
    """Without a device, the operator that the host computes longest."""
    if any(piece.name in f.summary for f in report.findings):
        return ""
    share = piece.host_ns / (piece.step_if_free_ns + piece.host_ns)
    where, of_place = _part(f"in {piece.place}" if piece.place else "", piece.place_ratio)
    of, of_shapes = _part(f"of {piece.shapes}" if piece.shapes else "", piece.shapes_ratio)
    calls = f" in {piece.calls:,.0f} calls" if piece.calls >= 2 else ""
    parts = " and ".join(filter(None, (of_place, of_shapes)))
    said = " ".join(filter(None, (f" The host computes longest in {piece.name}", of, where)))
    return f"{said}: {100 * share:.0f} % of the step{calls}{f' ({parts})' if parts else ''}."


NEARLY_ALL_RATIO = 0.95  # of an operator's time: then it is said of all of it
LEAST_PART_RATIO = 0.5  # of it: a place or shape with less is one of many


def _part(said: str, ratio: float | None) -> tuple[str, str]:
    """What is true of all calls, and what of a part of their time only."""
    if not said or ratio is None or ratio >= NEARLY_ALL_RATIO:
        return said, ""
    return "", f"{100 * ratio:.0f} % of that {said}" if ratio >= LEAST_PART_RATIO else ""


def _mostly_unchecked(report: Report) -> str | None:
    """Which causes were left out, where the same recorder could have recorded what most need."""
    missing = Counter(item.needs for item in report.not_checked if item.needs in _RECORDABLE)
    checked = len(report.clear) + len(report.not_shown)
    if sum(missing.values()) <= checked:
        return None
    what = " and ".join(need.value for need, _ in missing.most_common(2))
    if report.device is None and (longest := _heaviest(report)):  # as of what XLA compiled
        return (
            f"None of the {checked} causes that could be checked is {_surely(report)}worth"
            f" {100 * MATERIAL_STEP_RATIO:.0f} % of the step; {sum(missing.values())} others are"
            f" about devices, or about operators that it does not have.{longest}"
        )
    return (
        f"None of the {checked} causes that could be checked is {_surely(report)}worth"
        f" {100 * MATERIAL_STEP_RATIO:.0f} % of the step; {sum(missing.values())} others could not,"
        f" for want of {what}. To judge them: pinchpoint run train.py"
    )


def _not_judged(report: Report) -> str:
    """The doubt where an operator that dominates has no known limit, and no finding is about it."""
    piece, step_ns = report.without_limit, sum(part_ns(part) for part in report.breakdown)
    if piece is None or not step_ns or any(piece.name in f.summary for f in report.findings):
        return ""
    took_ns = piece.device_ns
    if report.device is None:  # its own window is the one with shapes, which has another step
        took_ns, step_ns = piece.host_ns, piece.step_if_free_ns + piece.host_ns
    share = f"{min(100 * took_ns / step_ns, 100):.0f} %"
    where = f" in {piece.place}" if piece.place else ""
    of = f" of {piece.shapes}" if piece.shapes else ""
    why = f": {piece.known}" if piece.known else ""
    return f" How fast {piece.name}{of}{where}, {share} of the step, could be is not known{why}."


MOSTLY_UNKNOWN_RATIO = 0.5  # of the kernels' time: then nobody can say that it is well spent


def _unknown(report: Report) -> str:
    """The doubt where no limit is known for most of what kernels do."""
    ratio = report.without_limit_ratio
    if ratio is None or ratio < MOSTLY_UNKNOWN_RATIO:
        return ""
    return (
        f" For {100 * ratio:.0f} % of the kernels' time the recording does not show what they"
        " compute, so how fast it could be is not known."
    )


# In what would tell: a knob turned for a minute, and not another recording. Beside findings too, as
# its gain may be more than theirs: where a step took 16 s with two threads on two busy cores, and
# half a second with one, the answer was an optimizer's 13 %.
_TRIAL = "pinchpoint try --knob"


def _undecided(report: Report, only: str = "") -> str:
    """Causes that what was recorded fits and cannot decide, with what would."""
    residual = {known.id for known in rules().values() if known.rule.residual}
    open_ = [item for item in report.not_checked if item.fits and only in (item.record or "")]
    open_.sort(key=lambda item: item.id in residual)  # what names a cause goes first
    said = "; ".join(f"{item.id}: {item.why}" for item in open_)
    tells = "; ".join(dict.fromkeys(item.record for item in open_))
    return f" Undecided is {said}. What would tell: {tells}." if open_ else ""


def _far_from_its_limit(report: Report) -> str | None:
    """An operator that takes several times what the machine needs for its work."""
    far = report.far_from_limit
    if far is None or far.limit_ns is None:
        return None
    why = f" It is slow because {far.known}." if far.known else ""
    why += f" {far.instead}." if far.instead else ""
    return (
        f"{far.name} takes {duration(far.device_ns)} a step where {duration(far.limit_ns)} would"
        f" do: at its limit the step would be {duration(far.step_at_limit_ns)}.{why}"
    )


def _too_little(report: Report) -> bool:
    """Whether what ran on the device is too little for any conclusion, as the verdict says."""
    device = report.device
    if device is None or report.steps.how != "none":
        return False
    return 0 < device.kernels + device.copies + device.memsets < FEWEST_LAUNCHES


def _in_turns(report: Report) -> bool:
    """Whether several devices work one after the other, as the verdict says."""
    if report.device is None or len(report.devices) < 2:
        return False
    return max(one.busy_ns for one in report.devices) < TURNS_RATIO * report.device.busy_ns


def _lost_without_a_cause(report: Report) -> str | None:
    """Time in which the device, or without one no operator, computes, if it is much; else devices
    that take turns."""
    step_ns = sum(part_ns(part) for part in report.breakdown)
    lost = [part for part in report.breakdown if _is_lost(part, report)]
    lost_ns = sum(map(part_ns, lost))
    if lost_ns < HELD_UP_RATIO * step_ns or not lost_ns:
        return "each device waits while another works." if _in_turns(report) else None
    most = max(lost, key=part_ns)
    said = who_explains(most)
    if report.findings:  # of the whole run: none of them is about the recorded step
        said = "What is found of the run may be why; no other rule explains it."
    said = _at_the_start(report, lost, lost_ns) or said
    share = f"{100 * lost_ns / step_ns:.0f} % of it"
    what = f"{share} passes outside operators"
    if report.device is not None:
        only_idle = all(part.group == "idle" for part in lost)
        what = f"for {share} the device {'is idle' if only_idle else 'computes nothing'}"
    said += _most_of_it(report) or (_heaviest(report) if report.device is None else "")
    return f"{what}, mostly: {most.label.removeprefix('idle: ')}. {said}"


def who_explains(most: PartOfStep) -> str:
    """What to say of lost time that no finding is about, by the part that has most of it."""
    return "Nothing recorded explains it." if most.part in _SILENT else "No rule explains that."


# What the driver does when a process first uses a device, and each piece of code; and what compiles
# a program, of which a rule of its own tells where it comes again.
_OF_A_START = tuple(
    kind.id.replace("idle-", where)
    for kind in (GapKind.MALLOC, GapKind.CODE_LOAD, GapKind.COMPILE)
    for where in ("idle-", "host-")
)
_AT_FIRST = ("code-load", "compile")
LEAST_LOADING_RATIO = 0.1  # below, nearly all are allocations, that may come again in each round


def _at_the_start(report: Report, lost: list[PartOfStep], lost_ns: int) -> str | None:
    """What is done once, where a recording without steps is mostly that."""
    once = [part for part in lost if part.part in _OF_A_START]
    once_ns = sum(map(part_ns, once))
    loading_ns = sum(part_ns(part) for part in once if part.part.endswith(_AT_FIRST))
    if report.steps.how != "none" or not loading_ns or 2 * once_ns < lost_ns:
        return None
    if loading_ns < LEAST_LOADING_RATIO * once_ns:
        return None
    what = " and ".join(part.label.removeprefix("idle: ") for part in once)
    return (
        f"{duration(once_ns)} are what a process does once ({what}). What repeats, a recording of"
        " later steps would show."
    )


def _in_longer_steps(report: Report) -> str | None:
    """Time of the mean step that none of the recorded steps has, if it is much."""
    step_ns = sum(part_ns(part) for part in report.breakdown)
    outside_ns = sum(part_ns(part) for part in report.breakdown if part.part == OUTSIDE.id)
    if outside_ns < HELD_UP_RATIO * step_ns or not outside_ns:
        return None
    return (
        f"{duration(round(outside_ns))} of it are in longer steps of the run, none of which was"
        f" recorded.{_heaviest(report)} More steps would show the longer ones (pinchpoint run"
        " --steps 60)."
    )


def _most_of_it(report: Report) -> str:
    """The line whose host time the step waits for most, where the ladder has one."""
    rungs = () if report.fix_ladder is None else report.fix_ladder.rungs
    most = next((rung for rung in rungs if rung.on_host), None)
    if most is None:
        return ""
    return f" Without the host time of {most.id} the step would be {duration(most.step_ns)}."


def _is_lost(part: PartOfStep, report: Report) -> bool:
    """Whether a part is a wait or what the host does around its operators."""
    if part.part == "exposed-communication":  # of one rank: the verdict says who could judge it
        return report.source.one_of is None
    return is_wait(part) or (part.group == "exposed" and part.part not in _NOT_THE_PROGRAM)


def is_wait(part: PartOfStep) -> bool:
    """Whether in a part the device waits or, without one, the host is outside its operators."""
    if part.group == "host":
        return "idle" + part.part.removeprefix("host") in _IDLE_KINDS
    return part.group == "idle" and part.part not in _NOT_THE_PROGRAM
