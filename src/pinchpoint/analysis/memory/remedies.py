"""What would have let a failed request through, gentlest change first."""

from dataclasses import dataclass

from pinchpoint.analysis.memory.failures import Failure
from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.whatif import ALLOCATOR_MARGIN, Batch, WhatIf, what_ifs

GENTLE_FIRST = (
    "set-to-none",
    "checkpointing",
    "offload-optimizer",
    "8-bit-optimizer",
    "bf16-parameters",
    "bf16-all",
    "zero-1",
    "zero-2",
    "zero-3",
)


@dataclass(frozen=True)
class Remedy:
    """A change and what the failing step would need with it; ``fits``: within the limit."""

    label: str
    needed_bytes: int
    fits: bool
    assumption: str


def needed_bytes(failure: Failure) -> int:
    """What the failing step needs at least: the forecast, or what was live and what was wanted."""
    least = failure.live_bytes + failure.wanted_bytes
    return max(least, failure.forecast.needed_bytes if failure.forecast else 0)


def remedies(history: History, failure: Failure) -> tuple[Remedy, ...]:
    """Changes in order of how little they disturb; the first that fits is the smallest."""
    needed, limit = needed_bytes(failure), failure.limit_bytes
    out = []
    if failure.fragmented:
        live = failure.live_bytes + failure.wanted_bytes
        out.append(
            Remedy(
                "expandable_segments:True",
                live,
                live <= limit,
                "free memory inside segments becomes usable as one piece",
            )
        )
    known = {a.id: a for a in what_ifs(history)}
    for id_ in GENTLE_FIRST:
        if id_ in known:
            out.append(_scaled(history, failure, known[id_], needed, limit))
    return tuple(out)


def _scaled(history: History, failure: Failure, answer: WhatIf, needed: int, limit: int) -> Remedy:
    """A saving that grows with the batch grows as the failing step does."""
    saved = answer.saved_bytes
    if answer.id == "checkpointing" and failure.forecast is not None:
        live = failure.live_bytes
        saved = int(saved * max(needed / max(live, 1), 1.0))
    after = needed - saved
    return Remedy(answer.label, after, after <= limit, answer.assumption)


def largest_batch_factor(history: History, failure: Failure) -> float | None:
    """The largest batch that would have fit, as a multiple of the failing one."""
    forecast = failure.forecast
    if forecast is None:
        return None
    growing = forecast.needed_bytes - _fixed(history, failure)
    room = failure.limit_bytes - _fixed(history, failure)
    return max(0.0, min(room / growing, 1.0)) if growing > 0 else None


def batch_after_failure(history: History, failure: Failure, capacity_bytes: int) -> Batch | None:
    """The failing batch on a device of another size; None if what it needs is not known."""
    forecast = failure.forecast
    fixed = _fixed(history, failure)
    if forecast is None or forecast.needed_bytes <= fixed:
        return None
    growing = forecast.needed_bytes - fixed
    room = int(capacity_bytes * ALLOCATOR_MARGIN) - fixed
    return Batch(
        capacity_bytes,
        max(room / growing, 0.0),
        fixed,
        growing,
        "what the failing step adds grows with its batch; "
        f"{ALLOCATOR_MARGIN:.0%} of the device can be used",
        of_failing=True,
    )


def _fixed(history: History, failure: Failure) -> int:
    """Requested before the failing pass began."""
    before = [r.first for r in history.phases.runs if r.first <= failure.event]
    at = before[-1] if before else 0
    return int(history.replay.requested[max(at - 1, 0)])
