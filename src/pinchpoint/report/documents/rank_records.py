"""What is kept of each rank: its summary and what its own rules found, or why not."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pinchpoint.analysis.ranks.summary import RankSummary
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.frozen import dataclass
from pinchpoint.json_text import encoded
from pinchpoint.report.documents.ladder import LadderInfo

PART_SCHEMA = "pinchpoint.ranks-part/1"
MOST_RANKS = (
    1_000_000  # ten times the accelerators of the largest machine: a number beyond is damage
)
LONGEST_LINE = 4_000_000  # bytes; a record has at most a tenth of it


class FoundOnRank(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of one rank's own rules."""

    saving_ns: int
    item: Finding
    far_steps: tuple[int, ...] = ()  # numbers of those of the run that it is about; empty: of all
    in_steps_ns: tuple[int, ...] = ()  # what it takes in each step, of its own; empty: not known
    in_collectives: bool = False
    beside_ns: int = 0  # of a finding about collectives, own work that goes with them


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The recording of one rank, read. Either ``summary`` or ``error``."""

    path: str
    rank: int | None = None  # as the name says, or the file where the name does not
    label: str = ""
    summary: RankSummary | None = None
    error: str | None = None  # why it could not be read
    found: tuple[FoundOnRank, ...] = ()
    fix_ladder: LadderInfo | None = None  # as the rank's own report has it
    not_checked: tuple[str, ...] = ()  # ids of rules that could not judge it
    crashed: tuple[str, ...] = ()


class LeftOutFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not part of the job, and why."""

    path: str
    why: str


class PartHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a part file; the others are records."""

    schema: str = PART_SCHEMA
    shard: tuple[int, int] | None = None  # this one, of how many
    files: int = 0  # of the whole job
    left_out: tuple[LeftOutFile, ...] = ()


def encode_record(record: RankRecord) -> bytes:
    """One line of JSON without its end."""
    return encoded(record)


def decode_record(line: bytes) -> RankRecord:
    """A record from its line; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(line, type=RankRecord)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a record is, and who it is."""

    path: str
    rank: int | None  # as the recording itself says, or else as its name says
    named: int | None  # as its name says
    error: str | None
    part: Path
    offset: int
    world_size: int | None = None
    begin_ns: int | None = None  # of its first step
    calls: int = 0  # between ranks, of any kind


@dataclass(frozen=True)
class Records:
    """The records of a job in order of rank, read anew each time they are asked for."""

    entries: tuple[Entry, ...]  # usable ones, one a rank
    unreadable: tuple[Entry, ...]
    left_out: tuple[LeftOutFile, ...]
    files: int
    shards_missing: tuple[int, ...] = ()

    def records(self) -> Iterator[RankRecord]:
        """Every usable rank once, in order."""
        for entry in self.entries:
            with entry.part.open("rb") as file:
                file.seek(entry.offset)
                record = decode_record(file.readline(LONGEST_LINE))
            yield msgspec.structs.replace(record, rank=entry.rank)

    def summaries(self) -> Iterator[RankSummary]:
        """The same, as the reduce wants them."""
        for record in self.records():
            assert record.summary is not None
            world = plausible(record.summary.world_size)
            yield msgspec.structs.replace(record.summary, rank=record.rank, world_size=world)


def plausible(number: int | None) -> int | None:
    """The number of a rank or of all ranks; None for what is damage."""
    return number if number is not None and 0 <= number <= MOST_RANKS else None
