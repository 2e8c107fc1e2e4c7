"""What a person reads on standard error once a recorded program has ended."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.capture.launch.launcher import TEARDOWN
from pinchpoint.cli.output import aside, look, note
from pinchpoint.errors import PinchpointError

if TYPE_CHECKING:
    from pinchpoint.run_folder.documents import ThreadedNote
    from pinchpoint.run_folder.metrics import (
        LaunchMicroseconds,
        MetricsDocument,
        UnprofiledSteps,
    )

BURST_RATIO = 1.5  # of the mean to the median: below it one number tells enough


def say(folder: Path, problems: Sequence[str]) -> None:
    """What a person should know first, on standard error."""
    from pinchpoint.run_folder.documents import read
    from pinchpoint.run_folder.layout import METRICS_FILE
    from pinchpoint.run_folder.metrics import MetricsDocument

    for problem in problems:
        note(f"pinchpoint: {problem}")
    metrics = read(folder / METRICS_FILE, MetricsDocument).document
    steps = metrics.steps
    if steps and (typical := steps.unprofiled_ms.median) is not None:
        note(
            f"pinchpoint: {steps.count} steps{_rounds(steps.place)}; "
            f"{typical:.4g} ms a step without the profiler "
            f"(median of {steps.unprofiled_ms.count}{_beside(steps.unprofiled_ms)}"
            f"{_with_dear_launches(steps.launch_us)})"
            f"{_in_bursts(typical, steps.unprofiled_ms.mean)}"
        )
    if steps and steps.recording_cost_ms is not None and metrics.profiled and metrics.duration_s:
        cost_s, run_s = steps.recording_cost_ms / 1e3, metrics.duration_s
        note(
            f"pinchpoint: recording took {cost_s:.2g} s of the {run_s:.4g} s"
            f" ({_percent(cost_s / run_s)}){_samples_cost(metrics)}{_of_ten_minutes(metrics)}"
            f"{_not_counted(metrics)}"
        )
    if metrics.threaded is not None:
        note(f"pinchpoint: {_in_threads(metrics.threaded)}")
    note(f"pinchpoint: run folder {_shown(folder)}")


def _rounds(place: tuple[str, int, str] | None) -> str:
    """Of what, where nothing marks them."""
    if place is None:
        return ""
    file, line, function = place
    return f" (rounds at {file}:{line} in {function}, since nothing marks steps)"


def _in_threads(calls: "ThreadedNote") -> str:
    """Requests of a server, jobs of a pool: no step of one thread."""
    file, line, function = calls.place
    return (
        f"{calls.calls} calls of {function} ({file}:{line}) in {calls.threads} threads: "
        f"{calls.per_s:.3g} a second, {calls.at_once:.2g} at once on average, "
        f"{calls.median_ns / 1e6:.3g} ms each (95 % within {calls.p95_ns / 1e6:.3g})"
    )


def _beside(timed: "UnprofiledSteps") -> str:
    """Where those that were timed are no measure of the run's, what they took."""
    sides = [side for side in (timed.before_median, timed.after_median) if side is not None]
    median = timed.median
    if median is None or not sides or min(sides) <= median <= max(sides):
        return ""
    nearest = min(sides) if min(sides) > median else max(sides)
    return f", as long as the run's on average; beside the recording {nearest:.4g}"


def _with_dear_launches(launch: "LaunchMicroseconds") -> str:
    """As they were timed; the diagnosis takes it out."""
    if not launch.more:
        return ""
    return f"; each launch in it costs {launch.more:.1f} µs more than before the recording"


def _of_ten_minutes(metrics: "MetricsDocument") -> str:
    """Both together in a run of the length that the promise is about."""
    from pinchpoint.run_folder.metrics import TEN_MINUTES_S, cost_of_ten_minutes

    ratio = cost_of_ten_minutes(metrics)
    if ratio is None or (metrics.duration_s or 0.0) >= TEN_MINUTES_S:
        return ""
    return f"; of a run of ten minutes, in which most of it comes once, {_percent(ratio)} in all"


def _not_counted(metrics: "MetricsDocument") -> str:
    """What no clock of ours sees, since the profiler begins before any ordinary step."""
    if not metrics.memory.torch_peak_allocated_bytes or os.environ.get(TEARDOWN) == "1":
        return ""
    launch = metrics.steps.launch_us if metrics.steps else None
    more_us, slows = launch.more if launch else None, "may slow launches"
    if launch is not None and more_us is not None:
        if not more_us:
            return ""
        slows = f"a launch costs {more_us:.1f} µs more than the {launch.before:.1f} before"
    return f"; not in that: CUPTI stays loaded, and {slows} ({TEARDOWN}=1 unloads it)"


def _samples_cost(metrics: "MetricsDocument") -> str:
    """What looking at the stacks of all threads has cost, in the words after the recording's."""
    if metrics.samples_cost_ms is None or not metrics.duration_s:
        return ""
    cost_s = metrics.samples_cost_ms / 1e3
    return f", looks at the whole run {cost_s:.2g} s ({_percent(cost_s / metrics.duration_s)})"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def _in_bursts(median: float, mean: float | None) -> str:
    """Where most steps are short and some are long, the median alone would mislead."""
    if mean is None or mean < BURST_RATIO * median:
        return ""
    return f"; in bursts: the mean is {mean:.4g} ms"


def say_others(folder: Path) -> None:
    """What other programs did to this one, where no answer says it."""
    from pinchpoint.run_folder.documents import read
    from pinchpoint.run_folder.layout import METRICS_FILE
    from pinchpoint.run_folder.metrics import MetricsDocument

    for sentence in read(folder / METRICS_FILE, MetricsDocument).document.others.sentences:
        note(f"pinchpoint: {sentence}")


def say_diagnosis(folder: Path, said: Sequence[str]) -> None:
    """Print the diagnosis on standard error: standard output belongs to the program.

    Where several ranks were recorded it is that of the job: one of them cannot tell who is late.
    """
    from pinchpoint.api import diagnose
    from pinchpoint.importers.ranks.files import several_ranks
    from pinchpoint.report import terminal
    from pinchpoint.report.pages.report import report_page

    try:
        if several_ranks(folder):
            from pinchpoint.jobs import diagnose_ranks
            from pinchpoint.report.pages.ranks import ranks_page

            say_others(folder)
            note("")
            page = ranks_page(diagnose_ranks([folder]))
            aside(terminal.render(page, look()))
            return
        report = diagnose(_shown(folder))
    except PinchpointError as error:
        say_others(folder)
        if not any(error.message.endswith(problem) for problem in said):
            note(f"pinchpoint: no diagnosis: {error.message}")
        return
    note("")
    aside(terminal.render(report_page(report), look()))


def _shown(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
