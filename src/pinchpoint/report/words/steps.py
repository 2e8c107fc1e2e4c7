"""How long a step takes, how steps differ, what a serving engine did: the sentences about steps."""

from pinchpoint.analysis.replay.binding import HELD_UP_RATIO
from pinchpoint.report.documents.report import BeforeInfo, Report, RoundsInfo, StepsInfo
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.quantity import duration, in_unit, size, span, time_unit
from pinchpoint.report.words.run import run_sentence

NOT_CORRECTED = "not corrected: "  # and why not
VISIBLE_COST_RATIO = 0.005  # of the step; three digits show no smaller cost of recording
_LONGEST_NAME = 60  # characters, of a call
FEWEST_FOR_SPREAD = 4  # complete steps; of fewer, a 10th and a 90th percentile mean nothing


def steps_found(report: Report) -> str:
    """How many steps, and how they were found."""
    steps = report.steps
    if steps.how == "none":
        return "no steps found"
    count = f"{steps.count} step{'' if steps.count == 1 else 's'}"
    if steps.turns_at is not None:
        file, line, _ = steps.turns_at
        return f"{count} (rounds at {file}:{line})"
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
    between = f" ({span(*limits, time_unit(base))})" if limits and _apart(*limits) else ""
    if abs(recorded - base) < VISIBLE_COST_RATIO * recorded:
        if _waits_for_ranks(report):
            return (
                f"A step takes {takes}, with this rank's profiler or without{between}; those of"
                " other ranks may have made it wait longer"
            )
        return f"A step takes {takes}, with the profiler or without{between}"
    measured = (steps.unprofiled_how or "").startswith("measured")
    about = "" if measured or between else "about "
    how = f", {steps.unprofiled_how}" if measured else ""
    unit = time_unit(base)
    same = unit == time_unit(recorded)
    trace = in_unit(recorded, unit) if same else duration(recorded)
    return f"A step takes {about}{takes} without the profiler{between}{how}, {trace} in the trace"


def _waits_for_ranks(report: Report) -> bool:
    """Whether much of one rank's step is in collectives, where it may wait for a rank that its own
    recording does not show."""
    parts = report.breakdown
    waits = sum(part.ns_per_step for part in parts if part.part == "exposed-communication")
    step_ns = sum(part.ns_per_step for part in parts)
    return report.source.one_of is not None and waits >= HELD_UP_RATIO * step_ns > 0


def _apart(low: int, high: int) -> bool:
    """Whether the ends of a range are not one and the same figure."""
    return duration(low) != duration(high)


def _only_a_range(
    steps: StepsInfo, limits: tuple[int, int], base: int, recorded: int, mean: bool
) -> str:
    unit = time_unit(base)
    trace = in_unit(recorded, unit) if unit == time_unit(recorded) else duration(recorded)
    return (
        f"A step takes {span(*limits, unit)} {unit}{' on average' * mean} without the profiler"
        f" (gains count from {in_unit(base, unit)}), {trace} in the trace;"
        f" {steps.unprofiled_not_closer}"
    )


def _one_piece(report: Report) -> str:
    """A recording in which no steps were found."""
    steps = report.steps
    lasts = duration(steps.typical_ns or 0)
    whole = f"The recording lasts {lasts} and is judged as one step"
    if steps.before is not None:
        whole = f"What is judged, as one step, lasts {lasts}"
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
    if steps.before is not None:
        said.append(_before(steps.before))
    sentence = "; ".join(said)
    return sentence[:1].upper() + sentence[1:] if said else None


def _before(found: BeforeInfo) -> str:
    what = (
        f", {duration(found.longest_ns)} of it in {middle_cut(found.longest, _LONGEST_NAME)}"
        * bool(found.longest)
    )
    return f"what was recorded before that lasts {duration(found.duration_ns)}{what}"


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


def _is_corrected(report: Report) -> bool:
    """Whether the step without the profiler is known and visibly another one."""
    recorded, without = report.steps.typical_ns, report.steps.unprofiled_ns_predicted
    if not recorded or without is None:
        return False
    return abs(recorded - without) >= VISIBLE_COST_RATIO * recorded
