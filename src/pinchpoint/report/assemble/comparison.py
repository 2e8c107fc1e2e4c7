"""Two recordings as one document: what changed, which findings went, and whether the fix worked."""

from dataclasses import replace as replaced

from msgspec.structs import replace

from pinchpoint.analysis.replay.predict import launches_ns
from pinchpoint.compare.fix import FixOutcome, fix_outcome
from pinchpoint.compare.profiles import ProfileComparison, doubt_of_one_program
from pinchpoint.diagnosis.difference import explained, predicted_without
from pinchpoint.errors import NotComparable
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.documents.report import Report
from pinchpoint.report.words.steps import base_ns
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration


def comparison(a: Trace, b: Trace) -> ProfileComparison:
    """From A, the one before, to B. NotComparable for files of sums, which have no timeline."""
    for trace in (a, b):
        if trace.summaries and trace.host_ops is None and trace.device_ops is None:
            raise NotComparable(
                f"{trace.source.path}: sums without a timeline, no step to compare",
                hint="load tests: pinchpoint compare A B; else record a trace of both",
            )
    a, b, left = _timed_alike(a, b)
    before, after = diagnose(a), diagnose(b)
    found = explained(a, b)
    found = replace(found, warnings=(*found.warnings, *left))
    fix = _fix(a, before, after, found)
    doubt = doubt_of_one_program(a, b, found.matched)
    return replace(found, fix=None if fix is None else replace(fix, doubt=doubt))


def _timed_alike(a: Trace, b: Trace) -> tuple[Trace, Trace, list[str]]:
    """Both, with a sentence where what launches cost more was taken out of one of two timed steps:
    then it stays in both, or the difference would be called one of the program."""
    for name, one, other in (("A", a, b), ("B", b, a)):
        run = other.run
        if launches_ns(one) and run and run.unprofiled_step_ns and run.launch is None:
            said = (
                f"what launches cost more once torch has recorded was measured in {name} alone "
                f"({duration(launches_ns(one))} of its step), and is left in both"
            )
            return _as_timed(a) or a, _as_timed(b) or b, [said]
    return a, b, []


def _as_timed(trace: Trace | None) -> Trace | None:
    """With each step as it was timed, in all windows of the run."""
    if trace is None or trace.run is None:
        return trace
    run = trace.run
    run = replaced(run, launch=None, named=_as_timed(run.named), late=_as_timed(run.late))
    return replaced(trace, run=run)


def _fix(a: Trace, before: Report, after: Report, found: ProfileComparison) -> FixOutcome | None:
    """What the findings that went were predicted to give against the step without them.

    Without the profiler where that is known of both sides, else as recorded: then nothing was
    predicted.
    """
    if found.a_step_ns is None or found.b_step_ns is None or found.change_ns is None:
        return None
    gone = tuple(f.id for f in found.findings if f.change == "went")
    known = [report.steps.unprofiled_ns_predicted for report in (before, after)]
    was, now = base_ns(before), base_ns(after)
    if None in known or was is None or now is None:
        noise = found.noise_ns
        between = None if noise is None else (found.b_step_ns - noise, found.b_step_ns + noise)
        return fix_outcome(gone, found.a_step_ns, found.b_step_ns, between, "as recorded")
    predicted = predicted_without(a, gone) if gone else None
    return fix_outcome(
        gone,
        was,
        now,
        _around(now, after),
        "without the profiler",
        (predicted.step_ns, predicted.range_ns) if predicted is not None else None,
    )


def _around(now_ns: int, after: Report) -> tuple[float, float] | None:
    """How sure the step without the profiler is, moved to the mean where gains count from that."""
    steps = after.steps
    if steps.unprofiled_ns_range is None or steps.unprofiled_ns_predicted is None:
        return None
    low, high = steps.unprofiled_ns_range
    beyond = now_ns - steps.unprofiled_ns_predicted
    return (max(low + beyond, 0), high + beyond)
