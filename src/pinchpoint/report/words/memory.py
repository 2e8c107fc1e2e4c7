"""Sentences of the memory report."""

from collections.abc import Sequence

import msgspec

from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.diagnosis.finding import Location
from pinchpoint.report.documents.memory import (
    BatchItem,
    DeviceMemory,
    HolderItem,
    MemoryFinding,
    Moment,
)
from pinchpoint.report.quantity import size

EQUAL_LAYERS_RATIO = 1.05  # layers that differ by less are called equal
LARGE_FACTOR = 1000  # from here on three digits would need an exponent
CATEGORY_WORDS = {
    MemoryCategory.PARAMETER: "parameters",
    MemoryCategory.BUFFER: "buffers",
    MemoryCategory.GRADIENT: "gradients",
    MemoryCategory.OPTIMIZER_STATE: "optimizer state",
    MemoryCategory.ACTIVATION: "activations",
    MemoryCategory.INPUT: "inputs",
    MemoryCategory.TEMPORARY: "temporaries",
    MemoryCategory.WORKSPACE: "workspace",
    MemoryCategory.UNKNOWN: "unknown",
}
MOMENT_WORDS = {
    "peak": "At the peak",
    "end": "At the end",
    "oom": "When the request failed",
    "time": "At the time asked for",
}

_PHASE_WORDS = {
    "setup": "in setup",
    "outside": "between passes",
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer",
}

FAILURE_CAUSES = {
    True: "Enough was free, but in pieces that do not fit",
    False: "It needs more than there is",
}


def moment_title(moment: Moment) -> str:
    """``At the peak, in backward of step 0``."""
    step = "" if moment.step is None else f" of step {moment.step}"
    phase = "" if moment.phase == "unknown" else f", {_PHASE_WORDS.get(moment.phase, moment.phase)}"
    return f"{MOMENT_WORDS[moment.what]}{phase}{step}"


def device_name(device: DeviceMemory) -> str:
    """``device 0``, or the host."""
    return "host memory" if device.device is None else f"device {device.device}"


def where(location: Location | None, operation: str | None) -> str:
    """``model.py:81 in forward (nn.linear)``."""
    if location is None or location.file is None:
        return operation or "no Python line"
    name = location.file.replace("\\", "/").rsplit("/", 1)[-1]
    text = f"{name}:{location.line}" if location.line else name
    if location.function:
        text += f" in {location.function}"
    return f"{text} ({operation})" if operation and operation != location.function else text


def holder_words(held: HolderItem) -> str:
    """One holder: what, where, how many."""
    text = _what_holds(held)
    return f"{text} × {held.blocks}" if held.blocks > 1 else text


def _what_holds(held: HolderItem) -> str:
    if held.location is None and held.phase in ("backward", "forward", "optimizer"):
        return f"in {held.phase}" if held.operation is None else f"{held.operation} in {held.phase}"
    return where(held.location, held.operation)


def holders_by_words(held: tuple[HolderItem, ...]) -> tuple[HolderItem, ...]:
    """Those that read alike as one, largest first: stacks that differ inside of a library only, as
    of the two moments of an optimizer."""
    alike: dict[tuple[str, str], HolderItem] = {}
    for one in held:
        name = (one.category, _what_holds(one))
        first = alike.get(name)
        alike[name] = one if first is None else _together(first, one)
    return tuple(sorted(alike.values(), key=lambda one: -one.bytes))


def _together(one: HolderItem, two: HolderItem) -> HolderItem:
    return msgspec.structs.replace(
        one,
        bytes=one.bytes + two.bytes,
        blocks=one.blocks + two.blocks,
        largest_bytes=max(one.largest_bytes, two.largest_bytes),
    )


def peak_sentence(moment: Moment) -> str:
    """``At the peak, 61 % are activations; the largest are …``."""
    total = max(moment.requested, 1)
    largest = max(moment.categories, key=lambda c: c.bytes)
    first = MOMENT_WORDS[moment.what]
    if largest.category == CATEGORY_WORDS[MemoryCategory.UNKNOWN]:
        rest = [c for c in moment.categories if c is not largest]
        text = f"{first}, what holds {100 * largest.bytes / total:.0f} % is not known"
        known = max(rest, key=lambda c: c.bytes, default=None)
        return text + (f"; of the rest, most are {known.category}." if known else ".")
    text = f"{first}, {100 * largest.bytes / total:.0f} % are {largest.category}"
    mine = [h for h in moment.holders if h.category == largest.category]
    if mine and len(mine) > 1:
        text += f"; the largest are {size(mine[0].bytes)} at {holder_words(mine[0])}"
    return text + "."


def layers_sentence(device: DeviceMemory) -> str:
    """Which layers hold the activations, and what checkpointing them would save."""
    found = device.layers
    if found is None:
        return ""
    each = found.bytes_per_layer
    high = max(each)
    span = f"{size(high)} each"
    if high > EQUAL_LAYERS_RATIO * min(each):
        span = f"{size(min(each))} to {size(high)}, layer {each.index(high)} the most"
    text = (
        f"The {found.count} layers called at {where(found.location, None)} hold "
        f"{100 * found.share_of_activations:.0f} % of its activations, {span}; checkpointing them "
    )
    if found.checkpointing_saves <= 0:
        return text + "would not lower the peak, which lies elsewhere."
    return (
        text + f"would save {size(found.checkpointing_saves)}: peak "
        f"{size(found.checkpointed_peak)}."
    )


def verdict(device: DeviceMemory, found: Sequence[MemoryFinding]) -> str:
    """What the recording comes to, in a sentence or two."""
    material = [f for f in found if f.severity != "negligible"]
    if material:
        return f"{material[0].summary}."
    peak = next(m for m in device.moments if m.what == "peak")
    sentence = peak_sentence(peak) if peak.requested else "Nothing is live."
    unknown = next((c.bytes for c in peak.categories if c.category == "unknown"), 0)
    if 2 * unknown > peak.requested:
        return f"{sentence} No cause shows in what is known."
    return f"{sentence} Nothing worth fixing here."


def largest_batch(found: BatchItem) -> str:
    """``the largest batch that fits on 80 GiB is about 16 × the recorded one (…)``."""
    whose = "the one that failed" if found.of_failing else "the recorded one"
    factor = f"{found.factor:.3g}" if found.factor < LARGE_FACTOR else f"{found.factor:,.0f}"
    leaked = f"; {size(found.left_out)} that leak are left out" if found.left_out else ""
    return (
        f"the largest batch that fits on {size(found.capacity)} is about {factor} × {whose} "
        f"({size(found.fixed)} fixed, {size(found.per_batch)} that grows with it{leaked})"
    )
