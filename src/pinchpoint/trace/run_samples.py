"""What was seen of a process over its whole run, beside the windows that were recorded."""

from typing import TYPE_CHECKING

from pinchpoint.frozen import dataclass

if TYPE_CHECKING:
    from pinchpoint.run_folder.samples import UsageNote


@dataclass(frozen=True)
class Spent:
    """Time of a thread at one stack, by looks at it."""

    frames: tuple[str, ...]  # innermost first
    doing: str  # what the innermost frame was at: ``pattern.match()``, ``@``; empty: not a call
    looks: int
    us: int  # between these looks and the ones before them
    on_core_us: int
    held_us: int  # after which somebody held the interpreter's lock
    waits: tuple[tuple[str, int], ...] = ()  # the kernel's word where it was on no core, and µs


@dataclass(frozen=True)
class SampledThread:
    """One Python thread of the process. None: not known."""

    name: str
    main: bool
    looks: int
    cpu_ns: int | None  # that it ran on a core meanwhile
    stacks: tuple[tuple[int, int], ...]  # row of ``RunSamples.stacks``, looks; most frequent first
    spent: tuple[Spent, ...] = ()  # most time first
    unplaced_us: int = 0  # at other stacks
    queued_ns: int | None = None  # that it was ready to run and had no core
    native: int | None = None  # its number in the system, which recordings name threads by


@dataclass(frozen=True)
class SampledChild:
    """The main thread of a process that the program started with ``multiprocessing``."""

    pid: int | None
    seconds: float
    thread: SampledThread
    usage: "UsageNote"


@dataclass(frozen=True)
class Garbage:
    """What collecting garbage took in the whole run."""

    ns: int
    collections: int
    called_ns: int  # of them, that the program called for
    called_at: tuple[str, ...]  # frames there, innermost first


@dataclass(frozen=True)
class FarStep:
    """A step that took far longer than the typical one. None: not looked at."""

    step: int  # its number in the run
    ns: int
    excess_ns: int  # beyond the steps before it
    wait_ns: int  # for its batch
    gc_ns: int  # in garbage collections
    save_ns: int  # in torch.save
    queued_ns: int | None  # its thread was ready to run, and no core was free
    throttled_ns: int | None  # the control group had used up its quota
    faults: int | None  # pages that had to come from a disk
    looks: int  # that fell into it
    seen: tuple[tuple[int, int], ...]  # row of ``RunSamples.stacks``, microseconds between looks
    gc_called_at: tuple[str, ...] = ()  # frames at gc.collect(), innermost first; empty: not called


@dataclass(frozen=True)
class TensorFiles:
    """Calls of ``torch.save`` or ``torch.load`` at one place, in the whole run."""

    kind: str  # save, load
    at: tuple[str, ...]  # frames there, innermost first
    calls: int
    ns: int
    told: int  # calls of which all values were looked at
    held_bytes: int  # of the tensors of these
    stored_bytes: int  # of their storages, which is what is written and read
    # Medians of bytes stored and nanoseconds, of the third of calls with least and that with most.
    thirds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CacheUse:
    """A cache of ``functools.lru_cache``, when the run ended."""

    file: str
    line: int
    function: str
    hits: int
    misses: int
    most: int  # results that it may hold
    held: int


@dataclass(frozen=True)
class Operand:
    """An array of which a line takes rows by their numbers, as it lies in memory."""

    at: str  # the innermost frame of the looks that found it
    doing: str  # what that is at there: ``[]``, ``values.take()``
    name: str  # in the program, or of the library's variable
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    item_bytes: int
    axis: int  # along which it takes
    taken: int  # of them at once


@dataclass(frozen=True)
class Given:
    """One thing that a call is given, by its position or name; ``self``: whose method it is;
    ``[]``, ``[:]``, ``[-:]``: what its answer is indexed with; ``@``: what it is multiplied by."""

    name: str
    kind: str  # array, tensor, list, int, … or the class
    shape: tuple[int, ...] = ()
    first_shape: tuple[int, ...] = ()  # at the first look
    dtype: str = ""
    dense: bool = True
    is_of: str = ""  # symmetric, diagonal, even
    value: float | None = None  # of a number; of whole numbers in an array about the largest
    text: str = ""  # that stands in the program's own call
    onto: bool = False  # the answer takes its place
    of: str = ""  # kind of what a list holds, where it is one
    of_shape: tuple[int, ...] = ()  # of the first; of a short list of whole numbers these
    first_of_shape: tuple[int, ...] = ()
    alike: int = 0  # looks at which it held the same as at the one before


@dataclass(frozen=True)
class Called:
    """A call of a library in the program's text that looks often found, and what it was given."""

    at: str  # the frame of the program
    doing: str  # as the program has it: ``np.sort()``
    called: str  # in full: ``numpy.random.mtrand.RandomState.choice``
    looks: int
    compared: int  # looks at different calls, but for the first
    given: tuple[Given, ...]

    def one(self, *names: str) -> Given | None:
        """The first of these that it is given."""
        return next((g for name in names for g in self.given if g.name == name), None)


@dataclass(frozen=True)
class HeardFunction:
    """A function whose calls were listened to for a few steps."""

    frame: str  # ``file(line): function`` with its first line, as the profiler spells it
    caller: str | None  # the line of the program that calls it
    calls: int  # a step, and
    ns: float  # in them
    told: int  # calls whose values were compared, in all of the steps
    distinct: int  # of these, that differ in what they were given
    new_ratio: float  # of those after the first step, that were given what none before was
    alike: bool  # those that were given the same answered the same
    answers: int  # that differ
    numbers: int  # and letters, in the largest answer
    varied: bool  # they are not all the same one
    unread: bool  # some of what it was given lies on a device
    inside: tuple[int, ...]  # rows of functions that most of its calls come from
    tiny_ratio: float  # of an array of it, numbers too small for all of their digits
    tiny_of: str  # given, answer
    why: str  # values of most other calls were not compared
    untold: int  # such calls


@dataclass(frozen=True)
class HeardCalls:
    """What was heard of functions that hold much of the time of the thread of the steps."""

    steps: int
    by: str | None  # what steps are told by: optimizer, loader, module, …
    functions: tuple[HeardFunction, ...]
    why: str  # nothing was heard
    step_ns: int | None = None  # one of these, in which functions took what they did


@dataclass(frozen=True)
class SampledWorker:
    """What one worker process of a loader was doing while it made batches."""

    worker: int | None
    looks: int
    stacks: tuple[tuple[tuple[str, ...], int], ...]  # frames, innermost first; looks
    called: tuple[Called, ...] = ()  # calls of libraries at which looks found it


@dataclass(frozen=True)
class RunPart:
    """Steps one after the other, those far from typical and recorded ones left out."""

    first: int  # number of its first step
    steps: int
    p25_ns: int
    p50_ns: int
    p75_ns: int
    cpu_ns: int  # of the thread of the steps, in one step
    objects: int | None  # small blocks that Python held when it began
    resident_bytes: int | None  # of the host
    device_bytes: int | None  # allocated
    seen: tuple[tuple[int, int], ...]  # row of ``RunSamples.stacks``, microseconds
    beside: tuple[tuple[int, int], ...]  # the same of threads that Python did not start


@dataclass(frozen=True)
class RunSamples:
    """Samples of all Python threads, and the steps that were far from typical.

    Frames are spelt ``file(line): function`` with the line that ran. Steps are those that nothing
    of Pinchpoint touched, the first two left out.
    """

    every_s: float
    seconds: float  # that the looks are spread over
    looks: int
    late_median_ns: int | None  # by which a look came late: the lock of the interpreter was held
    cost_ns: int
    frames: tuple[str, ...]
    stacks: tuple[tuple[int, ...], ...]  # rows of ``frames``, innermost first
    threads: tuple[SampledThread, ...]
    typical_ns: int | None = None
    typical_wait_ns: int = 0
    count: int = 0  # steps
    total_ns: int = 0  # of them
    far: int = 0
    excess_ns: int = 0  # of far steps beyond the typical one
    far_steps: tuple[int, ...] = ()  # numbers, in order; the first few thousand
    far_excess_ns: tuple[int, ...] = ()
    start: tuple[tuple[int, int], ...] = ()  # row of ``stacks``, looks: main thread, cold steps
    usual: tuple[tuple[int, int], ...] = ()  # row of ``stacks``, microseconds in typical steps
    queued_ns: int | None = None  # that the thread of the steps was ready and had no core, in all
    events: tuple[FarStep, ...] = ()  # some of the far steps, all alike likely; longest first
    workers: tuple[SampledWorker, ...] = ()
    parts: tuple[RunPart, ...] = ()  # in order of time
    before: SampledThread | None = None  # the main thread until its third step
    after: tuple[tuple[int, int], ...] = ()  # row of ``stacks``, microseconds after the last step
    after_ns: int | None = None  # from the last step to the end of the process
    looker_queued_ns: int | None = None  # that the looking thread itself had no core
    usage: "UsageNote | None" = None
    garbage: Garbage | None = None
    children: tuple[SampledChild, ...] = ()
    caches: tuple[CacheUse, ...] = ()  # of all that miss often, most misses first
    tensor_files: tuple[TensorFiles, ...] = ()  # most time first
    operands: tuple[Operand, ...] = ()
    called: tuple[Called, ...] = ()  # calls of libraries at which looks found the program
    heard: HeardCalls | None = None
    installed: tuple[str, ...] = ()  # packages that the program imported and did not bring along

    def spelt(self, stack: int) -> tuple[str, ...]:
        """The frames of a stack, innermost first."""
        return tuple(self.frames[row] for row in self.stacks[stack])
