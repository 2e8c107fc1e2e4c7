"""The one document that every renderer draws and ``--json`` prints: ``pinchpoint.report/1``.

Renderers add layout only. Times are integer nanoseconds; null means not known, with a reason
close by. The document round-trips through JSON: ``decode(encode(report)) == report``.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from pinchpoint.diagnosis.finding import Finding, Location, NotShown, Unanswered
from pinchpoint.json_text import indented
from pinchpoint.report.documents.causal import CriticalPathInfo, PieceInfo
from pinchpoint.report.documents.ladder import LadderInfo
from pinchpoint.report.documents.roofline import RooflineDocument
from pinchpoint.report.documents.run import RunInfo

SCHEMA = "pinchpoint.report/1"
SCHEMA_OF_SEVERAL = "pinchpoint.reports/1"


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    path: str  # as it was given
    format: str  # kineto, nsys, xplane, …: the importer that read it
    recorder: str | None = (
        None  # what recorded: torch.profiler, nsys, …; null: the file has no sign
    )
    recorder_version: str | None = None  # as far as the file says
    producer: str | None = None  # what wrote the file, as far as it says
    devices: tuple[str, ...] = ()  # names as the driver reports them
    events: int = 0  # read from the file
    rank: int | None = None  # of this process in its job
    world_size: int | None = None  # processes of the job
    one_of: int | None = None  # ranks of the job; null: a program alone, or not known


class HealthFact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with, missing from, or special about the file."""

    id: str  # stable, kebab case
    severity: str  # note, warning, fatal
    count: int  # events that it concerns
    detail: str  # one sentence
    at_ns: int | None = None  # where in the recording, if at one place


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``good``, ``limited`` or ``cannot conclude``, with the facts, and how to record better."""

    verdict: str  # good, limited, cannot conclude
    facts: tuple[HealthFact, ...] = ()  # worst first
    record: str | None = None  # what to record instead, where nothing can be concluded


class StepKindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Steps alike: micro-steps that accumulate, evaluation, prefill, decode."""

    label: str  # what sets it apart; empty where nothing recorded does
    count: int  # complete steps of it
    median_ns: int
    time_ratio: float  # of the time of all complete steps
    mean_ns: int | None = None  # of its usual steps
    breakdown: tuple["PartOfKind", ...] = ()  # as recorded, largest first; adds up to mean_ns
    bound_by: str | None = None  # device, host, input, …; null: one kind only, or no conclusion
    base_ns: int | None = None  # step of this kind that its gains count from; profiler taken out
    findings: tuple[Finding, ...] = ()  # its own causes, with its step after each; best first


class PartOfKind(msgspec.Struct, frozen=True, kw_only=True):
    """What one part takes of the steps of one kind."""

    part: str  # its id, as in ``breakdown`` of the report
    label: str
    ns_per_step: int


class ExceptionalStepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is much longer than the usual ones of its kind, and what fills the excess."""

    step: int  # its number
    duration_ns: int
    excess_ns: int  # beyond a usual step; all of them over the complete steps make up the mean
    part: str  # id of the part of the step that grew most, as in ``breakdown``
    label: str  # of that part, for people
    part_ns: int  # of the excess
    location: "Location | None" = None  # null: not recorded (stacks) or of no one place
    name: str | None = None  # of the call, operator, function or kernel there
    at_ns: int | None = None  # where in the recording
    every: int | None = None  # steps from one to the next with the same cause, if regular
    starting: bool = False  # slow because program or recording had just begun; not in base_ns


class GrowingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose steps grow: which were recorded, early and late ones. Numbers of steps."""

    first: int
    first_ns: int  # that early steps took, without the profiler
    last: int
    last_ns: int  # and late ones
    recorded_after: int  # the recorded ones lie between these two
    recorded_before: int


class BeforeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded before that which is judged."""

    duration_ns: int
    longest: str = ""  # the longest call in it that holds no other; "": none takes a tenth
    longest_ns: int = 0


class StepsInfo(msgspec.Struct, frozen=True, kw_only=True):
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
    measured_ns: int | None = None  # as timed, with CUPTI loaded; null: the same, or not timed
    launch_more_ns: int | None = None  # what a launch costs more since the recording; null: unknown
    unprofiled_not_closer: str | None = None  # why only the range is known; null: it is narrow
    mean_ns: int | None = None  # of the complete steps: typical part plus excess
    kinds: tuple[StepKindInfo, ...] = ()  # most time first; empty where no two steps are alike
    exceptional: tuple[ExceptionalStepInfo, ...] = ()  # in order
    base_ns: int | None = None  # the mean that gains count from; null: the typical step, above
    base_range_ns: tuple[int, int] | None = None  # least and most that it may be
    run_mean_ns: int | None = None  # of the steps that the same run timed without the profiler
    run_excess_ns: int | None = None  # of run_mean_ns, that the recorded steps do not show
    taken_steps: int | None = None  # of the run that had no core, which other programs had
    taken_ns_per_step: int | None = None  # what they add to its mean, left out of all others
    run_counted_ns: int | None = None  # mean of all that were counted, at most, if few were timed
    turns_at: tuple[str, int, str] | None = None  # each is a turn of; null: the program marks them
    growing: GrowingInfo | None = None  # null: the run's steps do not grow, or it is not known
    numbers: tuple[int, ...] = ()  # of the steps in duration_ns
    kind_of: tuple[int | None, ...] = ()  # of these: position in kinds; null: an exception
    before: BeforeInfo | None = None  # null: what is judged is more than a fifth of the recording


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
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


class OneDeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One device, over the span of all of them together."""

    device: int  # its number
    name: str | None = None  # as the driver reports it
    busy_ns: int  # with at least one operation
    idle_ratio: float | None  # of the span
    kernels: int  # collectives included
    span_ns: int | None = None  # from its own first operation to its own last
    own_idle_ratio: float | None = None  # of its own span
    waits_for_others_ns: int | None = None  # another device works, and this one does not
    mostly: str | None = None  # the kind of work that takes most of its busy time


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes in the recording; the report is about the one with the steps."""

    process: str  # as the file calls it
    devices: tuple[int, ...]  # that it gave work to
    kernels: int  # collectives included
    busy_ns: int  # of its devices, with at least one operation


class RoundsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of one kind of a serving engine; medians, of the complete ones where there are any."""

    kind: str  # prefill, decode, mixed, idle, or the engine's own word
    count: int  # of rounds
    requests: float  # in one round
    tokens: float | None = None  # computed in one round; null where their names do not say
    typical_ns: int  # of one round
    tokens_per_s: float | None = None  # of all of them together
    tokens_a_request: float | None = None  # of decoding; above one where several are proposed


class RoundInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a serving engine."""

    at_ns: int  # its call on the host
    duration_ns: int  # from the completion of the round before to its own
    kind: str  # as in RoundsInfo
    requests: int  # in it
    tokens: int | None = None  # computed in it


class ServingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a serving engine did in the recording."""

    engine: str  # vLLM, SGLang, TensorRT-LLM
    kinds: tuple[RoundsInfo, ...]  # most time first
    between_ns: int | None = None  # host time between two rounds, median; null for one round
    rounds: tuple[RoundInfo, ...] = ()  # in order, the first thousand


class KvCacheInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Keys and values that one decode round (a step, without an engine) reads from the cache."""

    rounds: int  # of which it is known; the figures are their medians
    positions: float | None = None  # of the cache, of all requests of a round together
    position_bytes: int | None = None  # of keys and values of all layers
    read_bytes: int | None = None  # at most: layers with a window read less
    least_ns: int | None = None  # to read them at the memory bandwidth of the data sheet
    why: str | None = None  # why it is not known


class PartOfStep(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the breakdown; the parts of a list add up to the step exactly.

    ``ns_per_step`` adds up to ``steps.typical_ns``, ``unprofiled_ns_per_step`` (null where not
    known) to ``steps.unprofiled_ns_predicted``: recording cost comes out of idle and host time.
    ``base_ns_per_step`` adds up to the step that gains count from: the mean one where it is another
    than the typical. What recorded steps do not show of it is a part of its own, ``outside``.
    """

    part: str  # stable id, kebab case: gemm, elementwise, exposed-copy, idle-sync, …
    label: str  # for people
    group: str  # device, exposed, idle, host, outside
    ns_per_step: int  # as recorded
    unprofiled_ns_per_step: int | None = None  # without the profiler
    base_ns_per_step: int | None = None  # without the profiler where that is known
    recorded_base_ns_per_step: int | None = None  # the same step in the recording


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a result table."""

    id: str  # stable
    label: str  # for people
    unit: str = ""  # ns, bytes, ratio, count, or empty for text


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The queue before the device over time, in equal parts of all steps."""

    start_ns: int  # of the first part
    part_ns: int  # of each
    depth: tuple[float | None, ...]  # operations issued before and not finished, median of launches
    latency_ns: tuple[int | None, ...]  # from the launching call to the start on the device, median
    empty_ratio: float  # of launches, that found nothing queued or running


class ResultTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of plain values under declared columns, most important first."""

    id: str  # stable: operators, kernels, idle, …
    title: str  # for people
    columns: tuple[TableColumn, ...]  # in the order of the values of a row
    rows: tuple[tuple[Any, ...], ...]  # null where a value is not known
    note: str = ""  # what the rows cover
    rows_left_out: int = 0  # smaller than those listed
    clock: str = ""  # of its times: as recorded, without the profiler; empty where it has none


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that Pinchpoint has to say about one recording."""

    schema: str = SCHEMA  # this name and version
    source: SourceInfo  # the file
    health: Health  # how far to trust it
    steps: StepsInfo
    device: DeviceInfo | None = None  # null: nothing ran on a device
    devices: tuple[OneDeviceInfo, ...] = ()  # that did something, by number
    processes: tuple[ProcessInfo, ...] = ()  # empty for a single one
    serving: ServingInfo | None = None  # null: no rounds of a serving engine are named
    kv_cache: KvCacheInfo | None = None  # null: nothing decodes, as far as is known
    breakdown: tuple[PartOfStep, ...] = ()  # where a step goes
    verdict: str = ""  # what bounds the step or the run, in one sentence
    findings: tuple[Finding, ...] = ()  # best first
    together_ns: int | None = None  # the step if all findings were fixed, replayed together
    together_range_ns: tuple[int, int] | None = None  # least and most
    not_checked: tuple[Unanswered, ...] = ()  # causes that this recording cannot show
    not_shown: tuple[NotShown, ...] = ()  # causes that were found and are small, or covered
    clear: tuple[str, ...] = ()  # ids of rules that looked and found nothing
    not_applicable: tuple[str, ...] = ()  # ids of causes on a device, where there is none
    crashed: tuple[Unanswered, ...] = ()  # rules that failed: please report them
    tables: dict[str, ResultTable] = {}  # by id
    roofline: RooflineDocument | None = None  # null: no work that could be placed on it
    next_command: str | None = None  # what to do next
    far_from_limit: PieceInfo | None = None  # operator far from its limit; null: none is
    without_limit: PieceInfo | None = None  # operator with much time and no known limit
    without_limit_ratio: float | None = None  # of the kernels' time; null: no kernels
    heaviest_line: PieceInfo | None = None  # with most device work; null: none dominates the step
    fix_ladder: LadderInfo | None = None  # in which order to make the fixes; null: no gain known
    ladder: tuple[PieceInfo, ...] = ()  # the pieces worth most; pinchpoint causal has all
    critical_path: CriticalPathInfo | None = None  # null: the recording cannot be replayed
    queue: QueueInfo | None = None  # null: launches and device work are not linked
    run: RunInfo | None = None  # null: the whole run was not looked at
    left_out: dict[str, int] = {}  # entries that were cut to fit a size, by field; see --max-chars


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of several recordings, in the order they were given."""

    schema: str = SCHEMA_OF_SEVERAL  # this name and version
    reports: tuple[Report, ...]  # in the order of the files
    job: msgspec.Raw | None = None  # pinchpoint.ranks/1, where they are ranks of one job
    jobs: tuple[msgspec.Raw, ...] = ()  # all of them, where a folder holds several


def finding_key(until: Sequence[Finding]) -> str:
    """What tells the last of these apart, for anchors: its id, of the second of one id ``id-2``."""
    id_ = until[-1].id
    nth = sum(finding.id == id_ for finding in until)
    return id_ if nth == 1 else f"{id_}-{nth}"


def encode(report: Report) -> bytes:
    """The report as JSON."""
    return indented(report)


def encode_many(reports: Sequence[Report], jobs: Sequence[bytes] = ()) -> bytes:
    """Several reports as one JSON document, with those about their jobs where there are some."""
    raw = tuple(map(msgspec.Raw, jobs))
    several = Reports(
        reports=tuple(reports), job=raw[0] if raw else None, jobs=raw if len(raw) > 1 else ()
    )
    return indented(several)


def decode(text: bytes) -> Report:
    """A report from its JSON; msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=Report)
