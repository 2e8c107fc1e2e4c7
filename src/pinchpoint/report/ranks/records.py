"""One rank's line in a part file: its summary and what its own rules found, or why not."""

import msgspec

from pinchpoint.analysis.ranks.summary import RankSummary
from pinchpoint.diagnosis.finding import Finding

PART_SCHEMA = "pinchpoint.ranks-part/1"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class FoundOnRank(_Part, frozen=True, kw_only=True):
    """A finding of one rank's own rules."""

    saving_ns: int
    item: Finding


class RankRecord(_Part, frozen=True, kw_only=True):
    """The recording of one rank, read. Either ``summary`` or ``error``."""

    path: str
    rank: int | None = None  # as the name says, or the file where the name does not
    label: str = ""
    summary: RankSummary | None = None
    error: str | None = None  # why it could not be read
    found: tuple[FoundOnRank, ...] = ()
    not_checked: tuple[str, ...] = ()  # ids of rules that could not judge it
    crashed: tuple[str, ...] = ()


class LeftOutFile(_Part, frozen=True, kw_only=True):
    """A file that is not part of the job, and why."""

    path: str
    why: str


class PartHeader(_Part, frozen=True, kw_only=True):
    """First line of a part file; the others are records."""

    schema: str = PART_SCHEMA
    shard: tuple[int, int] | None = None  # this one, of how many
    files: int = 0  # of the whole job
    left_out: tuple[LeftOutFile, ...] = ()


def encode_record(record: RankRecord) -> bytes:
    """One line of JSON without its end."""
    return msgspec.json.encode(record)


def decode_record(line: bytes) -> RankRecord:
    """A record from its line; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(line, type=RankRecord)
