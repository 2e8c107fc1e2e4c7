"""What the list of runs says of one recording: kept in the index, so that it is read once."""

from collections.abc import Sequence

import msgspec

from pinchpoint.compare.profiles import lasting
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report
from pinchpoint.report.plain import plain
from pinchpoint.report.words.ladder import clock_words
from pinchpoint.report.words.ranks import gain as gain_of_job
from pinchpoint.report.words.report import gain
from pinchpoint.report.words.steps import base_ns
from pinchpoint.trace import Trace

_SENTENCE_LIMIT = 300  # characters
MOST_NAMES = 12  # enough to tell two programs apart
MOST_STEPS = 64  # of a recording, to tell a change from what steps differ by themselves


class KnownRung(msgspec.Struct, frozen=True, array_like=True):
    """A predicted step: of a finding, or of all together (``all``)."""

    id: str
    step_ns: int
    low_ns: int
    high_ns: int
    base_ns: int = 0  # that it counts from: today's step, or that with others fixed; 0: not known


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one recording, in short."""

    program: str = ""  # the command of a run; empty: not known
    device: str = ""
    step_ns: int | None = None
    step_range_ns: tuple[int, int] | None = None  # without the profiler
    clock: str = ""  # without the profiler, as recorded
    verdict: str = ""
    findings: tuple[str, ...] = ()  # ids, the one to change first first
    first_gain: str = ""
    rungs: tuple[KnownRung, ...] = ()
    work: tuple[str, ...] = ()  # what a step runs, and how often: "12 × aten::mm"
    steps_ns: tuple[
        int, ...
    ] = ()  # that compare counts, as recorded, shortest first, evenly thinned
    rank: int | None = None
    world_size: int | None = None
    problem: str = ""  # why nothing is known


def summarise(trace: Trace, report: Report) -> Summary:
    """The summary of a diagnosed recording."""
    found = report.findings
    command = trace.run.command if trace.run is not None else ()
    return Summary(
        program=plain(" ".join(command), _SENTENCE_LIMIT),
        device=plain(", ".join(dict.fromkeys(report.source.devices)), _SENTENCE_LIMIT),
        step_ns=base_ns(report),
        step_range_ns=report.steps.unprofiled_ns_range,
        clock=clock_words(report),
        verdict=plain(report.verdict, _SENTENCE_LIMIT),
        findings=tuple(finding.id for finding in found),
        first_gain=plain(gain(report, found[0]), _SENTENCE_LIMIT) if found else "",
        rungs=_rungs(report),
        work=_work(report),
        steps_ns=_thinned(lasting(trace).tolist()),
        rank=report.source.rank,
        world_size=report.source.world_size,
    )


def _thinned(took: Sequence[int]) -> tuple[int, ...]:
    ordered, most = sorted(took), min(len(took), MOST_STEPS)
    last = len(ordered) - 1
    return tuple(ordered[round(i * last / max(most - 1, 1))] for i in range(most))


def summarise_job(report: RanksReport, one: Summary) -> Summary:
    """What all ranks of a job say together, as ``pinchpoint ranks`` does; ``one`` is of a rank."""
    steps, found = report.steps, report.findings
    return msgspec.structs.replace(
        one,
        step_ns=steps.unprofiled_ns_predicted or steps.typical_ns,
        step_range_ns=None,
        steps_ns=_thinned(steps.duration_ns),
        clock=clock_words(report),
        verdict=plain(report.verdict, _SENTENCE_LIMIT),
        findings=tuple(finding.id for finding in found),
        first_gain=plain(gain_of_job(report, found[0]), _SENTENCE_LIMIT) if found else "",
        rungs=_rungs(report),
        rank=None,
    )


def _rungs(report: Report | RanksReport) -> tuple[KnownRung, ...]:
    rungs = report.fix_ladder.rungs if report.fix_ladder else ()
    return tuple(KnownRung(rung.id, rung.step_ns, *rung.range_ns, rung.base_ns) for rung in rungs)


def _work(report: Report) -> tuple[str, ...]:
    """What takes most time: by it two recordings are seen to be of one program."""
    table = report.tables.get("operators") or report.tables.get("kernels")
    if table is None:
        return ()
    calls = next(i for i, column in enumerate(table.columns) if column.id == "calls")
    steps = max(report.steps.count, 1)
    return tuple(
        plain(f"{round((row[calls] or 0) / steps)} × {row[0]}", _SENTENCE_LIMIT)
        for row in table.rows[:MOST_NAMES]
    )
