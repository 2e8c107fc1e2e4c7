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

    path: str  # as it was given
    format: str  # kineto, nsys, xplane, …: the importer that read it
    producer: str | None = None  # what wrote the file, as far as it says
    devices: tuple[str, ...] = ()  # names as the driver reports them
    events: int = 0  # read from the file
    rank: int | None = None  # of this process in its job
    world_size: int | None = None  # processes of the job
    one_of: int | None = None  # ranks of the job; null: a program alone, or not known


class HealthFact(_Part, frozen=True, kw_only=True):
    """One thing that is wrong with, missing from, or special about the file."""

    id: str  # stable, kebab case
    severity: str  # note, warning, fatal
    count: int  # events that it concerns
    detail: str  # one sentence
    at_ns: int | None = None  # where in the recording, if at one place


class Health(_Part, frozen=True, kw_only=True):
    """``good``, ``limited`` or ``cannot conclude``, with the facts, and how to record better."""

    verdict: str  # good, limited, cannot conclude
    facts: tuple[HealthFact, ...] = ()  # worst first
    record: str | None = None  # what to record instead, where nothing can be concluded


class StepsInfo(_Part, frozen=True, kw_only=True):
    """The steps. ``duration_ns`` are complete steps in order; ``typical_ns`` is what the breakdown
    adds up to."""

    how: str  # marker, inferred, none
    basis: str = ""  # what they were found by, in words
    confidence: float | None = None  # 0 to 1, for inferred steps
    count: int = 0  # 0 where no steps were found
    duration_ns: tuple[int, ...] = ()  # complete steps only
    typical_ns: int | None = None  # the middle of the complete steps
    spread_ns: tuple[int, int] | None = None  # 10th and 90th percentile
    outliers: tuple[dict[str, int], ...] = ()  # {"step": number, "duration_ns": …}
    unprofiled_ns_predicted: int | None = None  # the step without the profiler
    unprofiled_ns_range: tuple[int, int] | None = None  # least and most
    unprofiled_how: str | None = None  # "measured in the same run", "estimated from …"


class DeviceInfo(_Part, frozen=True, kw_only=True):
    """All devices of the recording together, from their first operation to their last.

    Busy is the union of intervals, so that operations at the same time count once.
    """

    span_ns: int  # from the first operation to the last
    busy_ns: int  # with at least one operation
    idle_ratio: float | None  # of the span
    kernels: int  # collectives included
    collectives: int
    copies: int  # between memories
    memsets: int  # fills of memory


class OneDeviceInfo(_Part, frozen=True, kw_only=True):
    """One device, over the span of all of them together."""

    device: int  # its number
    name: str | None = None  # as the driver reports it
    busy_ns: int  # with at least one operation
    idle_ratio: float | None  # of the span
    kernels: int  # collectives included


class PartOfStep(_Part, frozen=True, kw_only=True):
    """One part of the breakdown; the parts of a list add up to the step exactly.

    ``ns_per_step`` adds up to ``steps.typical_ns``, ``unprofiled_ns_per_step`` (null where not
    known) to ``steps.unprofiled_ns_predicted``: recording cost comes out of idle and host time.
    """

    part: str  # stable id, kebab case: gemm, elementwise, exposed-copy, idle-sync, …
    label: str  # for people
    group: str  # device, exposed, idle, host
    ns_per_step: int  # as recorded
    unprofiled_ns_per_step: int | None = None  # without the profiler


class EvidenceItem(_Part, frozen=True, kw_only=True):
    """One measured fact."""

    what: str  # what was measured
    value: float | int | str  # in the unit beside it
    unit: str  # ns, bytes, ratio, count, or words
    at_ns: int | None = None  # where in the recording, if at one place
    name: str | None = None  # of the event there


class LocationInfo(_Part, frozen=True, kw_only=True):
    """Where in the user's program."""

    file: str | None = None  # path as recorded
    line: int | None = None  # of the file
    function: str | None = None  # that the line is in
    module: str | None = None  # of the model, such as Linear_7
    operator: str | None = None  # of the framework, such as aten::mm


class RowsItem(_Part, frozen=True, kw_only=True):
    """Rows of a table of the trace that a finding is made of: what its fix would change.

    Positions as ``pinchpoint sql`` and the timeline count them; the first ones, of ``count``.
    """

    table: str  # device_ops, host_ops, api_calls
    rows: tuple[int, ...]  # positions in that table
    count: int  # of all of them, listed or not


class FindingItem(_Part, frozen=True, kw_only=True):
    """One cause, what it costs, what fixing it gives."""

    id: str  # of the rule: pinchpoint explain ID
    summary: str  # one sentence
    evidence: tuple[EvidenceItem, ...]  # what it rests on
    cost_ns_per_step: int | None = None  # what the cause takes now
    location: LocationInfo | None = None  # null: the recording does not say
    predicted_step_ns: int | None = None  # the step with this fixed
    predicted_range_ns: tuple[int, int] | None = None  # least and most
    given: tuple[str, ...] = ()  # findings whose fixes the prediction includes: it pays after them
    given_step_ns: int | None = None  # the step with those fixed, that this gain counts from
    hidden_ns: int | None = None  # of the cost: the device works meanwhile, so no fix wins it
    saving_bytes: int | None = None  # device memory at the peak, or lost in the recording
    fix: str = ""  # one sentence
    hint: str | None = None  # code that shows it
    confirm: str = ""  # the command that would prove it
    consequence: str | None = None  # what it costs besides time
    confidence: str = "high"  # high, medium, low
    rows: tuple[RowsItem, ...] = ()  # empty where no rows say it all: memory, stretches of time


class NotCheckedItem(_Part, frozen=True, kw_only=True):
    """A cause that this recording cannot show, why, and what to record instead."""

    id: str  # of the rule
    why: str  # what is missing
    record: str = ""  # how to get it


class TableColumn(_Part, frozen=True, kw_only=True):
    """A column of a result table."""

    id: str  # stable
    label: str  # for people
    unit: str = ""  # ns, bytes, ratio, count, or empty for text


class ResultTable(_Part, frozen=True, kw_only=True):
    """Rows of plain values under declared columns, most important first."""

    id: str  # stable: operators, kernels, idle, …
    title: str  # for people
    columns: tuple[TableColumn, ...]  # in the order of the values of a row
    rows: tuple[tuple[Any, ...], ...]  # null where a value is not known
    note: str = ""  # what the rows cover
    rows_left_out: int = 0  # smaller than those listed


class Report(_Part, frozen=True, kw_only=True):
    """Everything that Pinchpoint has to say about one recording."""

    schema: str = SCHEMA  # this name and version
    source: SourceInfo  # the file
    health: Health  # how far to trust it
    steps: StepsInfo
    device: DeviceInfo | None = None  # null: nothing ran on a device
    devices: tuple[OneDeviceInfo, ...] = ()  # that did something, by number
    breakdown: tuple[PartOfStep, ...] = ()  # where a step goes
    verdict: str = ""  # what bounds the step, in one sentence
    findings: tuple[FindingItem, ...] = ()  # best first
    together_ns: int | None = None  # the step if all findings were fixed, replayed together
    together_range_ns: tuple[int, int] | None = None  # least and most
    not_checked: tuple[NotCheckedItem, ...] = ()  # causes that this recording cannot show
    clear: tuple[str, ...] = ()  # ids of rules that looked and found nothing
    crashed: tuple[NotCheckedItem, ...] = ()  # rules that failed: please report them
    tables: dict[str, ResultTable] = {}  # by id
    roofline: RooflineDocument | None = None  # null: no work that could be placed on it
    next_command: str | None = None  # what to do next

    def _repr_html_(self) -> str:
        """For notebooks."""
        from pinchpoint.report import notebook

        return notebook.render(self)


class Reports(_Part, frozen=True, kw_only=True):
    """The reports of several recordings, in the order they were given."""

    schema: str = SCHEMA_OF_SEVERAL  # this name and version
    reports: tuple[Report, ...]  # in the order of the files
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
