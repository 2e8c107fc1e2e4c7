"""What the peak would be if one thing were different, each with what is assumed.

Every answer edits the lives or sizes of blocks and adds the whole curve up again: a saving at the
recorded peak is worth only as much as the next highest moment allows.
"""

from collections.abc import Mapping

import numpy as np

from pinchpoint.analysis.memory.checkpointing import checkpointing
from pinchpoint.analysis.memory.growth import growth
from pinchpoint.analysis.memory.history import History, once_per_history
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase, Run
from pinchpoint.analysis.memory.waste import waste
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints, Mask, Rows

RANKS = 8  # of the sharding questions, unless asked otherwise: the GPUs of one common machine
ALLOCATOR_MARGIN = 0.95  # of a device that a process can fill before fragmentation ends it
_FP32 = "if they are 32-bit now; the file does not say"


@dataclass(frozen=True)
class WhatIf:
    """One change: the requested peak with it and what it assumes. ``lossless``: the program
    computes the same."""

    id: str
    label: str
    peak_bytes: int
    saved_bytes: int
    assumption: str
    lossless: bool = True


@dataclass(frozen=True)
class Batch:
    """The largest batch that fits on ``capacity_bytes``, as a multiple of the recorded one.

    ``fixed_bytes`` and ``per_batch_bytes`` are those of the moment that fills the device first.
    ``left_out_bytes`` leaked before that moment: a leak grows with the steps, and no batch is
    small enough for it, so it counts as mended. ``of_failing``: a multiple of the failing batch.
    """

    capacity_bytes: int
    factor: float
    fixed_bytes: int
    per_batch_bytes: int
    assumption: str
    left_out_bytes: int = 0
    of_failing: bool = False


def what_ifs(history: History, ranks: int = RANKS) -> tuple[WhatIf, ...]:
    """All answers that this recording allows, largest saving first."""
    answers = [*_independent_of_ranks(history), *_sharding(history, ranks)]
    useful = [a for a in answers if a.saved_bytes > 0]
    return tuple(sorted(useful, key=lambda a: -a.saved_bytes))


@once_per_history
def _independent_of_ranks(history: History) -> list[WhatIf]:
    return [
        *_checkpointing(history),
        *_set_to_none(history),
        *_precision(history),
        *_optimizers(history),
        *_expandable(history),
    ]


def batch(history: History, capacity_bytes: int) -> Batch | None:
    """Scale what depends on the batch until the device is full; None if nothing does.

    The moment that fills it first need not be the recorded peak: a peak in the optimizer stays
    while the passes grow.
    """
    scales = _scales_with_batch(history)
    leaked = np.zeros(len(scales), bool)
    for leak in growth(history).leaks:
        leaked[leak.blocks] = True
    varying = _curve(history, scales & ~leaked)
    left_out = _curve(history, leaked)
    fixed = history.replay.requested - varying - left_out
    if not (varying > 0).any():
        return None
    room = int(capacity_bytes * ALLOCATOR_MARGIN) - fixed
    factors = np.full(len(varying), np.inf)
    np.divide(room, varying, out=factors, where=varying > 0)
    first = int(factors.argmin())
    return Batch(
        capacity_bytes,
        max(float(factors[first]), 0.0),
        int(fixed[first]),
        int(varying[first]),
        "activations, inputs and temporaries of the passes grow with the batch, everything else "
        f"stays; {100 * ALLOCATOR_MARGIN:.0f} % of the device can be used",
        int(left_out.max()),
    )


def _curve(history: History, wanted: Mask) -> Ints:
    """Requested bytes of some blocks after each event."""
    blocks, count = history.blocks, len(history.replay)
    delta = np.zeros(count + 2, np.int64)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return delta[1 : count + 1]
    np.add.at(delta, blocks.birth[rows] + 1, blocks.requested[rows])
    np.add.at(delta, blocks.death[rows] + 1, -blocks.requested[rows])
    return np.cumsum(delta)[1 : count + 1]


def scaled_peak(
    history: History, factors: Mapping[MemoryCategory, float], extra_bytes: int = 0
) -> int:
    """The requested peak if blocks of some categories were larger or smaller."""
    by_category = np.ones(max(MemoryCategory) + 1)
    for category, factor in factors.items():
        by_category[category] = factor
    rows = np.flatnonzero((by_category != 1)[history.owners.category])
    if not len(rows):
        return history.replay.peak("requested").bytes + extra_bytes
    sizes = history.blocks.requested[rows]
    times = by_category[history.owners.category[rows]]
    change = (sizes * times).astype(np.int64) - sizes
    return _with_change(history, rows, change) + extra_bytes


def _with_change(history: History, rows: Rows, change: Ints) -> int:
    """The requested peak if these blocks were larger by so many bytes."""
    delta = np.zeros(len(history.replay) + 2, np.int64)
    np.add.at(delta, history.blocks.birth[rows] + 1, change)
    np.add.at(delta, history.blocks.death[rows] + 1, -change)
    after = np.cumsum(delta, out=delta)[:-1]
    after[1:] += history.replay.requested
    return int(max(after[0] + history.replay.base[0], after[1:].max(initial=0)))


def _answer(
    history: History, id_: str, label: str, peak: int, assumption: str, *, lossless: bool = True
) -> WhatIf:
    saved = history.replay.peak("requested").bytes - peak
    return WhatIf(id_, label, peak, saved, assumption, lossless)


def _checkpointing(history: History) -> list[WhatIf]:
    found = checkpointing(history)
    if found is None:
        return []
    label = f"checkpoint the {len(found.layers)} layers"
    assumption = (
        "each layer keeps its input and runs forward again in the backward pass: about one more "
        "forward pass of these layers"
    )
    return [_answer(history, "checkpointing", label, found.peak_bytes, assumption)]


def _set_to_none(history: History) -> list[WhatIf]:
    """Gradients gone from the optimizer's step until the backward pass makes them again."""
    kept = gradients_kept(history)
    if not kept.any():
        return []
    curve = history.replay.requested - kept
    peak = int(curve.max(initial=history.replay.base[0]))
    return [
        _answer(
            history,
            "set-to-none",
            "zero_grad(set_to_none=True)",
            peak,
            "nothing reads .grad between the optimizer's step and the next backward pass",
        )
    ]


def gradients_kept(history: History) -> Ints:
    """Bytes of gradients that could be gone, after each event: from an optimizer step that they
    outlive until the next backward pass makes a gradient of their size."""
    blocks, count = history.blocks, len(history.replay)
    change = np.zeros(count + 2, np.int64)
    ends = np.array([r.end for r in history.phases.of(Phase.OPTIMIZER)], np.int64)
    rows = np.flatnonzero(history.owners.is_(MemoryCategory.GRADIENT))
    next_end = np.append(ends, count + 1)[np.searchsorted(ends, blocks.birth[rows], "right")]
    rows = rows[blocks.death[rows] > next_end]  # nearly always none
    runs = history.phases.runs if len(rows) else ()
    for position, run in enumerate(runs):
        if run.phase != Phase.OPTIMIZER:
            continue
        kept = rows[(blocks.birth[rows] < run.first) & (blocks.death[rows] > run.end)]
        later = (r for r in runs[position + 1 :] if r.phase != Phase.OUTSIDE)
        following = next((r for r in later if r.phase in (Phase.BACKWARD, Phase.OPTIMIZER)), None)
        if not len(kept) or (following is not None and following.phase == Phase.OPTIMIZER):
            continue
        back = (
            np.full(len(kept), count)
            if following is None
            else _made_again(history, blocks.requested[kept], following)
        )
        until = np.minimum(back, blocks.death[kept])
        np.add.at(change, np.full(len(kept), run.end), blocks.requested[kept])
        np.add.at(change, until, -blocks.requested[kept])
    return np.cumsum(change)[:count]


def _made_again(history: History, wanted: Ints, backward: Run) -> Ints:
    """When the backward pass makes blocks of these sizes, each once; its end where it does not."""
    blocks = history.blocks
    made = blocks.born_within(backward.first, backward.end)
    out = np.full(len(wanted), backward.end)
    for size in np.unique(wanted).tolist():
        mine = np.flatnonzero(wanted == size)
        births = blocks.birth[made[blocks.requested[made] == size]][: len(mine)]
        out[mine[: len(births)]] = births
    return out


def _precision(history: History) -> list[WhatIf]:
    half = {MemoryCategory.PARAMETER: 0.5, MemoryCategory.GRADIENT: 0.5}
    all_half = half | {MemoryCategory.OPTIMIZER_STATE: 0.5}
    return [
        _answer(
            history,
            "bf16-parameters",
            "parameters and gradients in bf16",
            scaled_peak(history, half),
            _FP32,
            lossless=False,
        ),
        _answer(
            history,
            "bf16-all",
            "parameters, gradients and optimizer state in bf16",
            scaled_peak(history, all_half),
            _FP32,
            lossless=False,
        ),
    ]


def _optimizers(history: History) -> list[WhatIf]:
    def state(factor: float) -> int:
        return scaled_peak(history, {MemoryCategory.OPTIMIZER_STATE: factor})

    return [
        _answer(
            history,
            "8-bit-optimizer",
            "optimizer state in 8 bits",
            state(0.25),
            f"a quarter of the state, {_FP32}; scale factors left out",
            lossless=False,
        ),
        _answer(
            history,
            "sgd",
            "SGD without momentum",
            state(0.0),
            "no optimizer state",
            lossless=False,
        ),
        _answer(
            history,
            "offload-optimizer",
            "optimizer state in host memory",
            state(0.0),
            "the step runs on the host, or copies the state for each step",
        ),
    ]


def _sharding(history: History, ranks: int) -> list[WhatIf]:
    """ZeRO: each rank keeps its share; with stage 3 one layer is gathered at a time."""
    one = {MemoryCategory.OPTIMIZER_STATE: 1 / ranks}
    two = one | {MemoryCategory.GRADIENT: 1 / ranks}
    three = two | {MemoryCategory.PARAMETER: 1 / ranks}
    parameters = history.blocks.requested[history.owners.is_(MemoryCategory.PARAMETER)]
    gathered = 2 * int(parameters.max(initial=0))
    return [
        _answer(
            history,
            f"zero-{stage}",
            f"ZeRO stage {stage} over {ranks} ranks",
            scaled_peak(history, factors, extra),
            assumption,
        )
        for stage, factors, extra, assumption in (
            (1, one, 0, "optimizer state divided evenly"),
            (2, two, 0, "optimizer state and gradients divided evenly; buckets left out"),
            (
                3,
                three,
                gathered,
                "parameters divided too; two gathers of the largest parameter are live at once",
            ),
        )
    ]


def _expandable(history: History) -> list[WhatIf]:
    """A bound for reserved memory; what is requested stays."""
    if history.snapshot.settings.get("expandable_segments"):
        return []
    found = waste(history)
    bound = found.at_peak.split_free_bytes
    if bound <= 0:
        return []
    return [
        WhatIf(
            "expandable-segments",
            "expandable_segments:True",
            found.reserved_peak_bytes - bound,
            bound,
            "of reserved, not of requested bytes, and at most: free memory inside used segments "
            "at the peak",
        )
    ]


def _scales_with_batch(history: History) -> Mask:
    owners = history.owners
    varying = owners.is_(MemoryCategory.ACTIVATION, MemoryCategory.INPUT)
    parameters = history.blocks.requested[owners.is_(MemoryCategory.PARAMETER)]
    as_parameter = np.isin(history.blocks.requested, parameters)
    in_pass = np.append(history.phases.of_event, 0)[history.blocks.birth] != Phase.OPTIMIZER
    result: Mask = varying | (owners.is_(MemoryCategory.TEMPORARY) & in_pass & ~as_parameter)
    return result
