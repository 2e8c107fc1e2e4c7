"""Two memory reports side by side, with what the first had predicted for the second."""

from pinchpoint.report.documents.memory import (
    Change,
    DeviceMemory,
    MemoryComparison,
    MemoryReport,
    Moment,
)
from pinchpoint.report.quantity import size
from pinchpoint.report.words.memory import holder_words

MOST_HOLDERS = 12  # changes that are read one by one


def compare_memory(before: MemoryReport, after: MemoryReport) -> MemoryComparison:
    """What changed between the devices that hold most; the largest changes first."""
    one, two = before.devices[0], after.devices[0]
    return MemoryComparison(
        before=before.source,
        after=after.source,
        peaks=tuple(
            Change(what=name, before=one.peaks[name].bytes, after=two.peaks[name].bytes)
            for name in one.peaks
            if name in two.peaks
        ),
        categories=_changes(_by_category(one), _by_category(two)),
        holders=_changes(_by_holder(one), _by_holder(two))[:MOST_HOLDERS],
        predictions=tuple(_predictions(one, two)),
        gone=_only(before, after),
        new=_only(after, before),
    )


def _peak(device: DeviceMemory) -> Moment:
    return next(m for m in device.moments if m.what == "peak")


def _by_category(device: DeviceMemory) -> dict[str, int]:
    return {c.category: c.bytes for c in _peak(device).categories}


def _by_holder(device: DeviceMemory) -> dict[str, int]:
    out: dict[str, int] = {}
    for held in _peak(device).holders:
        name = f"{held.category}: {holder_words(held).split(' × ')[0]}"
        out[name] = out.get(name, 0) + held.bytes
    return out


def _changes(before: dict[str, int], after: dict[str, int]) -> tuple[Change, ...]:
    names = dict.fromkeys((*before, *after))
    changes = [Change(what=n, before=before.get(n, 0), after=after.get(n, 0)) for n in names]
    moved = [c for c in changes if c.before != c.after]
    return tuple(sorted(moved, key=lambda c: -abs(c.after - c.before)))


def _predictions(one: DeviceMemory, two: DeviceMemory) -> list[str]:
    """If the second recording uses checkpointing and the first does not: was it as predicted?"""
    has = [{f.id for f in d.facts} for d in (one, two)]
    if one.layers is None or "checkpointing" in has[0] or "checkpointing" not in has[1]:
        return []
    saved = one.peaks["requested"].bytes - two.peaks["requested"].bytes
    predicted = one.layers.checkpointing_saves
    if not predicted:
        return []
    off = (saved - predicted) / predicted
    return [
        f"Checkpointing was predicted to save {size(predicted)} of the requested peak; it saved "
        f"{size(saved)} ({off:+.1%})."
    ]


def _only(first: MemoryReport, second: MemoryReport) -> tuple[str, ...]:
    known = {f.id for f in second.findings}
    return tuple(f"{f.id}: {f.summary}" for f in first.findings if f.id not in known)
