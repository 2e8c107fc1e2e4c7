"""Sentences about a job that the renderers share."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from pinchpoint.analysis.replay.binding import HELD_UP_RATIO
from pinchpoint.report.documents.ranks import (
    BucketItem,
    ClockInfo,
    IncidentItem,
    JobFindingItem,
    JobInfo,
    JobSteps,
    MismatchItem,
    RanksReport,
    StragglerItem,
)
from pinchpoint.report.documents.report import PartOfStep
from pinchpoint.report.quantity import duration, in_unit, number, percent, quantity, time_unit
from pinchpoint.report.words.breakdown import MOST_PARTS, SMALL_PART_RATIO
from pinchpoint.report.words.closing import is_wait, who_explains
from pinchpoint.report.words.report import change

MOST_NOTES = 4  # of one sort; the document has them all
RECORDING_RATIO = 0.8  # of the recorded step: below it waits are not those of the real job
MUCH_TRANSFER_RATIO = 0.1  # of the step: worth a word even where no rule is sure of a gain
WORTH_RATIO = 0.03  # of the step: what a finding has to be worth
_MOST_SPANS = 6  # in one sentence


def source_line(report: RanksReport) -> tuple[str, ...]:
    """What was read: ranks, devices, backend, steps."""
    job = report.job
    of = f" of {job.world_size:,}" if job.world_size and job.world_size != job.ranks else ""
    ranks = f"{job.ranks:,}{of} ranks" if of else _counted(job.ranks, "rank")
    devices = ", ".join(f"{n:,} × {name}" for name, n in sorted(job.devices.items()))
    numbers = report.steps.numbers
    steps = "no steps"
    if numbers:
        steps = f"{len(numbers):,} steps ({numbers[0]} to {numbers[-1]})"
    if len(numbers) == 1:
        steps = f"1 step (number {numbers[0]})"
    return tuple(p for p in (ranks, devices, ", ".join(job.backends), steps) if p)


def clock_sentence(report: RanksReport) -> str | None:
    """How the clocks were aligned, and what that leaves open."""
    clocks = report.clocks
    if clocks.aligned < 2 or clocks.uncertainty_ns is None:
        return None
    apart = f", up to {duration(clocks.largest_offset_ns or 0)} apart before"
    drift = clocks.largest_drift_ppm
    moving = f", drifting up to {drift:g} ppm" if drift else ""
    how = " and ".join(clocks.matched_by)
    return (
        f"Clocks brought together by the collectives' ends (matched by {how}):"
        f" ± {duration(clocks.uncertainty_ns)}{apart}{moving}"
    )


def step_sentence(report: RanksReport) -> str | None:
    """How long a step takes, recorded and without the profiler.

    Of several ranks that is the mean, which their parts add up to; what a rank's own answer says
    is its typical step, near the median.
    """
    steps = report.steps
    if steps.typical_ns is None:
        return None
    without, recorded = (
        steps.unprofiled_ns_predicted,
        f"{duration(steps.typical_ns)}{_mean(report)}",
    )
    if without is None:
        return f"A step takes {recorded}, as recorded"
    if duration(without) == duration(steps.typical_ns):
        return f"A step takes {recorded}, with the profiler or without"
    return f"A step takes about {duration(without)} without the profiler, {recorded} as recorded"


def _mean(report: RanksReport) -> str:
    steps = report.steps
    if report.job.ranks < 2 or steps.typical_ns is None or not steps.duration_ns:
        return ""
    unit, middle = time_unit(steps.typical_ns), round(median(steps.duration_ns))
    apart = in_unit(middle, unit) != in_unit(steps.typical_ns, unit)
    return f" on average over ranks and steps{f' (median {in_unit(middle, unit)})' * apart}"


def step_figure(report: RanksReport) -> str:
    """How long a step takes, as the sentence has it."""
    steps = report.steps
    return duration(steps.unprofiled_ns_predicted or steps.typical_ns or 0)


def doubts(report: RanksReport) -> tuple[str, ...]:
    """What is missing or odd about the files."""
    job = report.job
    said = []
    steps = report.steps
    without = steps.unprofiled_ns_predicted
    if without is not None and without < RECORDING_RATIO * (steps.typical_ns or 0):
        said.append("recording slows the hosts here: without it ranks wait less for each other")
    if job.shards_missing:
        said.append(f"shards that are missing: {spans(job.shards_missing)}")
    if job.missing:
        said.append(f"{_counted(len(job.missing), 'rank')} without a usable recording: "
                    f"{spans(job.missing)}")  # fmt: skip
    for note in job.unreadable[:MOST_NOTES]:
        why = note.why.replace(note.path, file_name(note.path), 1) if note.path else note.why
        said.append(f"cannot be used: {why}")
    if len(job.unreadable) > MOST_NOTES:
        said.append(f"and {len(job.unreadable) - MOST_NOTES:,} more that cannot be used")
    if cut := tuple(rank for rank in job.truncated if rank not in job.missing):
        said.append(f"cut off: {_ranks(cut)}")
    if steps.ranks_with_fewer:
        said.append(_fewer(steps))
    if job.point_to_point:
        said.append(
            f"{job.point_to_point:,} sends and receives are not matched between ranks: "
            "the recordings do not say who exchanged what"
        )
    if job.left_out:
        said.append(_left_out(job))
    said += _apart(report.clocks)
    return tuple(said)


def _fewer(steps: JobSteps) -> str:
    """Ranks that ended, or whose recordings do, before those of others."""
    several = len(steps.ranks_with_fewer) > 1
    return (
        f"{_ranks(steps.ranks_with_fewer)} recorded fewer steps than the others:"
        f" {'as few as ' * several}{steps.fewest_of_a_rank} of up to {steps.most_of_a_rank};"
        " each rank counts in those that it has"
    )


def _apart(clocks: ClockInfo) -> Iterator[str]:
    """Why ranks could not be brought together."""
    if clocks.not_aligned:
        alone = _ranks(clocks.not_aligned)
        yield f"no collective shared with the others, clock not aligned: {alone}"
    if clocks.apart_ns:
        yield (
            f"recorded one after the other: {duration(clocks.apart_ns)} lie between the end of one"
            " and the beginning of another; only recordings of the same steps can be matched"
        )


def _left_out(job: JobInfo) -> str:
    first = job.left_out[0]
    more = f" and {len(job.left_out) - 1:,} more" if len(job.left_out) > 1 else ""
    return f"left out: {file_name(first.path)}{more} ({first.why})"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {spans(ranks)}"


def spans(numbers: tuple[int, ...]) -> str:
    """``0 to 7, 12, 15 to 16``; of many, the first ones."""
    out: list[list[int]] = []
    for one in numbers:
        if out and one == out[-1][1] + 1:
            out[-1][1] = one
        else:
            out.append([one, one])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in out[:_MOST_SPANS]]
    more = len(numbers) - sum(b - a + 1 for a, b in out[:_MOST_SPANS])
    return ", ".join(texts) + (f" and {more:,} more" if more else "")


def closing(report: RanksReport) -> str | None:
    """What it means that there is no finding; None where there are some, or no step was found."""
    if report.findings or not report.steps.typical_ns:
        return None
    if report.scaling is None:  # what lies between the ranks could not be judged
        return "Nothing inside a single rank is worth 3 % of the step."
    nothing = "Nothing worth fixing here: no cause is worth 3 % of the step."
    exposed, step = report.scaling.transfer_ns_per_step, report.steps.typical_ns
    waiting = report.scaling.waiting_ns_per_step
    if waiting >= WORTH_RATIO * step and any(n.id == "straggler-rank" for n in report.not_checked):
        return (
            f"The step waits {duration(waiting)} for the last rank, and who that is by itself could"
            " not be told (straggler-rank, not checked); nothing else is worth 3 % of it."
        )
    if waits := _waits_without_a_cause(report):
        return waits
    if exposed < MUCH_TRANSFER_RATIO * step:
        return nothing
    return (
        "Nothing is sure to be worth 3 % of the step. Hiding its transfers would win at most"
        f" {duration(exposed)}, and less where they slow down what runs beside them:"
        " pinchpoint explain comm-not-overlapped"
    )


def _waits_without_a_cause(report: RanksReport) -> str | None:
    """Time that the ranks' devices, or without them their operators, stand still, if it is much.

    Each rank by itself loses it, so that no rank waits long for another and the job scales well.
    """
    waits = [(_counted_ns(report, part), part) for part in report.breakdown if is_wait(part)]
    step_ns = sum(_counted_ns(report, part) for part in report.breakdown)
    lost_ns = sum(ns for ns, _ in waits)
    if lost_ns < HELD_UP_RATIO * step_ns or not lost_ns:
        return None
    most = max(waits, key=lambda timed: timed[0])[1]
    on_device = most.group == "idle"
    what = "the devices are idle" if on_device else "no operator runs"
    return (
        f"No cause that was checked is worth 3 % of the step, yet for {percent(lost_ns / step_ns)}"
        f" % of it {what}, mostly: {most.label.removeprefix('idle: ')}. {who_explains(most)}"
    )


def _counted_ns(report: RanksReport, part: PartOfStep) -> int:
    """What a part takes of the step that is spoken of: without the profiler where that is known."""
    recorded = report.steps.unprofiled_ns_predicted is None
    return part.ns_per_step if recorded else part.unprofiled_ns_per_step or 0


def top_parts(report: RanksReport) -> tuple[tuple[str, PartOfStep | None, int], ...]:
    """The largest parts, and the rest in one; they add up to the step."""
    parts = [(part.label, part, _counted_ns(report, part)) for part in report.breakdown]
    total = sum(ns for *_, ns in parts)
    parts.sort(key=lambda part: -part[-1])
    rows = [part for part in parts[:MOST_PARTS] if part[-1] >= SMALL_PART_RATIO * total]
    rest = total - sum(ns for *_, ns in rows)
    return (*rows, ("everything else", None, rest)) if rest else tuple(rows)


def gain(report: RanksReport, finding: JobFindingItem) -> str:
    """``14.9 → 10.6 ms a step (10.1 to 11.3)``."""
    base = report.steps.unprofiled_ns_predicted or report.steps.typical_ns
    if finding.predicted_step_ns is None or not base:
        return finding.consequence or "the gain is not known"
    return change(base, finding.predicted_step_ns, finding.predicted_range_ns)


def shown_on(finding: JobFindingItem) -> str | None:
    """On which ranks a finding was made, where it is about single ranks."""
    if finding.on_ranks is None:
        return None
    some = "" if finding.on_ranks == len(finding.ranks) else f"{finding.on_ranks:,} ranks, such as "
    return f"{some}{_ranks(finding.ranks)}; best seen in {file_name(finding.shown_by or '')}"


def file_name(path: str) -> str:
    """The last part of a path or URL."""
    return path.rpartition("/")[2]


def straggler_sentence(item: StragglerItem) -> str:
    """What a late rank lost and did."""
    doing = "; ".join(
        d.what + (f" at {d.where}" if d.where else "") + f" ({duration(d.ns_per_step)})"
        for d in item.doing
    )
    last = ""
    if item.last_ratio is not None:
        last = f", last to {percent(item.last_ratio)} % of collectives"
    steps = f"in {_counted(len(item.late_steps), 'step')} since step {item.since_step}"
    return f"rank {item.rank}: {duration(item.excess_ns)} {steps}{last}: {doing or 'not known'}"


def incident_sentence(item: IncidentItem) -> str:
    """One step that waited for one rank."""
    return f"step {item.step} waits {duration(item.excess_ns)} for rank {item.rank}"


def mismatch_sentence(item: MismatchItem) -> str:
    """A suspect for a hang."""
    at = f"step {item.step}, call {item.place}" if item.step is not None else f"call {item.place}"
    who = f"{_counted(item.count, 'rank')} ({spans(item.ranks)})"
    if item.what == "missing":
        return f"{item.group}, {at}: {who} did not call {item.call}"
    return f"{item.group}, {at}: {who} called {item.instead} where others called {item.call}"


def bucket_sentence(item: BucketItem) -> str:
    """How large messages should be."""
    now = quantity(item.mean_bytes, "bytes")
    text = (
        f"{item.kind} of {item.group}: {item.per_step:g} messages a step of {now} on average reach"
        f" {percent(item.reached_ratio)} % of {rate(item.bytes_per_s)}"
    )
    if not item.saving_ns_per_step:
        return text + "; larger ones would not help"
    wanted = quantity(item.bucket_bytes, "bytes")
    return text + f"; buckets of {wanted} save {duration(item.saving_ns_per_step)} of transfers"


def rate(bytes_per_s: float) -> str:
    """Bandwidths are spoken of in powers of ten."""
    return f"{number(bytes_per_s / 1e9)} GB/s"


def cell(value: Any, unit: str) -> str:
    """A cell of a table as text."""
    if value is None:
        return "-"
    return rate(value) if unit == "bytes/s" else quantity(value, unit)


def scaling_sentence(report: RanksReport) -> str | None:
    """What the job keeps of what its ranks could do alone."""
    found = report.scaling
    if found is None or report.job.ranks < 2:
        return None
    limits = {
        "waiting": "late ranks",
        "transfer": "transfers",
        "waiting or transfer": "late ranks or transfers: the recordings do not say which",
        "nothing": "hardly anything",
    }
    return (
        f"Scaling efficiency {percent(found.efficiency_ratio)} % (own work over step);"
        f" limited by {limits[found.limit]}"
    )


def nothing_usable(report: RanksReport) -> str:
    """Why there is no answer, in a line."""
    bad = report.job.unreadable
    if not bad:
        return "no recording of any rank"
    first = bad[0].why if bad[0].path in bad[0].why else f"{bad[0].path}: {bad[0].why}"
    more = f"; and {len(bad) - 1:,} more" if len(bad) > 1 else ""
    return f"none of {report.job.files:,} recordings can be used: {first}{more}"
