"""The one document that every renderer draws and ``--json`` prints: ``pinchpoint.report/1``.

Renderers add layout only. Times are integer nanoseconds; null means not known, with a reason
close by. The document round-trips through JSON: ``decode(encode(report)) == report``.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from pinchpoint.report.roofline_document import RooflineDocument

SCHEMA = "pinchpoint.report/1"
SCHEMA_OF_SEVERAL = "pinchpoint.reports/1"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts: frozen, keyword-only, strict about unknown fields on reading."""


class SourceInfo(_Part, frozen=True, kw_only=True):
    """What was read."""

    path: str
    format: str
    producer: str | None = None
    devices: tuple[str, ...] = ()
    events: int = 0
    rank: int | None = None
    world_size: int | None = None
    one_of: int | None = None  # ranks of the job; null: a program alone, or not known


class HealthFact(_Part, frozen=True, kw_only=True):
    """One thing that is wrong with, missing from, or special about the file."""

    id: str
    severity: str  # note, warning, fatal
    count: int
    detail: str
    at_ns: int | None = None


class Health(_Part, frozen=True, kw_only=True):
    """``good``, ``limited`` or ``cannot conclude``, with the facts, and how to record better."""

    verdict: str
    facts: tuple[HealthFact, ...] = ()
    record: str | None = None


class StepsInfo(_Part, frozen=True, kw_only=True):
    """The steps. ``duration_ns`` are complete steps in order; ``typical_ns`` is what the breakdown
    adds up to."""

    how: str  # marker, inferred, none
    basis: str = ""  # what they were found by, in words
    confidence: float | None = None  # 0 to 1, for inferred steps
    count: int = 0
    duration_ns: tuple[int, ...] = ()
    typical_ns: int | None = None
    spread_ns: tuple[int, int] | None = None  # 10th and 90th percentile
    outliers: tuple[dict[str, int], ...] = ()  # {"step": number, "duration_ns": …}
    unprofiled_ns_predicted: int | None = None
    unprofiled_ns_range: tuple[int, int] | None = None
    unprofiled_how: str | None = None  # "measured in the same run", "estimated from …"


class DeviceInfo(_Part, frozen=True, kw_only=True):
    """All devices of the recording together, from their first operation to their last.

    Busy is the union of intervals, so that operations at the same time count once.
    """

    span_ns: int
    busy_ns: int
    idle_ratio: float | None  # of the span
    kernels: int  # collectives included
    collectives: int
    copies: int
    memsets: int


class PartOfStep(_Part, frozen=True, kw_only=True):
    """One part of the breakdown; the parts of a list add up to the step exactly.

    ``ns_per_step`` adds up to ``steps.typical_ns``, ``unprofiled_ns_per_step`` (null where not
    known) to ``steps.unprofiled_ns_predicted``: recording cost comes out of idle and host time.
    """

    part: str  # stable id, kebab case: gemm, elementwise, exposed-copy, idle-sync, …
    label: str  # for people
    group: str  # device, exposed, idle, host
    ns_per_step: int
    unprofiled_ns_per_step: int | None = None


class EvidenceItem(_Part, frozen=True, kw_only=True):
    """One measured fact."""

    what: str
    value: float | int | str
    unit: str
    at_ns: int | None = None
    name: str | None = None


class LocationInfo(_Part, frozen=True, kw_only=True):
    """Where in the user's program."""

    file: str | None = None
    line: int | None = None
    function: str | None = None
    module: str | None = None
    operator: str | None = None


class RowsItem(_Part, frozen=True, kw_only=True):
    """Rows of a table of the trace that a finding is made of: what its fix would change.

    Positions as ``pinchpoint sql`` and the timeline count them; the first ones, of ``count``.
    """

    table: str  # device_ops, host_ops, api_calls
    rows: tuple[int, ...]
    count: int


class FindingItem(_Part, frozen=True, kw_only=True):
    """One cause, what it costs, what fixing it gives."""

    id: str
    summary: str
    evidence: tuple[EvidenceItem, ...]
    cost_ns_per_step: int | None = None
    location: LocationInfo | None = None
    predicted_step_ns: int | None = None
    predicted_range_ns: tuple[int, int] | None = None
    given: tuple[str, ...] = ()  # findings whose fixes the prediction includes: it pays after them
    given_step_ns: int | None = None  # the step with those fixed, that this gain counts from
    hidden_ns: int | None = None  # of the cost: the device works meanwhile, so no fix wins it
    saving_bytes: int | None = None  # device memory at the peak, or lost in the recording
    fix: str = ""
    hint: str | None = None
    confirm: str = ""
    consequence: str | None = None
    confidence: str = "high"
    rows: tuple[RowsItem, ...] = ()  # empty where no rows say it all: memory, stretches of time


class NotCheckedItem(_Part, frozen=True, kw_only=True):
    """A cause that this recording cannot show, why, and what to record instead."""

    id: str
    why: str
    record: str = ""


class TableColumn(_Part, frozen=True, kw_only=True):
    """A column of a result table."""

    id: str
    label: str
    unit: str = ""  # ns, bytes, ratio, count, or empty for text


class ResultTable(_Part, frozen=True, kw_only=True):
    """Rows of plain values under declared columns, most important first."""

    id: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    rows_left_out: int = 0


class Report(_Part, frozen=True, kw_only=True):
    """Everything that Pinchpoint has to say about one recording."""

    schema: str = SCHEMA
    source: SourceInfo
    health: Health
    steps: StepsInfo
    device: DeviceInfo | None = None  # null: nothing ran on a device
    breakdown: tuple[PartOfStep, ...] = ()
    verdict: str = ""
    findings: tuple[FindingItem, ...] = ()
    together_ns: int | None = None  # the step if all findings were fixed, replayed together
    together_range_ns: tuple[int, int] | None = None
    not_checked: tuple[NotCheckedItem, ...] = ()
    clear: tuple[str, ...] = ()  # ids of rules that looked and found nothing
    crashed: tuple[NotCheckedItem, ...] = ()
    tables: dict[str, ResultTable] = {}
    roofline: RooflineDocument | None = None  # null: no work that could be placed on it
    next_command: str | None = None

    def _repr_html_(self) -> str:
        """For notebooks."""
        from pinchpoint.report import notebook

        return notebook.render(self)


class Reports(_Part, frozen=True, kw_only=True):
    """The reports of several recordings, in the order they were given."""

    schema: str = SCHEMA_OF_SEVERAL
    reports: tuple[Report, ...]
    job: msgspec.Raw | None = None  # pinchpoint.ranks/1, where they are ranks of one job


def encode(report: Report) -> bytes:
    """The report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def encode_many(reports: Sequence[Report], job: bytes | None = None) -> bytes:
    """Several reports as one JSON document, with the one about their job where there is one."""
    several = Reports(reports=tuple(reports), job=None if job is None else msgspec.Raw(job))
    return msgspec.json.format(msgspec.json.encode(several), indent=1)


def decode(text: bytes) -> Report:
    """A report from its JSON; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=Report)
