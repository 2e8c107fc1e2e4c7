"""The one document about a job of many ranks: ``pinchpoint.ranks/1``.

Times are integer nanoseconds; null means not known. What grows with the number of ranks is the
table of ranks only; the heat map is made of blocks of ranks.
"""

import msgspec

from pinchpoint.diagnosis.finding import Evidence, Finding, Unanswered
from pinchpoint.json_text import indented
from pinchpoint.report.documents.ladder import LadderInfo
from pinchpoint.report.documents.report import PartOfStep, ResultTable

SCHEMA = "pinchpoint.ranks/1"


class FileNote(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was left out, or could not be read, and why."""

    path: str
    why: str
    rank: int | None = None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    ranks: int  # that could be used
    world_size: int | None = None
    files: int = 0
    devices: dict[str, int] = {}  # ranks by name of their device
    backends: tuple[str, ...] = ()
    events: int = 0
    point_to_point: int = 0  # sends and receives that do not say their other rank: left out
    missing: tuple[int, ...] = ()  # ranks without a usable recording
    truncated: tuple[int, ...] = ()
    unreadable: tuple[FileNote, ...] = ()
    left_out: tuple[FileNote, ...] = ()
    shards_missing: tuple[int, ...] = ()


class ClockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks' clocks were brought together, and how well."""

    matched_by: tuple[str, ...] = ()  # what told which collective is which
    aligned: int = 0  # ranks
    not_aligned: tuple[int, ...] = ()  # ranks that share no collective with the others
    apart_ns: int | None = None  # between the first recording's end and the last one's beginning
    uncertainty_ns: int | None = None  # median distance of a rank's ends from the common ones
    worst_uncertainty_ns: int | None = None
    largest_offset_ns: int | None = None
    largest_drift_ppm: float | None = None


class JobSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that most ranks completed."""

    numbers: tuple[int, ...] = ()
    duration_ns: tuple[int, ...] = ()  # of each: median over the ranks
    typical_ns: int | None = None  # mean over ranks and steps: what the breakdown adds up to
    unprofiled_ns_predicted: int | None = None
    most_of_a_rank: int | None = None  # that one rank completed, in common with others or not
    fewest_of_a_rank: int | None = None
    ranks_with_fewer: tuple[int, ...] = ()  # by more than one step than the rank with most


class DoingItem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a rank was late."""

    subject: str
    what: str
    ns_per_step: int
    where: str | None = None
    at_ns: int | None = None  # in the rank's own recording


class StragglerItem(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that holds up the others again and again."""

    rank: int
    path: str
    excess_ns: int  # in the steps in which it was late
    since_step: int
    late_steps: tuple[int, ...]
    last_ratio: float | None = None  # share of collectives to which it came last
    doing: tuple[DoingItem, ...] = ()


class IncidentItem(msgspec.Struct, frozen=True, kw_only=True):
    """One step that waited for one rank."""

    rank: int
    step: int
    excess_ns: int


class MismatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """A collective on which the ranks of a group do not agree: a suspect for a hang."""

    what: str  # missing, different
    group: str
    call: str
    place: int
    step: int | None = None
    instead: str | None = None
    ranks: tuple[int, ...] = ()  # some of them
    count: int = 0


class BucketItem(msgspec.Struct, frozen=True, kw_only=True):
    """How large messages should be."""

    group: str
    kind: str
    latency_ns: int
    bytes_per_s: float
    mean_bytes: int
    per_step: float
    reached_ratio: float
    bucket_bytes: int
    saving_ns_per_step: int


class WhatIfItem(msgspec.Struct, frozen=True, kw_only=True):
    """The step under another condition, by the replay of all ranks."""

    id: str
    label: str
    step_ns: int


class ScalingItem(msgspec.Struct, frozen=True, kw_only=True):
    """What the job keeps of what its ranks could do alone."""

    efficiency_ratio: float
    waiting_ns_per_step: int
    transfer_ns_per_step: int
    limit: str
    replay_error_ratio: float | None = None  # of the replay without a change
    untold_ns_per_step: int = 0  # waiting or transfer: the recordings do not say which


class JobFindingItem(Finding, frozen=True, kw_only=True):
    """One cause with what fixing it gives the job."""

    saving_ns: int
    ranks: tuple[int, ...] = ()  # that show it, some of them
    on_ranks: int | None = None  # how many; null where it is about all of them together
    shown_by: str | None = None  # the recording that shows it best


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness that others waited for, blocks of ranks × blocks of steps: the worst of each.

    Null where no rank of the block completed the steps; no map where nobody was late.
    """

    rows: tuple[tuple[int, int], ...] = ()  # first and last rank of a block
    columns: tuple[tuple[int, int], ...] = ()  # first and last step of a block
    excess_ns: tuple[tuple[int | None, ...], ...] = ()


class PieceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a rank's step: waiting, transfer, hidden."""

    what: str
    start_ns: int
    end_ns: int


class LaneItem(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's step; times since the first rank began it."""

    rank: int
    start_ns: int
    end_ns: int
    pieces: tuple[PieceItem, ...] = ()


class TimelineItem(msgspec.Struct, frozen=True, kw_only=True):
    """One step of some ranks on the common clock."""

    step: int
    lanes: tuple[LaneItem, ...] = ()


class RanksReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that Pinchpoint has to say about a job of many ranks."""

    schema: str = SCHEMA
    job: JobInfo
    clocks: ClockInfo = ClockInfo()
    steps: JobSteps = JobSteps()
    breakdown: tuple[PartOfStep, ...] = ()
    verdict: str = ""
    findings: tuple[JobFindingItem, ...] = ()
    not_checked: tuple[Unanswered, ...] = ()
    crashed: tuple[Unanswered, ...] = ()
    stragglers: tuple[StragglerItem, ...] = ()
    incidents: tuple[IncidentItem, ...] = ()
    mismatches: tuple[MismatchItem, ...] = ()
    scaling: ScalingItem | None = None
    what_if: tuple[WhatIfItem, ...] = ()
    buckets: tuple[BucketItem, ...] = ()
    heat_map: HeatMap | None = None
    timeline: TimelineItem | None = None
    tables: dict[str, ResultTable] = {}  # collectives, outliers, ranks
    fix_ladder: LadderInfo | None = None  # in which order to make the fixes; null: no gain is known


def encode_ranks(report: RanksReport) -> bytes:
    """The report as JSON."""
    return indented(report)


def decode_ranks(text: bytes) -> RanksReport:
    """A report from its JSON; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=RanksReport)


__all__ = ["Evidence", "RanksReport", "decode_ranks", "encode_ranks"]
