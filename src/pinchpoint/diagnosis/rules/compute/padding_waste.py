"""Most of the work goes into padding.

## What it looks for
Batches [rows, width] whose rows are shorter than the batch is wide, by what `pinchpoint run` saw of
the tensors of one step: a mask of one piece a row, else runs of one value in which rows end or
begin, else frames that are all alike there; and operators that compute on all of these positions.
Without a mask some rows have to end in it: rows that are full, or all of one value, tell nothing.
Which tokens are padding is not in a recording by itself: there, batches of sequences that go
through attention at one common length are not checked, and sequences that are packed, with their
own lengths given to the kernel, are none. Where queries are not as wide as what they attend to,
the positions are those of a cache of a fixed length, of which a mask hides what is not filled yet.

## Why it matters
A batch padded to a fixed length computes as much for a short sequence as for the longest. The
device is busy all the time, so no utilisation shows it.

## How to fix it
Pad to the longest row of each batch, and put rows of like length into one batch; or pack several
into one row, with an attention that knows their borders (variable-length kernels, nested tensors).
The range is from the first of these to the last. Of a cache give attention the filled part alone,
or let it grow in blocks.

## When to ignore it
Where other batches are full: one step was looked at. Where one width is wanted: a CUDA graph or a
compiled program for each width costs more than padding; a few widths are enough.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.called_work import CalledWork, called_work, shrunk
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import Padding

RULE = Rule(
    needs=("host_ops",),
    record=Record("values of masks: pinchpoint run looks at one step's"),
    advice=NO_HINT,
)

SHORTEST = 64  # of queries; decoding steps of one token have no padding to speak of
LEAST_WASTE_RATIO = 0.1  # of the positions: rows of text that are cut alike end a little apart
MASK_RATIO = 0.1  # of attention to a cache: what makes the mask for it has its shape, too
GROUPS = 8  # stretches of lengths that sorted batches have: a loader sorts some batches' worth

_PACKED_AT = {  # input that is only there for packed sequences: borders, or sequences' lengths
    "aten::_flash_attention_forward": 3,
    "aten::_efficient_attention_forward": 4,
    "aten::_cudnn_attention_forward": 4,
}


def check(trace: Trace) -> Iterator[Found | Small]:
    """Padding that was seen, with the work that goes with it."""
    values = None if trace.run is None else trace.run.values
    if values is None or not values.batches:
        calls, inside = launched_calls(trace), device_ops_in_steps(trace)
        if (calls.where(_may_be_padded) & inside).any():
            raise NotChecked("a recording does not show which tokens are padding", fits=True)
        return
    seen = sorted(filter(_ends_of_rows, values.padding), key=_most_first)
    if seen and trace.host_ops is not None and not trace.host_ops.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    for padding in seen:
        found, waste = _found(trace, padding), 1 - padding.real_ratio
        if found is not None:
            small = Small(waste, LEAST_WASTE_RATIO, "the positions")
            yield found if waste >= LEAST_WASTE_RATIO else small
            return


def _ends_of_rows(padding: Padding) -> bool:
    """Whether rows end in it. Of a tensor whose rows are full, or all one value, nothing tells that
    this value is none of the program's: a gap between what is to be remembered and the question,
    the steps of a batch that has its time first. A mask does tell."""
    some = any(0 < n < padding.width for n in padding.lengths)
    return some or padding.evidence == "mask"


def _most_first(padding: Padding) -> tuple[bool, float]:
    """Before what is little by itself, however large the batch."""
    waste = 1 - padding.real_ratio
    return waste < LEAST_WASTE_RATIO, -padding.rows * padding.width * waste


def _found(trace: Trace, padding: Padding) -> Found | None:
    """None where nothing that was recorded computes on these positions."""
    rows, width = padding.rows, padding.width
    pairs = called_work(
        trace, lambda call: _on_pairs(call, rows, width), "attention over pairs of positions"
    )
    ours = called_work(
        trace,
        lambda call: _on_pairs(call, rows, width) and not _on_a_cache(call, width),
        "attention of as many queries",
    )
    linear = called_work(
        trace,
        lambda call: not _on_pairs(call, rows, width) and _on_positions(call, rows, width),
        "work on all positions",
    )
    work = [one for one in (linear, pairs) if one is not None]
    if not work:
        return None
    total = sum(one.ns_per_step for one in work)
    what = "frames" if padding.evidence == "frames" else "tokens"
    place = None if padding.place is None else Location(*padding.place)
    longest, mean = padding.longest, padding.mean_length
    kept = _kept(padding)
    least_ns = 0 if linear is None else linear.ns_per_step / MASK_RATIO
    if padding.evidence == "mask" and ours is None and pairs and pairs.ns_per_step > least_ns:
        return _of_a_cache(trace, padding, pairs, place)
    return Found(
        summary=(
            f"{100 * padding.real_ratio:.0f} % of {rows} × {width} positions hold {what}"
            f" (mean length {mean:.0f}, longest {longest}); {duration(total)}"
            " of each recorded step compute"
            " on all of them"
        ),
        evidence=(
            *(fact for one in work for fact in one.evidence[:2]),
            Evidence("positions that hold something", round(padding.real_ratio, 4), "ratio"),
            Evidence("mean length", round(mean, 1), "positions"),
            Evidence("longest row", longest, "positions"),
            Evidence("width of the batch", width, "positions"),
            Evidence("seen by", _BY[padding.evidence].format(padding.name or "the batch"), "words"),
        ),
        cost_ns_per_step=total,
        changes=_shrunk(trace, linear, pairs, kept),
        at_best=_shrunk(trace, linear, pairs, [n / width for n in padding.lengths]),
        location=place or work[0].place,
        fix=(
            "Pad each batch to its longest row, and put rows of like length into one batch"
            if longest < width
            else "Put rows of like length into one batch, or pack them"
        ),
        hint=_HINTS[padding.evidence] if longest < width else _SORTED,
        confidence=_CONFIDENCE[padding.evidence],
    )


def _of_a_cache(
    trace: Trace, padding: Padding, attention: CalledWork, place: Location | None
) -> Found | None:
    """Keys and values of a fixed length that a few queries attend to, most of them hidden."""
    width, longest = padding.width, padding.longest
    if longest > (1 - LEAST_WASTE_RATIO) * width:
        return None
    left = (shrunk(trace, attention, longest / width),)
    return Found(
        summary=(
            f"{100 * longest / width:.2g} % of the {width} positions of a cache are filled where"
            f" attention was looked at, and a mask hides the rest;"
            f" {duration(attention.ns_per_step)} of each recorded step attend to all of them"
        ),
        evidence=(
            *attention.evidence[:2],
            Evidence("longest row", longest, "positions"),
            Evidence("positions of the cache", width, "positions"),
            Evidence("seen by", _BY["mask"].format(padding.name or "of attention"), "words"),
        ),
        cost_ns_per_step=attention.ns_per_step,
        changes=left,
        location=place or attention.place,
        fix=(
            "Give attention the filled part of the cache alone, and the mask as far; where shapes"
            " have to stay (compiled, CUDA graphs), one of a few lengths"
        ),
        hint="k, v = k[:, :, :filled], v[:, :, :filled]  # and mask[..., :filled]",
        confidence="high",
    )


_BY = {
    "mask": "the mask {}",
    "ids": "one value that rows of {} share at their ends",
    "frames": "frames of {} that are all alike at the ends of rows",
}
_TEXT = 'batch = tokenizer(texts, padding="longest")  # not max_length; texts sorted by length'
_HINTS = {"mask": _TEXT, "ids": _TEXT, "frames": "batch = batch[:, : lengths.max()]"}
_SORTED = "order = sorted(range(len(data)), key=lambda i: len(data[i]))"
# Only a mask says what is not to be read; silence at the end of a recording looks like padding.
_CONFIDENCE: dict[str, Literal["high", "medium", "low"]] = {
    "mask": "high",
    "ids": "medium",
    "frames": "low",
}


def _kept(padding: Padding) -> list[float]:
    """Shares of the width that stretches of rows have: all the longest; else sorted by length."""
    if padding.longest <= (1 - LEAST_WASTE_RATIO) * padding.width:
        return [padding.longest / padding.width]
    last = len(padding.lengths) - 1
    return [padding.lengths[round(last * (i + 1) / GROUPS)] / padding.width for i in range(GROUPS)]


def _shrunk(
    trace: Trace, linear: CalledWork | None, pairs: CalledWork | None, kept: list[float]
) -> tuple[Change, ...]:
    """Work by its positions, attention by pairs of them; weights are read all the same."""
    return tuple(
        shrunk(trace, work, float(np.mean(np.power(kept, power))))
        for work, power in ((linear, 1), (pairs, 2))
        if work is not None
    )


# ------------------------------------------------------------------------------------------------
# Which operators compute on the positions of a batch, by the shapes of their inputs.


def _on_positions(call: OperatorCall, rows: int, width: int) -> bool:
    """An input has a row of features for each position."""
    if call.name.startswith(("aten::_foreach", "aten::_fused")):
        return False  # an optimizer's, on lists of parameters
    if "embedding" in call.name:
        return any(call.shape(i) == (rows, width) for i in call.tensors())
    return any(
        _has_positions(shape, rows, width)
        for i in call.tensors()
        if (shape := call.shape(i)) is not None
    )


def _has_positions(shape: Shape, rows: int, width: int) -> bool:
    """``[rows, width, …]``, ``[width, rows, …]``, ``[rows, heads, width, …]``, or both as one."""
    if len(shape) >= 3 and {shape[0], shape[1]} == {rows, width}:
        return True
    if len(shape) == 4 and shape[0] == rows and width in shape[2:]:
        return True
    return len(shape) >= 2 and rows > 1 and rows * width in shape


def _on_pairs(call: OperatorCall, rows: int, width: int) -> bool:
    """Attention, fused or with stored scores."""
    shapes = [s for i in call.tensors() if (s := call.shape(i)) is not None]
    mine = [s for s in shapes if len(s) >= 3 and s[0] % rows == 0 and width in s[1:]]
    if not mine:
        return False
    if "attention" in call.name:
        return True
    if any(s[-2:] == (width, width) for s in mine):
        return True
    return call.name in ("aten::bmm", "aten::baddbmm", "aten::matmul") and _makes_scores(
        mine, width
    )


def _on_a_cache(call: OperatorCall, width: int) -> bool:
    """Whether queries are of another length than what they attend to."""
    query = call.shape(0)
    return "attention" in call.name and query is not None and width not in query[1:-1]


def _makes_scores(shapes: list[Shape], width: int) -> bool:
    return len(shapes) >= 2 and shapes[-2][-2] == width == shapes[-1][-1]


def _may_be_padded(of: LaunchedCall) -> bool:
    """Whether a call is attention over several sequences of one length."""
    query = of.call.shape(0)
    if "attention" not in of.call.name or query is None or len(query) != 4:
        return False
    packed = _PACKED_AT.get(of.call.name)
    if packed is not None and of.call.shape(packed) is not None:
        return False
    return query[0] > 1 and max(query[1:3]) >= SHORTEST
