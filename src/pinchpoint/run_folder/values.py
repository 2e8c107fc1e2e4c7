"""``values/rank….json``: what batches and attention masks of one step held, in a few numbers."""

from typing import Annotated

import msgspec

from pinchpoint.run_folder.layout import VALUES_SCHEMA
from pinchpoint.run_folder.numbers import Bytes, Count, Ns

Flops = Bytes  # a whole number that fits into 64 bits
FrameNote = tuple[str, Count, str]  # file, line, function
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Length = Annotated[float, msgspec.Meta(ge=0, lt=1 << 31)]


class TensorNote(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor [rows, width] of a batch. Null: not known."""

    evidence: str = ""  # mask; ids or frames: runs of one value at the ends of rows; labels
    name: str = ""  # of the argument or key
    rows: Count = 0
    width: Count = 0
    rows_read: Count = 0  # fewer than rows: a sample
    real_ratio: Ratio | None = None  # of the positions that were read
    mean_length: Length | None = None
    lengths: tuple[Count, ...] = ()  # 17 quantiles, shortest to longest
    side: str | None = None  # of the padding: right, left
    ignored_ratio: Ratio | None = None  # of labels, that are the index which losses ignore


class BatchNote(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model from outside of modules, or one batch of a loader."""

    place: FrameNote | None = None
    source: str = ""  # module or loader
    model: str = ""
    tensors: tuple[TensorNote, ...] = ()  # best evidence first


class AttentionNote(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of attention at one place with one mask [.., queries, keys]."""

    place: FrameNote | None = None
    calls: Count = 0
    queries: tuple[Count, ...] = ()  # shape
    mask: tuple[Count, ...] = ()  # shape
    dtype: str = ""  # of the mask
    # causal, causal before padding, nothing hidden, padding, banded, values (a bias), other
    kind: str = ""
    real_ratio: Ratio | None = None  # of the pairs, that are let through
    rows_read: Count = 0
    rows_there: Count = 0
    band: Count | None = None  # keys that a query sees, itself included


class LossNote(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a loss at one place, which choose among ``classes`` for each of ``rows``."""

    place: FrameNote | None = None
    calls: Count = 0
    rows: Count = 0
    classes: Count = 0
    ignored_ratio: Ratio | None = None  # of the rows, that the loss leaves out


class AgainNote(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of one class, whose calls in a few steps came again with the same values."""

    model: str = ""
    place: FrameNote | None = None  # of the user's code, of the first call
    calls: Count = 0
    distinct: Count = 0  # calls of them that differ


class OperationNote(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of a step with one name and one set of shapes."""

    name: str = ""
    # Of tensors with dimensions; null: these come in the same order in all steps, with other shapes
    shapes: tuple[tuple[Count, ...], ...] | None = ()
    count: Count = 0  # in a step, of all of them
    which: tuple[tuple[Count, Count], ...] = ()  # first and last of stretches of these, from 0
    of_name: Count = 0  # in a step, of all of this name
    which_of_name: tuple[tuple[Count, Count], ...] = ()  # the same stretches, of all of this name


class WorkNote(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one place whose result was there already, or that nobody reads."""

    # step: each step anew; within: more than once in a step; unused; part: most of it is unused;
    # order: products that another order makes cheaper; gradients: work for such as nobody reads;
    # moved: made again within a step of one parameter, with a state that it moves on itself;
    # tiny: slow because a part of its numbers (read_ratio) is next to zero; zeros: sent to other
    # ranks, or work on as many rows as are sent, of which a part (read_ratio) is nothing but zeros;
    # sent: to other ranks, the same bits in every watched step;
    # results: of what a solver gives nobody reads what costs most; tries: factorisations, of which
    # ``times`` of ``of`` a step fail and are tried again; way: another one (``way``) gives the same
    # of their arguments and took left_ratio of tried_ns, in a trial of one of them; rows: of ``of``
    # rows that were repeated before them in the step, read_ratio are different;
    # alike: on rows of which a part (left_ratio) are distinct
    kind: str = ""
    places: tuple[FrameNote, ...] = ()  # lines that start it, heaviest first
    operations: tuple[OperationNote, ...] = ()
    backward: bool = False
    times: Count = 0  # operations a step that are in vain
    of: Count | None = None  # the same with those that are needed
    bytes: Bytes = 0  # that they write, a step
    kept_bytes: Bytes | None = None  # to keep what other work reads of it
    read_ratio: Ratio = 0.0  # of what a part is read of
    left_ratio: Ratio | None = None  # of its work, that the part needs; null: as much
    steps_ratio: Ratio = 1.0  # of the watched steps after another one, in which it is so
    flops: Flops = 0  # of products in a costly order, a step
    flops_left: Flops = 0  # in the cheapest one, and so for the next two
    times_left: Count = 0  # products
    elements_left: Bytes = 0  # that these read and write, each by itself
    gradients: Count = 0  # that are stored a step, and that nobody reads
    tried_ns: Ns = 0  # of one that is slow by its numbers; left_ratio of it with zeros instead
    way: str = ""  # that was tried
    # Nobody was seen to read it, while threads ran code of the program whose reads are not seen.
    beside_threads: bool = False


class LoopNote(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of the forward pass that come at the same places again and again in a step."""

    # What later turns need of earlier ones. free: nothing; scan: sums, and products with what does
    # not depend on them; chain: something else; unseen: the host reads in the loop
    way: str = ""
    turns: Count = 0
    places: tuple[FrameNote, ...] = ()  # with most operations first
    operations: tuple[OperationNote, ...] = ()
    carried: tuple[OperationNote, ...] = ()  # of them, which need what they gave in a turn before


class AnswerNote(msgspec.Struct, frozen=True, kw_only=True):
    """What one large operation gave in the watched steps: hashes, for ranks to compare."""

    name: str = ""
    shapes: tuple[tuple[Count, ...], ...] = ()  # of tensors with dimensions
    count: Count = 0  # operations of this name with these shapes, in a step
    which: Count = 0  # of these, from 0
    place: FrameNote | None = None
    bytes: Bytes = 0
    backward: bool = False
    digests: tuple[str, ...] = ()  # one a step, all of them different


class RareNote(msgspec.Struct, frozen=True, kw_only=True):
    """A way that was quicker at calls that came after the watched steps."""

    place: FrameNote | None = None
    operator: str = ""
    way: str = ""
    tried_ns: Ns = 0  # of one call
    left_ratio: Ratio = 1.0  # of that, by the other way
    calls: Count = 0  # in ``steps`` steps
    steps: Count = 0


class ValuesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of one process."""

    schema: str = VALUES_SCHEMA
    rank: Count | None = None
    pid: Count | None = None
    step: Count = 0
    attention_seen: bool = False  # false: the program compiles, and calls were left alone
    batches: tuple[BatchNote, ...] = ()
    attention: tuple[AttentionNote, ...] = ()
    losses: tuple[LossNote, ...] = ()
    again: tuple[AgainNote, ...] = ()
    work: tuple[WorkNote, ...] | None = None  # null: it was not looked at
    loops: tuple[LoopNote, ...] = ()  # of one of the watched steps, largest first
    answers: tuple[AnswerNote, ...] = ()  # of one rank of several
    operators: tuple[str, ...] = ()  # that compute and the dispatcher ran, below autograd
    views: tuple[str, ...] = ()  # the same that only look at tensors or make room for one
    work_not_seen: str = ""  # why work was not looked at to the end
    rare: tuple[RareNote, ...] = ()
    cudnn_allow_tf32: bool | None = None  # null: not known
    cost_ns: Ns = 0
