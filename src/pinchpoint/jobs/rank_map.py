"""The map of a job: from the file of one rank to its record. Runs in a process of its own."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pinchpoint.analysis.mean.rare_steps import RareCause, rare_causes
from pinchpoint.analysis.ranks.inputs import first_inputs
from pinchpoint.analysis.ranks.stragglers import LEAST_EXCESS_RATIO
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.analysis.ranks.summary import RankSummary
from pinchpoint.analysis.statistics import in_bursts
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis import engine, windows
from pinchpoint.diagnosis.engine import Diagnosis
from pinchpoint.diagnosis.evidence.rare import location, material
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.diagnosis.ladder import in_order
from pinchpoint.errors import PinchpointError
from pinchpoint.importers import load
from pinchpoint.importers.ranks.files import RankFile, local_copy
from pinchpoint.importers.run_folder import names_beside, with_far_steps, with_values
from pinchpoint.importers.run_folder.facts import timed_steps_ns, was_contended
from pinchpoint.jobs.looks import looks_at
from pinchpoint.report.assemble.findings import answers
from pinchpoint.report.assemble.ladder import ladder_info
from pinchpoint.report.documents.rank_records import FoundOnRank, RankRecord, encode_record
from pinchpoint.trace import Trace

MOST_FINDINGS = 8  # of one rank; they are ranked


def read_rank(file: RankFile) -> bytes:
    """The encoded record; it says so if the file is bad, as one must not stop ten thousand."""
    try:
        with local_copy(file.path) as path:
            record = record_of(with_values(load(path), file.path), file)
    except PinchpointError as error:
        record = failed(file, error.message)
    except (Exception, MemoryError) as error:  # a bug of ours costs one rank, and is shown
        record = failed(file, f"{file.path}: {type(error).__name__}: {error}")
    return encode_record(record)


def failed(file: RankFile, why: str) -> RankRecord:
    """The record of a rank that could not be read."""
    return RankRecord(path=file.path, rank=file.rank, label=file.label, error=why)


def summary_of(trace: Trace, path: str) -> RankSummary:
    """What is kept of a rank, with what the run folder around its file knows of it."""
    timed = timed_steps_ns(path)
    timed_ns = round(sum(timed) / len(timed)) if timed else None
    summary, looks = summarise(trace), looks_at(path, timed_ns)
    summary = replace(summary, contended=was_contended(path))
    if summary.device is None or (timed and in_bursts(timed)):  # else replay corrects them
        summary = replace(summary, timed_step_ns=timed_ns)
    no_core = looks.no_core_ratio or 0.0
    summary = replace(
        summary,
        places=looks.places if summary.contended or no_core >= LEAST_EXCESS_RATIO else (),
        own_ratio=looks.own_ratio,
        no_core_ratio=looks.no_core_ratio,
    )
    if summary.inputs or summary.refused is not None or (named := names_beside(path)) is None:
        return summary
    return replace(summary, inputs=first_inputs(named))


def record_of(trace: Trace, file: RankFile) -> RankRecord:
    """The record of a trace that is read already."""
    summary = summary_of(trace, file.path)
    record = RankRecord(path=file.path, rank=file.rank, label=file.label, summary=summary)
    if summary.refused is not None:
        return record
    whole = with_far_steps(trace, file.path)
    far = rare_causes(whole)
    trace = whole if any(cause.kind in _OWN_TIME for cause in material(whole)) else trace
    said = in_order(_diagnosed(trace))
    items = answers(said)
    found = [
        FoundOnRank(
            saving_ns=ranked.saving_ns,
            item=item,
            far_steps=_numbers(far, item),
            in_steps_ns=ranked.finding.in_steps_ns,
            in_collectives=ranked.finding.in_collectives,
            beside_ns=ranked.finding.beside_collectives_ns,
        )
        for ranked, item in zip(said.found, items["findings"], strict=True)
        if not _may_stand_in_a_collective(far, item)
    ]
    return RankRecord(
        path=file.path,
        rank=file.rank,
        label=file.label,
        summary=summary,
        found=tuple(found[:MOST_FINDINGS]),
        fix_ladder=ladder_info(trace, said, host=False),
        not_checked=tuple(item.id for item in items["not_checked"]),
        crashed=tuple(item.id for item in items["crashed"]),
    )


# What a rank does of its own accord in steps that take far longer. Elsewhere it may stand in a
# collective, for another rank: its looks do not say for whom.
_OWN_TIME = (GapKind.DATA, GapKind.GC, GapKind.CHECKPOINT, GapKind.LOGGING, GapKind.COMPILE)


def _numbers(far: Sequence[RareCause], item: Finding) -> tuple[int, ...]:
    """Of the steps of the run that a finding is about; none where it is about the recorded ones."""
    return tuple(sorted(step.step for cause in _causes_of(far, item) for step in cause.steps))


def _may_stand_in_a_collective(far: Sequence[RareCause], item: Finding) -> bool:
    return any(cause.kind not in _OWN_TIME for cause in _causes_of(far, item))


def _causes_of(far: Sequence[RareCause], item: Finding) -> Iterator[RareCause]:
    """Causes of far steps that a finding was made of."""
    for cause in far:
        if location(cause) == item.location and cause.ns_per_step == item.cost_ns_per_step:
            yield cause


def _diagnosed(trace: Trace) -> Diagnosis:
    """What the recording shows, with places, sizes and causes that the window for names adds."""
    return engine.diagnose(trace) if trace.run is None else windows.diagnose(trace)
