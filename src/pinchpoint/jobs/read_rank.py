"""The map of the job: from the file of one rank to its record. Runs in a process of its own."""

from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis import engine
from pinchpoint.errors import PinchpointError
from pinchpoint.importers import load
from pinchpoint.importers.rank_files import RankFile, local_copy
from pinchpoint.report.findings import answers
from pinchpoint.report.ranks.records import FoundOnRank, RankRecord, encode_record
from pinchpoint.trace import Trace

MOST_FINDINGS = 8  # of one rank; they are ranked


def read_rank(file: RankFile) -> bytes:
    """The encoded record; it says so if the file is bad, as one must not stop ten thousand."""
    try:
        with local_copy(file.path) as path:
            record = record_of(load(path), file)
    except PinchpointError as error:
        record = _failed(file, error.message)
    except (Exception, MemoryError) as error:  # a bug of ours costs one rank, and is shown
        record = _failed(file, f"{file.path}: {type(error).__name__}: {error}")
    return encode_record(record)


def _failed(file: RankFile, why: str) -> RankRecord:
    return RankRecord(path=file.path, rank=file.rank, label=file.label, error=why)


def record_of(trace: Trace, file: RankFile) -> RankRecord:
    """The record of a trace that is read already."""
    summary = summarise(trace)
    record = RankRecord(path=file.path, rank=file.rank, label=file.label, summary=summary)
    if summary.refused is not None:
        return record
    said = engine.diagnose(trace)
    items = answers(said)
    found = [
        FoundOnRank(saving_ns=ranked.saving_ns, item=item)
        for ranked, item in zip(said.found, items["findings"], strict=True)
    ]
    return RankRecord(
        path=file.path,
        rank=file.rank,
        label=file.label,
        summary=summary,
        found=tuple(found[:MOST_FINDINGS]),
        not_checked=tuple(item.id for item in items["not_checked"]),
        crashed=tuple(item.id for item in items["crashed"]),
    )
