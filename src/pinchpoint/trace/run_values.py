"""What the tensors of one step of a run held, in a few numbers: padding and attention masks."""

from pinchpoint.frozen import dataclass

Frame = tuple[str, int, str]  # file, line, function


@dataclass(frozen=True)
class Padding:
    """A batch [rows, width] and how much of it is there."""

    place: Frame | None  # of the user's code: where the model is called, or the batch was asked for
    source: str  # module or loader
    evidence: str  # mask; ids or frames: runs of one value that rows share at their ends
    name: str  # of the argument
    rows: int
    width: int
    rows_read: int
    real_ratio: float  # of the positions
    mean_length: float
    lengths: tuple[int, ...]  # quantiles at equal distances, shortest to longest
    side: str | None  # of the padding: right, left

    @property
    def longest(self) -> int:
        """Positions of the longest row."""
        return self.lengths[-1]


@dataclass(frozen=True)
class AttentionMask:
    """Calls of attention at one place with one mask."""

    place: Frame | None
    calls: int  # in the step
    queries: tuple[int, ...]  # shape
    mask: tuple[int, ...]  # shape
    dtype: str
    # causal, causal before padding, nothing hidden, padding, banded, values (a bias), other
    kind: str
    real_ratio: float  # of the pairs, that are let through
    rows_read: int
    rows_there: int
    band: int | None  # keys that a query sees


@dataclass(frozen=True)
class IgnoredRows:
    """Rows of scores whose label a loss leaves out."""

    place: Frame | None
    calls: int  # in the step
    rows: int
    classes: int
    ignored_ratio: float


@dataclass(frozen=True)
class SameCalls:
    """Calls of modules of one class with values that they had been called with before."""

    model: str
    place: Frame | None
    calls: int  # that were looked at, in a few steps
    distinct: int


@dataclass(frozen=True)
class VainOperations:
    """Operations of one name with tensors of these shapes."""

    name: str
    shapes: tuple[tuple[int, ...], ...] | None  # None: other ones in each step
    count: int  # in a step, of all of them
    which: tuple[tuple[int, int], ...]  # first and last of stretches of these, from 0
    of_name: int = 0  # in a step, of all of this name; 0 where that was not written
    which_of_name: tuple[tuple[int, int], ...] = ()
    bytes_each: int = 0  # of what one of them gives; 0 where that was not written


@dataclass(frozen=True)
class ProductOrder:
    """Matrix products of a step as they are, and in the order that takes fewest operations."""

    flops: int
    flops_left: int
    products_left: int
    elements_left: int  # that these read and write, each by itself


@dataclass(frozen=True)
class VainWork:
    """Work of one place whose result was there already, or that nobody reads."""

    # step: each step anew; within: more than once in a step; unused; part: most of it is unused;
    # order: products that another order makes cheaper; ranks: ``of`` ranks compute the same;
    # gradients: work for gradients that are stored and that nobody reads; moved: made again within
    # a step of one parameter, with a state that it moves on itself; tiny: slow because a part of
    # its numbers is next to zero; zeros: sent to other ranks, or work on as many rows as are sent,
    # of which a part is nothing but zeros;
    # sent: to other ranks, the same bits in every watched step;
    # results: of what a solver gives nobody reads what costs most; tries: factorisations, of which
    # ``times`` of ``of`` a step fail and are tried again; way: another way (``way``) gives the same
    # of their own arguments, and took ``left_ratio`` of ``tried_ns`` in a trial; rows: of ``of``
    # rows that were repeated before them in the step, ``left_ratio`` are different;
    # alike: on rows of which a part (left_ratio) are distinct
    kind: str
    places: tuple[Frame, ...]  # lines that start it, heaviest first
    operations: tuple[VainOperations, ...]
    backward: bool
    times: int  # operations a step that are in vain
    of: int | None  # the same with those that are needed
    kept_bytes: int | None  # to keep what other work reads of it
    steps_ratio: float  # of the watched steps after another one, in which it is so
    read_ratio: float = 0.0  # of what a part is read of
    left_ratio: float = 0.0  # of its work that this part needs
    order: ProductOrder | None = None
    shared_ratio: float = 0.0  # of all that was compared between ranks, by bytes
    gradients: int = 0  # that are stored a step, and that nobody reads
    tried_ns: int = 0  # of one call, in a trial; else 0
    beside_threads: bool = False  # others may have read it, unseen: only the device would show it
    way: str = ""  # that was tried (``diagnosis/evidence/tried_ways.json``)


@dataclass(frozen=True)
class SeenLoop:
    """Operations that come at the same places again and again in a step."""

    way: str  # what later turns need: free (nothing), scan (sums), chain (something else), unseen
    turns: int
    operations: tuple[VainOperations, ...]
    carried: tuple[VainOperations, ...]  # of them, which need what they gave in a turn before


@dataclass(frozen=True)
class TriedAt:
    """A way that was quicker for calls of one line, after the watched steps."""

    place: Frame
    operator: str
    way: str
    tried_ns: int  # of one call
    left_ratio: float  # of that, by the other way


@dataclass(frozen=True)
class RunValues:
    """Of one step that is in no window."""

    step: int  # its number in the run
    batches: int  # calls of a model, or batches of a loader, that were looked at
    attention_seen: bool  # False: the program compiles, and its calls were left alone
    padding: tuple[Padding, ...]  # one a call of a model or a batch, by the best evidence
    attention: tuple[AttentionMask, ...]
    cost_ns: int
    again: tuple[SameCalls, ...] = ()
    losses: tuple[IgnoredRows, ...] = ()
    work: tuple[VainWork, ...] | None = None  # None: it was not looked at
    operators: tuple[str, ...] = ()  # that compute and the dispatcher ran, below autograd
    views: tuple[str, ...] = ()  # the same that only look at tensors or make room for one
    work_not_seen: str = ""  # why work was not looked at to the end
    loops: tuple[SeenLoop, ...] = ()
    rare: tuple[TriedAt, ...] = ()
    cudnn_allow_tf32: bool | None = None  # convolutions that are not in it, cuDNN chose so
