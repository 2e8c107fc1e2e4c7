"""The memory view as HTML: a page of its own, or a part of the big report."""

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from pinchpoint.analysis.memory.heap import heap
from pinchpoint.analysis.memory.history import History, histories
from pinchpoint.analysis.memory.timeline import stack_tree, timeline
from pinchpoint.report.memory_document import (
    DeviceMemory,
    FailureItem,
    MemoryFinding,
    MemoryReport,
    Moment,
)
from pinchpoint.report.memory_svg import ORDER, css_class, curves, flame, heap_map
from pinchpoint.report.memory_words import (
    CATEGORY_WORDS,
    FAILURE_CAUSES,
    device_name,
    holder_words,
    largest_batch,
    layers_sentence,
    moment_title,
    peak_sentence,
    where,
)
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import percent, quantity, size
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from jinja2 import Template

_HOLDERS = 30


def render_page(trace: Trace, report: MemoryReport) -> str:
    """One self-contained page: no network, no script, every name escaped."""
    return _template("memory_page.html").render(
        title=plain(report.source.path.rsplit("/", 1)[-1]),
        fragment=render_fragment(trace, report),
        style=_source("memory.css") + _source("memory_shapes.css"),
    )


def render_fragment(
    trace: Trace, report: MemoryReport, said: Collection[str] = (), *, verdict: bool = True
) -> str:
    """The view without page and style, for the big report; its classes begin with ``m-``.

    Findings whose ids are in ``said``, and without ``verdict`` that sentence, stand elsewhere.
    """
    found = histories(trace)
    return _template("memory.html").render(
        verdict=plain(report.verdict, 600) if verdict else "",
        complete=report.source.complete,
        findings=[_finding(f) for f in report.findings if f.id not in said],
        not_checked=", ".join(item.id for item in report.not_checked),
        devices=[_device(h, d) for h, d in zip(found, report.devices, strict=True)],
        legend=[(css_class(c), CATEGORY_WORDS[c]) for c in ORDER],
    )


def _device(history: History, device: DeviceMemory) -> dict[str, object]:
    recorded = len(history.replay) > 0
    peak = history.peak_event
    return {
        "name": device_name(device),
        "events": f"{device.events:,}",
        "peaks": [(name, size(p.bytes)) for name, p in device.peaks.items()],
        "facts": [plain(f.text, 600) for f in device.facts],
        "doubts": [plain(d, 600) for d in device.doubts],
        "curves": curves(history, timeline(history)) if recorded else "",
        "heap": heap_map(history, heap(history, peak)) if history.has_layout else "",
        "flame": flame(stack_tree(history, peak)),
        "moments": [_moment(m) for m in device.moments],
        "layers": plain(layers_sentence(device), 600),
        "growth": _growth(device),
        "fragmentation": _fragmentation(device),
        "failures": [_failure(f) for f in device.failures],
        "what_if": [
            (a.label, size(a.peak), size(a.saves), a.assumption, a.lossless) for a in device.what_if
        ],
        "batch": _batch(device),
    }


def _moment(moment: Moment) -> dict[str, object]:
    total = max(moment.requested, 1)
    return {
        "title": moment_title(moment),
        "sentence": plain(peak_sentence(moment), 600) if moment.requested else "",
        "categories": [
            (c.category, size(c.bytes), percent(c.bytes / total), c.confidence or "")
            for c in sorted(moment.categories, key=lambda c: -c.bytes)
            if c.bytes
        ],
        "holders": [
            (h.category, plain(holder_words(h)), size(h.bytes), h.blocks, h.confidence)
            for h in moment.holders[:_HOLDERS]
        ],
        "left_out": max(len(moment.holders) - _HOLDERS, 0) + moment.holders_left_out,
    }


def _growth(device: DeviceMemory) -> str:
    grown = device.growth
    if grown.why_not:
        return f"Growth was not judged: {grown.why_not}."
    if grown.bytes_per_step <= 0:
        return f"No growth over {len(grown.floor)} steps ({grown.steps})."
    return f"The least in use rises by {size(grown.bytes_per_step)} a step ({grown.steps})."


def _fragmentation(device: DeviceMemory) -> list[tuple[str, str]]:
    f = device.fragmentation
    if f is None:
        return []
    return [
        ("reserved", size(f.reserved)),
        ("in use", size(f.active)),
        ("of that rounding and remainders", size(f.rounding)),
        ("in free segments, given back when needed", size(f.whole_free)),
        (
            f"free inside {f.partly_used_segments} of {f.segments} segments, cannot be given back",
            size(f.split_free),
        ),
        ("largest free piece", size(f.largest_hole)),
        ("times the allocator gave memory back and asked again", str(f.retries)),
    ]


def _failure(failed: FailureItem) -> dict[str, object]:
    return {
        "sentence": (
            f"A request of {size(failed.wanted)} failed with {size(failed.live)} live of "
            f"{size(failed.reserved)} reserved; the step needs {size(failed.needed)}, "
            f"{size(failed.limit)} could be reserved. {FAILURE_CAUSES[failed.fragmented]}."
        ),
        "remedies": [(r.label, size(r.needed), r.fits, r.assumption) for r in failed.remedies],
    }


def _batch(device: DeviceMemory) -> str:
    b = device.batch
    if b is None:
        return ""
    sentence = largest_batch(b)
    return f"{sentence[0].upper()}{sentence[1:]}. Assumed: {b.assumption}."


def _finding(found: MemoryFinding) -> dict[str, object]:
    return {
        "id": found.id,
        "severity": found.severity,
        "stake": "" if found.saving_bytes is None else size(found.saving_bytes),
        "summary": plain(found.summary, 600),
        "where": plain(where(found.location, None)) if found.location else "",
        "consequence": plain(found.consequence or "", 600),
        "fix": found.fix,
        "hint": found.hint or "",
        "confirm": found.confirm,
        "evidence": [(e.what, quantity(e.value, e.unit)) for e in found.evidence],
    }


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pinchpoint.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _source(name: str) -> str:
    from importlib.resources import files

    return files("pinchpoint.report").joinpath("templates", name).read_text("utf-8")
