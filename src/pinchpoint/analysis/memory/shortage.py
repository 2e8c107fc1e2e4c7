"""A shortage of memory in words: what happened, and what would have been enough."""

from typing import TYPE_CHECKING

from pinchpoint.analysis.memory.waste import retries
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Frame, Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.failures import Failure
    from pinchpoint.analysis.memory.history import History
    from pinchpoint.analysis.memory.what_if import Batch, WhatIf


# ------------------------------------------------------------------------------------------------
# Whether memory is short: only then does it matter what a healthy program needs it for.


MATERIAL_PEAK_RATIO = 0.03  # of the peak: less is not worth a change
MATERIAL_DEVICE_RATIO = 0.01  # of the device, where only a trace without memory events is there
NEARLY_FULL_RATIO = 0.9  # of the device: the next longer batch or fragmentation ends the run


@dataclass(frozen=True)
class Pressure:
    """Why memory is short, or that nothing says so."""

    failure: "Failure | None"
    retries: int
    full_ratio: float | None  # peak of reserved over the device's memory, where that is known

    @property
    def short(self) -> bool:
        """Whether there is any sign of it."""
        full = self.full_ratio is not None and self.full_ratio >= NEARLY_FULL_RATIO
        return self.failure is not None or self.retries > 0 or full

    @property
    def sentence(self) -> str:
        """The strongest sign."""
        if self.failure is not None:
            return "a request failed"
        if self.retries:
            return f"the allocator gave memory back and asked again {self.retries} times"
        return f"{100 * (self.full_ratio or 0):.0f} % of the device is reserved"


def pressure(trace: Trace, history: "History") -> Pressure:
    """The signs of one device."""
    from pinchpoint.analysis.memory.failures import failures

    failed = failures(history)
    capacity = next((d.memory_bytes for d in trace.devices if d.number == history.device), None)
    reserved = history.replay.peak("reserved").bytes
    return Pressure(
        failure=failed[-1] if failed else None,
        retries=sum(r.served for r in retries(history)),
        full_ratio=reserved / capacity if capacity else None,
    )


# ------------------------------------------------------------------------------------------------
# What would have let a failed request through, gentlest change first.


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


def needed_bytes(failure: "Failure") -> int:
    """What the failing step needs at least: the forecast, or what was live and what was wanted."""
    least = failure.live_bytes + failure.wanted_bytes
    return max(least, failure.forecast.needed_bytes if failure.forecast else 0)


def remedies(history: "History", failure: "Failure") -> tuple[Remedy, ...]:
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
    from pinchpoint.analysis.memory.what_if import what_ifs

    known = {a.id: a for a in what_ifs(history)}
    for id_ in GENTLE_FIRST:
        if id_ in known:
            out.append(_scaled(history, failure, known[id_], needed, limit))
    return tuple(out)


def _scaled(
    history: "History", failure: "Failure", answer: "WhatIf", needed: int, limit: int
) -> Remedy:
    """A saving that grows with the batch grows as the failing step does."""
    saved = answer.saved_bytes
    if answer.id == "checkpointing" and failure.forecast is not None:
        live = failure.live_bytes
        saved = int(saved * max(needed / max(live, 1), 1.0))
    after = needed - saved
    return Remedy(answer.label, after, after <= limit, answer.assumption)


def largest_batch_factor(history: "History", failure: "Failure") -> float | None:
    """The largest batch that would have fit, as a multiple of the failing one."""
    forecast = failure.forecast
    if forecast is None:
        return None
    growing = forecast.needed_bytes - _fixed(history, failure)
    room = failure.limit_bytes - _fixed(history, failure)
    return max(0.0, min(room / growing, 1.0)) if growing > 0 else None


def batch_after_failure(
    history: "History", failure: "Failure", capacity_bytes: int
) -> "Batch | None":
    """The failing batch on a device of another size; None if what it needs is not known."""
    forecast = failure.forecast
    fixed = _fixed(history, failure)
    if forecast is None or forecast.needed_bytes <= fixed:
        return None
    growing = forecast.needed_bytes - fixed
    from pinchpoint.analysis.memory.what_if import ALLOCATOR_MARGIN, Batch

    room = int(capacity_bytes * ALLOCATOR_MARGIN) - fixed
    return Batch(
        capacity_bytes,
        max(room / growing, 0.0),
        fixed,
        growing,
        "what the failing step adds grows with its batch; "
        f"{100 * ALLOCATOR_MARGIN:.0f} % of the device can be used",
        of_failing=True,
    )


def _fixed(history: "History", failure: "Failure") -> int:
    """Requested before the failing pass began."""
    before = [r.first for r in history.phases.runs if r.first <= failure.event]
    at = before[-1] if before else 0
    return int(history.replay.requested[max(at - 1, 0)])


# ------------------------------------------------------------------------------------------------
# Bytes and places as people read them.


# Memory is sold and allocated in powers of two.
_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def size(count: float) -> str:
    """Three significant digits: ``3.20 GiB``, ``512 B``."""
    for unit, scale in _UNITS:
        if abs(count) >= scale:
            value = count / scale
            digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{count:.0f} B"


def place(frame: Frame | None, operation: str | None = None) -> str:
    """``model.py:81 in forward (nn.linear)``."""
    if frame is None:
        return operation or "no Python line"
    name = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    where = f"{name}:{frame.line} in {frame.function}" if frame.line else frame.function
    return f"{where} ({operation})" if operation and operation != frame.function else where


# ------------------------------------------------------------------------------------------------
# A shortage of memory in words: what happened, and what would have been enough.


def describe(history: "History", signs: Pressure) -> tuple[str, str]:
    """The shortage in a phrase, and its consequence with the smallest change that would do."""
    failure = signs.failure
    if failure is None:
        return signs.sentence.capitalize(), signs.sentence
    head = f"Out of memory (a request of {size(failure.wanted_bytes)} failed)"
    return head, _consequence(history, failure)


def _consequence(history: "History", failure: "Failure") -> str:
    needed, limit = needed_bytes(failure), failure.limit_bytes
    words = [f"the step needs {size(needed)}, {size(limit)} could be reserved"]
    if failure.capped:
        words[0] += (
            " (the process limits itself, as by set_per_process_memory_fraction; the device had"
            " room: raise the limit first)"
        )
    if failure.forecast is not None and failure.forecast.scale > 1:
        words.append(
            f"it allocates {failure.forecast.scale:.2f} × what the last step that fitted did"
            f" (peak {size(failure.forecast.earlier_peak_bytes)})"
        )
    factor = largest_batch_factor(history, failure)
    if factor is not None and factor < 1:
        words.append(f"about {factor:.2f} × its batch would fit")
    first = next((r for r in remedies(history, failure) if r.fits), None)
    if first is not None:
        words.append(f"smallest change that fits: {first.label} ({size(first.needed_bytes)})")
    return "; ".join(words)
