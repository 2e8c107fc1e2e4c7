"""A step computes what nobody reads.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher runs
them. Named is work whose results were read by no other operation and by nothing on the host before
their memory was given back, or only by work of the same kind, in four steps in turn. What stays
(gradients and states), the loss of a backward pass, what a checkpoint computes again and what a
measurement throws away as a whole are left alone. Named, too, is what gives more than is read of
it, half or less: a product, a convolution, elementwise work, a softmax, norm or sum of rows of
which views and gathers take some, through all that hands the part on; a backward pass needs none of
the rows whose gradient is zero. The last of many layers is left alone, whose own code leaves
nothing out. A sort or a permutation of which views take a quarter or less is named, too: a
selection or a few draws give as much; so is a gather or a copy, such as of the caches of a beam
search, of which less than half is read before it is gathered anew; so is a sort whose order is only
searched for a few places, each of which is a count of what is larger. Nothing is said where kernels
wrote memory that no operation was seen to write. Where other threads run code of the program, they
may have read it: then it is said of what lies on a device, if nobody but the threads of the steps
launched what reads there.

## Why it matters
The work is real, so that neither the device nor the host looks idle: attention weights that are
returned and dropped, gradients that a function of one's own computes for what needs none, outputs
of heads that no loss uses, the empty rest of a cache that is put in order for each token, metrics
that are shown now and then, scores of all positions where those of the answer are needed, a whole
product for its diagonal.

## How to fix it
Do not ask for it: `need_weights=False`, `ctx.needs_input_grad` in a backward function, a call
without the part that is dropped.

## When to ignore it
Where the result is used in other steps than those that were watched, such as every hundredth.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.vain_work import (
    counted,
    may_be_read_elsewhere,
    vain,
    watched,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import VainWork

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Work of each place that nobody reads."""
    values, told = watched(trace), False
    for work in () if values is None else values.work or ():
        mine = work.kind in ("unused", "part")
        rows = vain(trace, work, beside_modules=False) if mine else None
        if rows is None:
            continue
        told = True
        where = f" in {rows.place}" if rows.place else ""
        device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
        what = f"Nobody reads the results of {counted(work)} a step{where}, mostly {rows.longest}"
        if work.kind == "part":
            more = f" and {work.times - 1} more operations" if work.times > 1 else ""
            give = "give" if work.times > 1 else "gives"
            what = f"Of what {rows.longest}{more} {give}{where}, {_share(work.read_ratio)} is read"
        yield Found(
            summary=f"{what}: {device}{duration(rows.host_ns)} of the host's as recorded",
            evidence=(
                Evidence(_COUNTED[work.kind], work.times, "per step"),
                Evidence("of their results that is read", work.read_ratio, "ratio"),
                Evidence("of their work that this needs", work.left_ratio, "ratio"),
                *rows.evidence,
            ),
            cost_ns_per_step=max(rows.device_ns, rows.host_ns),
            changes=rows.changes(trace),
            location=rows.place,
            fix=_fix(work),
            hint=_HINT if work.backward else None,
            confidence="high",
        )
    if not told and may_be_read_elsewhere(trace, ("unused", "part")):
        raise NotChecked(
            "threads of the program run beside its steps, and may have read what nobody else reads"
        )


_COUNTED = {
    "unused": "operations that nobody reads",
    "part": "operations of which a part is read",
}
_FORWARD = "Leave it out, or compute it in the steps in which it is used"
_ROWS = (
    "Choose what is read before it is computed: rows of what goes in, not of the result, such as"
    " the last positions before a head instead of after it"
)
_MOVED = (
    "Move the part that is in use alone: take the slice of it first (cache[:, :, :filled]), and"
    " gather or copy that"
)
_MOVES = frozenset(
    f"aten::{name}" for name in ("index", "index_select", "gather", "clone", "copy_")
)
_FEW = (
    "Choose before it is put in order: topk in place of a sort, a count of what is larger"
    " ((keys > own).sum()) for one place in it, a few draws in place of a permutation"
)
_BACKWARD = "Compute no gradients for what needs none"
_HINT = "if ctx.needs_input_grad[1]:  # in backward(): else return None for it"


def _fix(work: VainWork) -> str:
    if work.kind == "part":
        ordered = any(one.name in ("aten::sort", "aten::randperm") for one in work.operations)
        moved = all(one.name in _MOVES for one in work.operations)
        return _FEW if ordered else _MOVED if moved else _ROWS
    return _BACKWARD if work.backward else _FORWARD


LEAST_SAID_RATIO = 1e-4  # notes round to millionths, and nobody needs to know it closer


def _share(ratio: float) -> str:
    if ratio < LEAST_SAID_RATIO:
        return f"less than {100 * LEAST_SAID_RATIO:g} %"
    return f"{100 * ratio:.2g} %"
