"""The document of a fleet: what many runs cost, what changed for good, which causes cost most."""

import msgspec

from pinchpoint.json_text import indented

SCHEMA = "pinchpoint.fleet/1"


class FleetProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one program on one kind of device and one number of ranks."""

    program: str  # the command, or the script with --by script
    device: str
    ranks: int
    runs: int
    failed: int  # with another exit code than 0
    rank_hours: float  # hours of the runs times their ranks
    newest: str  # name of the newest run
    step_ms: float | None  # median step of the newest run, without the profiler
    p99_ms: float | None  # of its steps
    wait_ratio: float | None  # of the newest run, that the first rank waited for batches


class FleetChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step that changed for good: more than the runs of the program differ by themselves."""

    program: str
    device: str
    ranks: int
    since: str  # the first run after it
    since_unix_ns: int | None
    runs_before: int  # since the change before it
    runs_after: int
    before_ms: float  # median of the last 20 runs before it at most
    after_ms: float
    ratio: float  # what it added; negative: steps became shorter
    commits: tuple[str | None, str | None]  # of three runs before it and three after
    torch: tuple[str | None, str | None]  # versions of torch in the same two runs
    same_hosts: bool | None  # some host had runs on both sides; null: not known
    waits_more: bool  # the share of waiting for batches grew as well, by half of the change
    new_findings: tuple[str, ...]  # ids that only runs after it have
    gone_findings: tuple[str, ...]
    rank_hours: float  # more than the runs since would have taken; negative: saved


class FleetCause(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of many runs."""

    id: str
    runs: int
    programs: int
    rank_hours: float  # of those runs
    saves_rank_hours: float  # what its fix would have saved of them, as predicted run by run
    example: str  # the run in which it would save most


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All runs below one folder or address."""

    schema: str = SCHEMA  # this name and version
    place: str
    runs: int
    running: int  # that say so: those that were killed never say that they ended
    failed: int
    unreadable: tuple[str, ...]  # why nothing is known of a run; ten at most
    not_diagnosed: int  # runs with recordings that were not read yet: they count in no cause
    first_unix_ns: int | None
    last_unix_ns: int | None
    rank_hours: float
    failed_rank_hours: float
    waiting_rank_hours: float  # that first ranks waited for batches
    programs: tuple[FleetProgram, ...]  # most rank hours first
    changes: tuple[FleetChange, ...]  # those that cost most first
    causes: tuple[FleetCause, ...]  # those that cost most first


def encode_fleet(document: FleetDocument) -> bytes:
    """The JSON of the document."""
    return indented(document)
