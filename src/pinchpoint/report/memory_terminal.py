"""The memory report for a terminal or a log: 80 columns, readable without colour."""

from collections.abc import Iterator
from textwrap import wrap

from pinchpoint.report.memory_document import (
    DeviceMemory,
    MemoryComparison,
    MemoryFinding,
    MemoryReport,
    Moment,
)
from pinchpoint.report.memory_words import (
    FAILURE_CAUSES,
    device_name,
    holder_words,
    largest_batch,
    layers_sentence,
    moment_title,
    peak_sentence,
)
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.quantity import percent, quantity, size
from pinchpoint.report.terminal import Look
from pinchpoint.report.to_copy import GLUE, spaced, unbroken, whole

_BAR_WIDTH = 20
_LABEL_WIDTH = 36
_HOLDERS = 8
_WHAT_IFS = 8
_LIMIT = 600  # characters of one sentence; names in a file can have megabytes
_PLAIN = Look()

_CODE = " " * 12  # what a line of code begins with

Line = tuple[str, str]  # what the first line begins with, text


def render_memory(report: MemoryReport, look: Look = _PLAIN) -> str:
    """The report as text that ends with a newline."""
    lines: list[Line] = []
    for device in report.devices:
        lines += _device(report, device)
    lines.append(("", ""))
    for position, finding in enumerate(report.findings, 1):
        lines += _finding(finding, position, look.verbose)
    lines += _closing(report, look.verbose)
    for device in report.devices:
        lines.append(("", ""))
        lines += _details(device, look.verbose)
    return _drawn(lines, look)


def render_comparison(found: MemoryComparison, look: Look = _PLAIN) -> str:
    """Two recordings side by side."""
    lines: list[Line] = [("", f"{found.before.path} → {found.after.path}"), ("", "")]
    for title, changes in (
        ("Peaks", found.peaks),
        ("At the peak, by category", found.categories),
        ("At the peak, by place", found.holders),
    ):
        lines.append(("", f"{title:{_LABEL_WIDTH}}{'before':>12}{'after':>12}{'change':>14}"))
        for c in changes:
            change = c.after - c.before
            sign = "+" if change > 0 else "−" if change < 0 else ""
            ratio = f" {sign}{percent(abs(change) / c.before)} %" if c.before else ""
            name = c.what if len(c.what) < _LABEL_WIDTH else c.what[: _LABEL_WIDTH - 2] + "…"
            lines.append(
                (
                    "  ",
                    f"{name:{_LABEL_WIDTH - 2}}{size(c.before):>12}{size(c.after):>12}"
                    f"{sign + size(abs(change)):>12}{ratio}",
                )
            )
    lines += [("", sentence) for sentence in found.predictions]
    lines += [("  gone: ", text) for text in found.gone]
    lines += [("  new:  ", text) for text in found.new]
    return _drawn(lines, look)


def _device(report: MemoryReport, device: DeviceMemory) -> Iterator[Line]:
    """The answer: the peaks, who holds them, and the layers behind that."""
    steps = f"{len(device.growth.floor)} steps ({device.growth.steps})"
    name = report.source.path.rsplit("/", 1)[-1]
    yield "", f"{name} · {device_name(device)} · {device.events:,} events · {steps}"
    yield "", _peaks(device)
    for doubt in device.doubts:
        yield "  ! ", doubt
    for fact in device.facts:
        yield "  - ", fact.text
    yield "", ""
    yield from _moment(device.moments[0])
    if device.moments[0].requested:
        yield "", peak_sentence(device.moments[0])
    if sentence := layers_sentence(device):
        yield "", sentence


def _details(device: DeviceMemory, verbose: bool) -> Iterator[Line]:
    yield from _holders(device.moments[0], verbose)
    yield from _growth(device)
    yield from _fragmentation(device)
    yield from _failures(device)
    yield from _what_if(device, verbose)


def _peaks(device: DeviceMemory) -> str:
    parts = []
    for name, peak in device.peaks.items():
        most = f" to {size(peak.at_most)}" if peak.at_most > peak.bytes else ""
        parts.append(f"{name} {size(peak.bytes)}{most}")
    at_least = "" if device.beginning == "whole" else " of the recorded window"
    return f"Peaks{at_least}: {', '.join(parts)}"


def _moment(moment: Moment) -> Iterator[Line]:
    title = moment_title(moment)
    yield "", f"{title:{_LABEL_WIDTH + 2}}{'bytes':>12}{'%':>7}"
    total = max(moment.requested, 1)
    for item in sorted(moment.categories, key=lambda c: -c.bytes):
        if not item.bytes:
            continue
        share = min(item.bytes / total, 1.0)
        sure = "?" if item.confidence == "low" else " "
        bar = "█" * max(round(_BAR_WIDTH * share), 0)
        yield (
            "  ",
            f"{item.category + sure:{_LABEL_WIDTH}}{size(item.bytes):>12}{percent(share):>7}"
            f"  {bar}",
        )


def _holders(moment: Moment, verbose: bool) -> Iterator[Line]:
    shown = moment.holders if verbose else moment.holders[:_HOLDERS]
    if not shown:
        return
    yield "", f"{'Largest holders':56}{'bytes':>12}"
    for held in shown:
        text = f"{held.category}: {holder_words(held)}"
        cut = text if len(text) <= 53 else text[:52] + "…"
        yield "  ", f"{cut:54}{size(held.bytes):>12}"
    left = len(moment.holders) - len(shown) + moment.holders_left_out
    if left:
        yield "  ", f"and {left} more"


def _growth(device: DeviceMemory) -> Iterator[Line]:
    grown = device.growth
    if grown.why_not:
        yield "Growth: ", f"not judged ({grown.why_not})"
    elif grown.bytes_per_step > 0:
        yield "Growth: ", f"the least in use rises by {size(grown.bytes_per_step)} a step"
    else:
        yield "Growth: ", f"none over {len(grown.floor)} steps"


def _fragmentation(device: DeviceMemory) -> Iterator[Line]:
    found = device.fragmentation
    if found is None:
        return
    yield (
        "Reserved: ",
        f"{size(found.reserved)} at the peak of use: {size(found.active)} in use, "
        f"{size(found.whole_free)} in free segments (given back when needed), "
        f"{size(found.split_free)} free inside {found.partly_used_segments} used segments "
        f"(cannot be given back)",
    )


def _failures(device: DeviceMemory) -> Iterator[Line]:
    for failed in device.failures[-1:]:
        yield (
            "Failed: ",
            f"a request of {size(failed.wanted)} with {size(failed.live)} live of "
            f"{size(failed.reserved)} reserved, largest free piece {size(failed.largest_hole)}; "
            f"the step needs {size(failed.needed)}, {size(failed.limit)} could be reserved. "
            f"{FAILURE_CAUSES[failed.fragmented]}.",
        )
        if failed.batch_factor_that_fits is not None:
            yield "  - ", f"about {failed.batch_factor_that_fits:.2f} × its batch would fit"
        for remedy in failed.remedies:
            mark = "fits" if remedy.fits else "does not fit"
            yield "  - ", f"{remedy.label}: {size(remedy.needed)}, {mark}"


def _what_if(device: DeviceMemory, verbose: bool) -> Iterator[Line]:
    shown = device.what_if if verbose else device.what_if[:_WHAT_IFS]
    if shown:
        yield "", ""
        yield "", f"{'What if':54}{'peak':>12}{'saves':>12}"
    for answer in shown:
        star = "" if answer.lossless else " *"
        yield "  ", f"{answer.label + star:52}{size(answer.peak):>12}{size(answer.saves):>12}"
        if verbose:
            yield "      assuming ", answer.assumption
    if any(not answer.lossless for answer in shown):
        yield "  ", "* changes the numbers that training computes"
    if device.batch is not None:
        yield "  ", largest_batch(device.batch)


def _finding(finding: MemoryFinding, position: int, verbose: bool) -> Iterator[Line]:
    stake = "" if finding.saving_bytes is None else f"  {size(finding.saving_bytes)}"
    weak = " (negligible)" if finding.severity == "negligible" else ""
    yield f"{position:<2} ", f"{finding.id}{stake}{weak}"
    yield "   ", finding.summary
    if verbose:
        for fact in finding.evidence:
            yield "   shows    ", f"{fact.what}: {quantity(fact.value, fact.unit)}"
    if finding.consequence and finding.consequence not in finding.summary:
        yield "   also     ", finding.consequence
    if finding.fix:
        yield "   fix      ", finding.fix
    for code in (finding.hint or "").splitlines():
        yield _CODE, code
    if finding.confirm:
        yield "   confirm  ", finding.confirm


def _closing(report: MemoryReport, verbose: bool) -> Iterator[Line]:
    if not [f for f in report.findings if f.severity != "negligible"]:
        yield "", "Nothing worth fixing here."
    if report.not_checked:
        if verbose:
            for item in report.not_checked:
                yield "Not checked: ", f"{item.id}: {item.why}; record: {item.record}"
        else:
            yield "Not checked: ", ", ".join(item.id for item in report.not_checked)
    for item in report.crashed:
        yield "Crashed: ", f"{item.id}: {item.why}"


def _drawn(lines: list[Line], look: Look) -> str:
    out = []
    for lead, text in lines:
        safe = plain(text, _LIMIT)
        if "  " in safe.strip():  # a row of a table is not wrapped
            out.append((lead + safe).rstrip())
            continue
        room = max(look.width - len(lead), 20)
        said = whole(safe) if lead == _CODE else unbroken(safe)
        to_copy = GLUE in said  # longer than the line at need
        parts = wrap(said, room, break_on_hyphens=False, break_long_words=not to_copy) or [""]
        out += [
            ((lead if i == 0 else " " * len(lead)) + part).rstrip() for i, part in enumerate(parts)
        ]
    text = spaced("\n".join(out) + "\n")
    return text if look.unicode else ascii_only(text)
