"""Part files: the records of some ranks, one JSON line each, after a header line.

They are what ``--shard`` writes, what ``merge`` reads, and where a run on one machine keeps its
records until all are there: never more than one of them is in memory.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pinchpoint.analysis.ranks.summary import unpack
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.diagnosis.registry import rules
from pinchpoint.errors import UnreadableFile, UsageError
from pinchpoint.importers.ranks.files import UNIX_LEAST_NS, at_one_time
from pinchpoint.jobs.rank_map import MOST_FINDINGS, summary_of
from pinchpoint.json_text import encoded
from pinchpoint.replacing import replacing, scratch_folder
from pinchpoint.report.assemble.ranks import report_on
from pinchpoint.report.documents.rank_records import (
    LONGEST_LINE,
    PART_SCHEMA,
    Entry,
    FoundOnRank,
    LeftOutFile,
    PartHeader,
    RankRecord,
    Records,
    decode_record,
    encode_record,
    plausible,
)
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report
from pinchpoint.trace import Trace


def write_part(path: Path, header: PartHeader, records: Iterable[bytes]) -> int:
    """Write a part file as the records come; how many there were. Raises OSError."""
    count = 0
    with replacing(path) as beside, beside.open("wb") as file:
        file.write(encoded(header) + b"\n")
        for record in records:
            file.write(record + b"\n")
            count += 1
    return count


def read_parts(paths: Sequence[Path]) -> Records:
    """Index part files.

    Raises UnreadableFile for what is none, or belongs to another split, and UsageError for
    recordings that are no ranks.
    """
    entries: list[Entry] = []
    headers = []
    for path in paths:
        header, found = _indexed(path)
        headers.append((path, header))
        entries += found
    _check_shards(headers)
    readable = [e for e in entries if e.error is None]
    readable, strangers = _of_one_job(readable)
    if len(readable) > 1 and all(e.rank is None and not e.calls for e in readable):
        raise UsageError(
            f"{readable[0].path} and {len(readable) - 1} others: no rank is known and nothing was"
            " sent between them, so they are not ranks of one job",
            hint=f"one of them alone: pinchpoint diagnose {shlex.quote(readable[0].path)}",
        )
    readable, apart = _of_one_time(readable)
    ranked, repeated = _ranked(readable)
    left_out = tuple(dict.fromkeys(item for _, h in headers for item in h.left_out))
    return Records(
        tuple(ranked),
        tuple(e for e in entries if e.error is not None),
        (*left_out, *strangers, *apart, *repeated),
        max((h.files for _, h in headers), default=0),
        _missing_shards([h for _, h in headers]),
    )


def _indexed(path: Path) -> tuple[PartHeader, list[Entry]]:
    found = []
    if path.exists() and not path.is_file():
        raise UnreadableFile(f"{path}: a folder, pipe or device", hint="name a part file")
    try:
        with path.open("rb") as file:
            header = _header(path, file.readline(LONGEST_LINE))
            while True:
                offset = file.tell()
                line = file.readline(LONGEST_LINE)
                if not line:
                    break
                record = decode_record(line)
                if record.summary is not None and (fault := record.summary.fault()):
                    raise msgspec.ValidationError(fault)
                found.append(_entry(path, offset, record))
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check the path") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: not a part file, or cut off ({error})",
            hint="write it again: pinchpoint ranks DIR --shard I/N -o PART",
        ) from None
    return header, found


def _header(path: Path, line: bytes) -> PartHeader:
    header = msgspec.json.decode(line, type=PartHeader)
    if b'"schema"' not in line:  # else any JSON object would do
        raise msgspec.ValidationError("no schema")
    if header.schema != PART_SCHEMA:
        raise UnreadableFile(
            f"{path}: {header.schema} is not {PART_SCHEMA}",
            hint="write it with this version: pinchpoint ranks DIR --shard I/N -o PART",
        )
    return header


def _entry(part: Path, offset: int, record: RankRecord) -> Entry:
    own = plausible(record.summary.rank) if record.summary is not None else None
    named = plausible(record.rank)
    error = record.error
    if record.summary is None and error is None:
        error = f"{record.path}: an empty record"
    rank = named if own is None else own
    world = plausible(record.summary.world_size) if record.summary is not None else None
    first = unpack(record.summary.steps.start_ns)[:1].tolist() if record.summary else []
    begin = first[0] if first else None
    calls = record.summary.calls.in_all + record.summary.point_to_point if record.summary else 0
    if named == rank:
        named = rank  # one number in memory instead of two, in jobs of a hundred thousand
    return Entry(record.path, rank, named, error, part, offset, world, begin, calls)


def _of_one_job(entries: list[Entry]) -> tuple[list[Entry], list[LeftOutFile]]:
    """Recordings that speak of one number of ranks: that of most; and those of another job."""
    said = Counter(e.world_size for e in entries if e.world_size is not None)
    if len(said) < 2:
        return entries, []
    world = max(said, key=lambda size: (said[size], size))
    kept = [e for e in entries if e.world_size in (world, None)]
    others = [
        LeftOutFile(path=e.path, why=f"its job has {e.world_size} ranks, that of most {world}")
        for e in entries
        if e.world_size not in (world, None)
    ]
    return kept, others


def _of_one_time(entries: list[Entry]) -> tuple[list[Entry], list[LeftOutFile]]:
    """Recordings that began at about the same time: those of most, of equals the last ones."""
    timed = [e for e in entries if (e.begin_ns or 0) >= UNIX_LEAST_NS]
    timed.sort(key=lambda e: e.begin_ns or 0)
    groups: list[list[Entry]] = []
    for entry in timed:
        if groups and at_one_time(groups[-1][-1].begin_ns or 0, entry.begin_ns or 0):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    if len(groups) < 2:
        return entries, []
    best = max(range(len(groups)), key=lambda i: (len(groups[i]), i))
    others = {e.path for i, group in enumerate(groups) if i != best for e in group}
    why = "recorded at another time than most of the others"
    kept = [e for e in entries if e.path not in others]
    return kept, [LeftOutFile(path=e.path, why=why) for e in entries if e.path in others]


def _ranked(entries: list[Entry]) -> tuple[list[Entry], list[LeftOutFile]]:
    """One entry a rank, in order; files that nobody gave a rank get the numbers that are free."""
    kept: dict[int, Entry] = {}
    repeated: list[LeftOutFile] = []
    nameless: list[Entry] = []
    if _names_know_better(entries):
        entries = [replace(e, rank=e.named) for e in entries]
    for entry in sorted(entries, key=lambda e: e.path):
        if entry.rank is None:
            nameless.append(entry)
        elif entry.rank in kept:
            other = kept[entry.rank].path
            why = f"says that it is rank {entry.rank} too, as {other} does"
            repeated.append(LeftOutFile(path=entry.path, why=why))
        else:
            kept[entry.rank] = entry
    if kept:
        why = "its rank is not known, while that of others is"
        repeated += [LeftOutFile(path=e.path, why=why) for e in nameless]
        nameless = []
    number = 0
    for entry in nameless:
        while number in kept:
            number += 1
        kept[number] = replace(entry, rank=number)
    return [kept[rank] for rank in sorted(kept)], repeated


def _names_know_better(entries: list[Entry]) -> bool:
    """Recordings that all claim one rank (some writers put 0 everywhere) under different names."""
    own, named = [e.rank for e in entries], [e.named for e in entries]
    return len(set(own)) < len(own) and None not in named and len(set(named)) == len(named)


def _check_shards(headers: list[tuple[Path, PartHeader]]) -> None:
    totals = {h.shard[1] for _, h in headers if h.shard is not None}
    seen: dict[tuple[int, int], Path] = {}
    for path, header in headers:
        if header.shard is None:
            continue
        if len(totals) > 1:
            raise UnreadableFile(
                f"{path}: shards of different splits ({', '.join(map(str, sorted(totals)))})",
                hint="merge the parts of one split",
            )
        if header.shard in seen:
            raise UnreadableFile(
                f"{path}: shard {header.shard[0]} again, as in {seen[header.shard]}",
                hint="name every part once",
            )
        seen[header.shard] = path


def _missing_shards(headers: list[PartHeader]) -> tuple[int, ...]:
    shards = [h.shard for h in headers if h.shard is not None]
    if not shards:
        return ()
    there = {s[0] for s in shards}
    return tuple(i for i in range(1, shards[0][1] + 1) if i not in there)


# ------------------------------------------------------------------------------------------------
# Several diagnosed recordings that turn out to be ranks of one job.


def is_rank_of_a_job(report: Report) -> bool:
    """Whether the recording says which rank of how many it is."""
    return report.source.rank is not None and (report.source.world_size or 0) > 1


def record_from(trace: Trace, report: Report) -> RankRecord:
    """The record of a recording that is diagnosed already."""
    steps = report.steps
    base = steps.base_ns or steps.unprofiled_ns_predicted or steps.typical_ns or 0
    return RankRecord(
        path=report.source.path,
        rank=report.source.rank,
        label=f"rank {report.source.rank}",
        summary=summary_of(trace, report.source.path),
        found=tuple(
            FoundOnRank(saving_ns=_saving(base, item), item=item)
            for item in report.findings[:MOST_FINDINGS]
        ),
        fix_ladder=report.fix_ladder,
        not_checked=tuple(item.id for item in report.not_checked),
        crashed=tuple(item.id for item in report.crashed),
    )


def _saving(base: int, item: Finding) -> int:
    if item.predicted_step_ns is None:
        return 0
    return max(base - item.predicted_step_ns, 0)


def job_of(records: Sequence[RankRecord]) -> RanksReport | None:
    """The report about the job; None unless the records are different ranks of one world."""
    worlds = {r.summary.world_size for r in records if r.summary is not None}
    ranks = {r.rank for r in records}
    if len(records) < 2 or len(worlds) != 1 or len(ranks) != len(records):
        return None
    with scratch_folder() as folder:
        part = folder / "all.part"
        write_part(part, PartHeader(files=len(records)), map(encode_record, records))
        return report_on(read_parts([part]))


def without_guesses(report: Report) -> Report:
    """A rank's own report without what the report about the job answers."""
    of_job = {id_ for id_, known in rules().items() if known.rule.looks_at == "job"}
    return msgspec.structs.replace(
        report,
        findings=tuple(f for f in report.findings if f.id not in of_job),
        not_checked=tuple(i for i in report.not_checked if i.id not in of_job),
        next_command=report.next_command if report.findings else None,
    )
