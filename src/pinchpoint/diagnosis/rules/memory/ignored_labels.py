"""Scores are computed for positions whose label the loss leaves out.

## What it looks for
A `cross_entropy` whose labels are mostly the index that it ignores, by what `pinchpoint run` saw of
the labels of one step; and the operators that make, read or differentiate as many rows of scores:
the product with the last layer, the softmax, the loss, and their backward passes.

## Why it matters
A row of scores is as long as the vocabulary, so for a small model it costs as much as all layers
before. Where only answers or masked words count, most rows are computed to be multiplied by zero.
They take memory, too, three or four times over.

## How to fix it
Pick the positions that count before the last layer: `keep = labels != -100`, then
`head(hidden[keep])` and the loss of `labels[keep]`. The layers before it need all positions.

## When to ignore it
Where other batches ignore little: one step was looked at. A device waits for the number of kept
positions, once a step.
"""

from collections.abc import Iterator
from math import prod

from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.diagnosis.evidence.called_work import called_work, shrunk
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import IgnoredRows

RULE = Rule(
    needs=("host_ops",),
    record=Record("values of labels: pinchpoint run looks at one step's"),
)

LEAST_IGNORED_RATIO = 0.1  # of the rows: paddings of a few positions are cheaper than picking
# A loss of the next token leaves the last position of each sequence out, whose scores were made.
SHIFTED_RATIO = 1.1


def check(trace: Trace) -> Iterator[Found | Small]:
    """The loss with the most rows of scores that do not count."""
    values = None if trace.run is None else trace.run.values
    losses = [] if values is None else [*values.losses]
    for loss in sorted(losses, key=_most_first):
        found, ignored = _found(trace, loss), loss.ignored_ratio
        if found is not None:
            little = Small(ignored, LEAST_IGNORED_RATIO, "the rows")
            yield found if ignored >= LEAST_IGNORED_RATIO else little
            return


def _most_first(loss: IgnoredRows) -> tuple[bool, float]:
    """Before what is little by itself, however large the loss."""
    little = loss.ignored_ratio < LEAST_IGNORED_RATIO
    return little, -loss.rows * loss.classes * loss.ignored_ratio


def _found(trace: Trace, loss: IgnoredRows) -> Found | None:
    work = called_work(trace, lambda call: _on_scores(call, loss), "work on rows of scores")
    if work is None:
        return None
    kept = 1 - loss.ignored_ratio
    return Found(
        summary=(
            f"{100 * loss.ignored_ratio:.0f} % of {loss.rows:,} labels are ignored by the loss, yet"
            f" scores of {loss.classes:,} classes are computed for all of them:"
            f" {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(
            *work.evidence[:2],
            Evidence("labels that the loss ignores", round(loss.ignored_ratio, 4), "ratio"),
            Evidence("labels", loss.rows, "count"),
            Evidence("classes", loss.classes, "count"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(shrunk(trace, work, kept),),
        location=work.place if loss.place is None else Location(*loss.place),
        fix="Pick the positions that count before the last layer",
        hint="keep = labels != -100; loss = F.cross_entropy(head(hidden[keep]), labels[keep])",
        confidence="high",
    )


def _on_scores(call: OperatorCall, loss: IgnoredRows) -> bool:
    """Whether a tensor of it has a row of scores for each label, or a product makes such rows."""
    if call.name.startswith(("aten::_foreach", "aten::_fused")):
        return False  # an optimizer's, on lists of parameters
    shapes = [shape for i in call.tensors() if (shape := call.shape(i)) is not None]
    with_classes = [shape for shape in shapes if loss.classes in shape and len(shape) >= 2]
    if any(_holds_scores(shape, loss) for shape in with_classes):
        return True
    others = [shape for shape in shapes if shape not in with_classes]
    rows = any(_as_many(prod(s[:-1]), loss) or _as_many(s[-1], loss) for s in others if s)
    return bool(with_classes) and rows and call.name in _PRODUCTS


_PRODUCTS = ("aten::mm", "aten::addmm", "aten::linear", "aten::matmul", "aten::bmm")


def _holds_scores(shape: Shape, loss: IgnoredRows) -> bool:
    """``[rows, classes]``, ``[.., positions, classes]``, or classes before the positions."""
    return shape[0] != loss.classes and _as_many(prod(shape) // loss.classes, loss)


def _as_many(rows: int, loss: IgnoredRows) -> bool:
    return loss.rows <= rows <= SHIFTED_RATIO * loss.rows
