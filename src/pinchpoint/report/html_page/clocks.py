"""What the page says on each of its clocks; a switch shows one of them, everywhere at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinchpoint.diagnosis.evidence.run_places import in_run
from pinchpoint.frozen import dataclass
from pinchpoint.report.blocks import Ladder
from pinchpoint.report.documents.clock import Clock, has_two_clocks, on_clock
from pinchpoint.report.documents.report import Report
from pinchpoint.report.pages.ladder import ladder_block
from pinchpoint.report.quantity import duration, in_unit, percent, time_unit
from pinchpoint.report.svg.causal import ladder_svg, path_svg
from pinchpoint.report.words import breakdown as breakdown_words
from pinchpoint.report.words import report as wording
from pinchpoint.report.words import steps as steps_words
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.ladder import clock_words
from pinchpoint.report.words.mean import mean_sentences

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Part:
    """One part of the step, ready to draw; ``left`` and ``width`` in percent of the step."""

    id: str
    label: str
    group: str
    time: str
    share: str
    left: float
    width: float


@dataclass(frozen=True)
class OnClock:
    """All that depends on the clock."""

    id: Clock
    label: str  # of the switch
    suffix: str  # of anchors: empty for the clock that is shown at first
    verdict: tuple[str, str]  # the headline, and what else it says
    step: tuple[str, str, str]  # how long a step takes: what stands before the number, it, the rest
    mean: tuple[str, ...]
    ladder: Ladder | None
    gains: tuple[str, ...]  # of findings, in their order
    title: str  # of the breakdown
    parts: tuple[Part, ...]
    shown_parts: int  # that an overview has room for
    small_parts: str  # all others together
    unit: str
    device_work: str | None
    closing: str | None
    pieces: "Markup | None"  # what each is worth; its own renderer has escaped every name
    path: "Markup | None"  # the critical path


def clocks(safe: Report) -> tuple[OnClock, ...]:
    """The clock of gains first; one alone where both say the same or only one is known."""
    first = _said(safe, "unprofiled", "")
    if not has_two_clocks(safe):
        return (first,)
    return (first, _said(on_clock(safe, "recorded"), "recorded", "-recorded"))


def _said(report: Report, clock: Clock, suffix: str) -> OnClock:
    times, path = [ns for _, ns in breakdown_words.all_parts(report)], report.critical_path
    large = _large(times)
    unit = time_unit(sum(times))
    return OnClock(
        id=clock,
        label=clock_words(report),
        suffix=suffix,
        verdict=wording.headline(report.verdict),
        step=_step(report),
        mean=tuple(mean_sentences(report)),
        ladder=ladder_block(report),
        gains=tuple(wording.gain(report, finding) for finding in report.findings),
        title=breakdown_words.breakdown_title(report),
        parts=_parts(report, unit),
        shown_parts=large,
        small_parts=in_unit(sum(times[large:]), unit),
        unit=unit,
        device_work=breakdown_words.device_work(report),
        closing=closing_sentence(report),
        pieces=_drawn(ladder_svg(steps_words.base_ns(report) or 0, report.ladder), report.ladder),
        path=None if path is None else _drawn(path_svg(path.stretches), path.stretches),
    )


def _drawn(svg: str, of: Sequence[object]) -> "Markup | None":
    from markupsafe import Markup

    return Markup(svg) if of else None


def _step(report: Report) -> tuple[str, str, str]:
    base_ns = steps_words.base_ns(report) or 0
    alone = report.run is not None and report.run.alone
    figure = in_run(base_ns, base_ns) if alone else duration(base_ns)
    said = steps_words.step_sentence(report) or ""
    if base_ns and figure not in said:  # a range stands in its place
        figure = f"gains count from {in_unit(base_ns, time_unit(base_ns))}"
    before, shown, after = said.partition(figure)
    return before, shown, after


def _parts(report: Report, unit: str) -> tuple[Part, ...]:
    parts = breakdown_words.all_parts(report)
    total = sum(ns for _, ns in parts)
    drawn, before = [], 0
    for part, ns in parts:
        left, width = round(100 * before / total, 3), round(100 * ns / total, 3)
        time, share = in_unit(ns, unit), percent(ns / total)
        drawn.append(Part(part.part, part.label, part.group, time, share, left, width))
        before += ns
    return tuple(drawn)


def _large(times: list[int]) -> int:
    """How many parts an overview has room for, largest first."""
    least = breakdown_words.SMALL_PART_RATIO * sum(times)
    return min(sum(ns >= least for ns in times), breakdown_words.MOST_PARTS)
