"""``samples/rank….json`` and ``samples/worker….json``: what was seen over the whole run."""

from typing import Annotated

import msgspec

from pinchpoint.run_folder.layout import SAMPLES_SCHEMA
from pinchpoint.run_folder.numbers import Bytes, Count, Ns, Signed

FrameNote = tuple[str, Count, str]  # file, line, function
Seen = tuple[Count, Count]  # a row of ``stacks``, and looks
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


Spent = tuple[Count, Count, Count, Count]  # a row of ``stacks``; µs, on a core, the lock held
Waits = tuple[Count, str, Count]  # a row of ``stacks``, the kernel's word for the wait, µs


class ThreadNote(msgspec.Struct, frozen=True, kw_only=True):
    """One Python thread."""

    name: str = ""
    main: bool = False
    looks: Count = 0
    cpu_ns: Ns | None = None
    stacks: tuple[Seen, ...] = ()
    spent: tuple[Spent, ...] = ()
    unplaced_us: Count = 0  # at stacks beyond those
    queued_ns: Ns | None = None  # that it was ready to run and had no core
    native: Count | None = None  # its number in the system
    waits: tuple[Waits, ...] = ()


class SampledNote(msgspec.Struct, frozen=True, kw_only=True):
    """The looks at all threads."""

    every_s: Seconds = 0.0
    seconds: Seconds = 0.0
    looks: Count = 0
    cost_ns: Ns = 0
    once_ns: Ns = 0  # of it, for notes that are written seldom
    late_median_ns: Ns | None = None
    gaps: Count = 0  # looks that came later than three periods
    gap_ns: Ns = 0
    threads: tuple[ThreadNote, ...] = ()
    start: tuple[Seen, ...] = ()  # of the main thread, before the third step; left out above
    before: ThreadNote | None = None  # the same, with times
    more_threads: Count = 0  # that are not listed
    queued_ns: Ns | None = None  # that the looking thread itself had no core


class FarStepNote(msgspec.Struct, frozen=True, kw_only=True):
    """A step far from typical."""

    step: Count = 0
    ns: Ns = 0
    excess_ns: Ns = 0
    wait_ns: Ns = 0
    gc_ns: Ns = 0
    gc_called_at: tuple[FrameNote, ...] = ()  # frames at gc.collect(), innermost first; or Python's
    save_ns: Ns = 0
    queued_ns: Ns | None = None
    throttled_ns: Ns | None = None
    faults: Count | None = None
    looks: Count = 0
    seen: tuple[tuple[Count, Count], ...] = ()  # a row of ``stacks``, and microseconds


class PartNote(msgspec.Struct, frozen=True, kw_only=True):
    """Steps one after the other, far and recorded ones left out."""

    first: Count = 0
    steps: Count = 0
    p25: Ns | None = None
    p50: Ns | None = None
    p75: Ns | None = None
    cpu_ns: Ns = 0  # of one step
    objects: Count | None = None  # small blocks that Python held when the part began
    resident_bytes: Bytes | None = None
    device_bytes: Bytes | None = None
    seen: tuple[tuple[Count, Ns], ...] = ()  # a row of ``stacks``, and microseconds
    beside: tuple[tuple[Count, Ns], ...] = ()  # the same of threads that Python did not start


class StepsNote(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the process."""

    typical_ns: Ns | None = None
    typical_wait_ns: Ns = 0
    count: Count = 0
    total_ns: Ns = 0
    far: Count = 0
    excess_ns: Ns = 0
    far_steps: tuple[Count, ...] = ()
    far_excess_ns: tuple[Ns, ...] = ()
    usual: tuple[tuple[Count, Ns], ...] = ()  # a row of ``stacks``, and microseconds
    queued_ns: Ns | None = None
    events: tuple[FarStepNote, ...] = ()
    parts: tuple[PartNote, ...] = ()  # in order of time
    cost_ns: Ns = 0


class UsageNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the system counted of the process, from its beginning."""

    user_ns: Ns | None = None
    kernel_ns: Ns | None = None
    page_faults: Ns | None = None  # without a disk
    disk_faults: Ns | None = None
    preempted: Ns | None = None  # times that another one got its core
    resident_peak_bytes: Bytes | None = None
    children_ns: Ns | None = None  # of child processes that ended
    threads: Count | None = None  # in the end
    python_threads: Count | None = None  # of them, those that Python started
    cores_allowed: Count | None = None
    alive_ns: Ns | None = None
    processes_started: Count | None = None  # with multiprocessing; the last thousand
    starts_ns: Ns | None = None  # from the first of these starts to the last
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None
    disk_read_bytes: Bytes | None = None
    disk_written_bytes: Bytes | None = None


class GarbageNote(msgspec.Struct, frozen=True, kw_only=True):
    """Collections of the whole run."""

    ns: Ns = 0
    collections: Ns = 0
    called_ns: Ns = 0  # of them, that the program called for
    called_at: tuple[FrameNote, ...] = ()  # innermost first


class TensorFilesNote(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of ``torch.save`` or ``torch.load`` at one place."""

    kind: str = ""  # save, load
    at: tuple[FrameNote, ...] = ()  # innermost first
    calls: Count = 0
    ns: Ns = 0
    told: Count = 0  # calls of which all values were looked at
    held_bytes: Bytes = 0  # of the tensors of these
    stored_bytes: Bytes = 0  # of their storages
    thirds: tuple[tuple[Bytes, Ns], ...] = ()  # medians of the calls with least and most bytes


class CacheNote(msgspec.Struct, frozen=True, kw_only=True):
    """A cache of ``functools.lru_cache`` at the end."""

    file: str = ""
    line: Count = 0
    function: str = ""
    hits: Ns = 0
    misses: Ns = 0
    most: Count = 0  # results that it may hold
    held: Count = 0


class OperandNote(msgspec.Struct, frozen=True, kw_only=True):
    """An array of which a line takes rows, as it lies in memory."""

    at: FrameNote = ("", 0, "")  # the innermost frame of the looks that found it
    doing: str = ""  # what that is at there: "[]", "values.take()"
    name: str = ""
    shape: tuple[Count, ...] = ()
    strides_bytes: tuple[Signed, ...] = ()
    item_bytes: Count = 0
    axis: Count = 0  # along which it takes
    taken: tuple[Count, ...] = ()  # shape of the numbers of what it takes


class GivenNote(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call is given, by its position or name; ``self``, whose method it is."""

    name: str = ""
    kind: str = ""  # array, tensor, list, int, … or the class
    shape: tuple[Count, ...] = ()
    first_shape: tuple[Count, ...] = ()  # at the first look
    dtype: str = ""
    dense: bool = True
    is_of: str = ""  # symmetric, diagonal, even
    value: float | None = None  # of a number; of whole numbers in an array about the largest
    text: str = ""  # that stands in the program's own call
    onto: bool = False  # the answer takes its place
    of: str = ""  # kind of what a list holds, where it is one
    of_shape: tuple[Count, ...] = ()  # of the first; of a short list of whole numbers these
    first_of_shape: tuple[Count, ...] = ()
    alike: Count = 0  # looks at which it held the same as at the one before


class CalledNote(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a library in the program's text that looks often found, and what it was given."""

    at: FrameNote = ("", 0, "")
    doing: str = ""
    called: str = ""  # in full: numpy.random.mtrand.RandomState.choice
    looks: Count = 0
    compared: Count = 0  # looks at different calls, but for the first
    given: tuple[GivenNote, ...] = ()


Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]


class FunctionNote(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was listened to: what it was given and what it answered, in a few steps."""

    function: FrameNote = ("", 0, "")  # its first line
    caller: FrameNote | None = None  # the line of the program that calls it most often
    own: bool = True  # of the program; else of a library that it calls
    calls: Count = 0  # in all of these steps
    ns: Ns = 0  # of the same, without what listening cost
    told: Count = 0  # of them, whose values were compared
    distinct: Count = 0  # that differ in what they were given
    later: Count = 0  # told, after the first of the steps
    new: Count = 0  # of these, that were given what none before was
    alike: bool = False  # those that were given the same answered the same
    answers: Count = 0  # that differ
    numbers: Count = 0  # and letters, in the largest answer
    varied: bool = False  # they are not all the same one
    unread: bool = False  # some of what it was given lies on a device
    inside: tuple[Count, ...] = ()  # rows of functions that most of its calls come from
    tiny_ratio: Ratio = 0.0  # of an array of it, numbers too small for all of their digits
    tiny_of: str = ""  # given, answer: which array
    why: str = ""  # values of most other calls were not compared
    untold: Count = 0  # such calls


class CallsNote(msgspec.Struct, frozen=True, kw_only=True):
    """Functions that hold much of the time of the thread of the steps."""

    steps: Count = 0  # in turn, that were listened to
    step_ns: Ns | None = None  # one of these, without what listening cost
    by: str | None = None  # what steps are told by: optimizer, loader, module, …
    functions: tuple[FunctionNote, ...] = ()  # most time first
    why: str = ""  # nothing was heard
    cost_ns: Ns = 0


class SamplesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of one process."""

    schema: str = SAMPLES_SCHEMA
    rank: Count | None = None
    pid: Count | None = None
    parent: Count | None = None  # of a process that multiprocessing started
    started: bool = False  # by the command itself
    worker: Count | None = None  # number of a loader's worker
    cost_ns: Ns = 0
    frames: tuple[FrameNote, ...] = ()
    stacks: tuple[tuple[Count, ...], ...] = ()  # rows of ``frames``, innermost first
    doing: tuple[str, ...] = ()  # of each stack, what its innermost frame was at: "match()", "@"
    sampled: SampledNote = SampledNote()
    steps: StepsNote = StepsNote()
    after: tuple[tuple[Count, Ns], ...] = ()  # a row of ``stacks``, µs of the thread of the steps
    after_ns: Ns | None = None  # from the last step to the end of the process
    usage: UsageNote = UsageNote()
    garbage: GarbageNote = GarbageNote()
    caches: tuple[CacheNote, ...] = ()  # most misses first
    tensor_files: tuple[TensorFilesNote, ...] = ()  # most time first
    operands: tuple[OperandNote, ...] = ()
    called: tuple[CalledNote, ...] = ()
    calls: CallsNote | None = None
    installed: tuple[str, ...] = ()  # packages imported from where pip puts them
