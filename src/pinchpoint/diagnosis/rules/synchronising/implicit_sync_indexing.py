"""A result whose shape depends on data makes the host wait for its size.

## What it looks for
Waits of the host inside `nonzero`, `masked_select`, `unique`, `repeat_interleave` and indexing with
a boolean mask, which calls `nonzero`. Indexing with positions waits for nothing and is not meant;
the operator around the wait decides, not its name in the source. Where each turn of a Python loop
has such a wait (experts, classes, groups of rows), the loop is the cause, and doing all turns at
once the most that can be won. It is what the fix wins where no turn can need the one before it:
each multiplies its rows by weights that it selects or that are a module's own, and puts them back.
What is left is one launch for each operation of a turn, as long as its blocks and its roofline
make it.

## Why it matters
The host cannot launch what follows before it knows how large the result is, so it waits for
everything that is queued, and the device then idles until the next launch. No `.item()` is in
the source, so the wait is easy to overlook.

## How to fix it
Use forms with a fixed shape: `torch.where(mask, x, 0)` and a masked sum in place of `x[mask]`,
`clamp`, or pass the size where it is known (`repeat_interleave(..., output_size=n)`,
`torch.nonzero_static`).

## When to ignore it
Data preparation outside the training loop.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import Change, DropSyncs
from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.diagnosis.evidence.device_work import Waiting, waiting
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.synchronising._small_loop import SmallLoop, small_loop
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("api_calls", "device_ops", "host_ops"),
    record=CPU_AND_DEVICE,
    advice=NO_HINT,
)

_FIX = "Use a form with a fixed shape: torch.where and a masked sum instead of x[mask]"
_FIX_OF_A_LOOP = (
    "Do all groups of rows at once: sort the rows by group (argsort, bincount) and multiply in one"
    " grouped product, or one batched product of padded groups, without asking for sizes"
)
_HINT = "torch.where(mask, x, 0.0).sum() / mask.sum()  # instead of x[mask].mean()"
_HINT_OF_A_LOOP = """order = group.argsort()  # rows of one group side by side
ends = torch.bincount(group, minlength=groups).cumsum(0)
packed = x[order]  # one grouped product of these, then out.index_add_(0, order, result)"""


def check(trace: Trace) -> Iterator[Found]:
    """Waits for the size of a result."""
    sizes = waiting(trace, "results of unknown size", WaitReason.SIZE)
    if sizes is None:
        return
    loop = small_loop(trace, sizes, of_groups=True)
    dropped: tuple[Change, ...] = (DropSyncs(sizes.api_calls),)
    at_once = (*dropped, *loop.as_one_call) if loop else ()
    surely = loop is not None and loop.own_weights
    yield Found(
        summary=_summary(sizes, loop),
        evidence=(*sizes.evidence, *(loop.evidence if loop else ())),
        cost_ns_per_step=sizes.waited_ns,
        changes=at_once if surely else dropped,
        at_best=() if surely else at_once,
        location=sizes.place,
        fix=_FIX_OF_A_LOOP if loop else _FIX,
        hint=_HINT_OF_A_LOOP if loop else _HINT,
    )


def _summary(sizes: Waiting, loop: SmallLoop | None) -> str:
    if loop is not None and loop.own_weights:
        return (
            f"A Python loop over groups of rows{sizes.where}: {loop.turns:,.0f} turns a step,"
            f" each of {loop.launches:.0f} launches and a wait for how many rows there are"
        )
    operator = (sizes.place.operator if sizes.place else None) or "An operator"
    return (
        f"{operator}{sizes.where} has a result whose size the host waits for,"
        f" {sizes.count:.3g} × a step" + (loop.words if loop else "")
    )
