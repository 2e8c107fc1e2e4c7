"""The pages of memory: who holds the peak, what grows, what fails, what would save."""

from collections.abc import Callable, Collection, Iterator, Sequence

from pinchpoint.frozen import dataclass
from pinchpoint.report.blocks import (
    Bar,
    Block,
    Breakdown,
    Details,
    Fact,
    Figure,
    FindingCard,
    Gap,
    Heading,
    Items,
    Page,
    Records,
    Table,
    Text,
    Title,
)
from pinchpoint.report.documents.memory import (
    Change,
    DeviceMemory,
    FailureItem,
    FragmentationItem,
    MemoryComparison,
    MemoryFinding,
    MemoryReport,
    Moment,
)
from pinchpoint.report.pages.report import evidence, fix_facts
from pinchpoint.report.quantity import relative, size
from pinchpoint.report.svg.memory import ORDER, css_class
from pinchpoint.report.words.memory import (
    CATEGORY_WORDS,
    FAILURE_CAUSES,
    device_name,
    holder_words,
    holders_by_words,
    largest_batch,
    layers_sentence,
    moment_title,
    peak_sentence,
    where,
)
from pinchpoint.report.words.report import in_memory

_HOLDERS = 8  # beside the curve on one screen
_WHAT_IFS = 8  # beside the holders on one screen
_COLOURS = {word: css_class(category) for category, word in CATEGORY_WORDS.items()}
_COLUMNS = (
    "One column is one stretch of events, not of time. The strip below: setup grey, forward red, "
    "backward green, optimizer orange."
)
_CHANGES_NUMBERS = "* changes the numbers that training computes"


@dataclass(frozen=True)
class Pictures:
    """The drawings of one device; None where the recording has nothing to draw."""

    curves: Callable[[], str] | None
    flame: Callable[[], str] | None
    heap: Callable[[], str] | None


def memory_page(
    report: MemoryReport, *, verbose: bool = False, pictures: Sequence[Pictures] = ()
) -> Page:
    """The answer, then what it rests on; with ``pictures`` all there is to say."""
    alone = len(report.devices) == 1
    blocks = memory_blocks(report, verbose=verbose, pictures=pictures, named=not alone)
    about = _about(report.devices[0]) if alone else ()
    return Page((Title(report.source.path.rsplit("/", 1)[-1], about), *blocks))


def memory_blocks(
    report: MemoryReport,
    *,
    verbose: bool = False,
    pictures: Sequence[Pictures] = (),
    said: Collection[str] = (),
    verdict: bool = True,
    named: bool = True,
) -> Iterator[Block]:
    """The same without a title; findings in ``said``, the verdict and what the device is called may
    stand elsewhere."""
    if verdict:
        yield Text(report.verdict, "strong", answers="how full, why")
    for i, device in enumerate(report.devices):
        if named:
            yield Text(" · ".join(_about(device)))
        yield from _device(device, pictures[i] if pictures else None)
    yield Gap()
    found = [finding for finding in report.findings if finding.id not in said]
    for number, finding in enumerate(found, 1):
        yield _finding(finding, number, verbose)
    yield from _closing(report, verbose)
    for i, device in enumerate(report.devices):
        yield Gap()
        yield from _details(device, verbose, pictures[i] if pictures else None)


def _device(device: DeviceMemory, drawn: Pictures | None) -> Iterator[Block]:
    """The peaks, who holds them, and the layers behind that."""
    yield Text(_peaks(device))
    if device.doubts:
        yield Items(device.doubts, "warning")
    if device.facts:
        yield Items(tuple(fact.text for fact in device.facts))
    yield Gap()
    if drawn is not None and drawn.curves is not None:
        legend = (*((css_class(c), CATEGORY_WORDS[c]) for c in ORDER), ("m-dashed", "reserved"))
        yield Figure("Over time, by category", svg=drawn.curves, note=_COLUMNS, legend=legend)
    yield from _moment(device.moments[0])
    if sentence := layers_sentence(device):
        yield Text(sentence)


def _about(device: DeviceMemory) -> tuple[str, ...]:
    steps = f"{len(device.growth.floor)} steps ({device.growth.steps})"
    return device_name(device), f"{device.events:,} events", steps


def _peaks(device: DeviceMemory) -> str:
    parts = []
    for name, peak in device.peaks.items():
        most = f" to {size(peak.at_most)}" if peak.at_most > peak.bytes else ""
        parts.append(f"{name} {size(peak.bytes)}{most}")
    at_least = "" if device.beginning == "whole" else " of the recorded window"
    return f"Peaks{at_least}: {', '.join(parts)}"


def _moment(moment: Moment) -> Iterator[Block]:
    total = max(moment.requested, 1)
    held = sorted((c for c in moment.categories if c.bytes), key=lambda c: -c.bytes)
    if held:
        bars = tuple(
            Bar(
                c.category + "?" * (c.confidence == "low"),
                size(c.bytes),
                min(c.bytes / total, 1.0),
                _COLOURS.get(c.category, ""),
            )
            for c in held
        )
        yield Breakdown(moment_title(moment), "bytes", bars)
    if moment.requested:
        yield Text(peak_sentence(moment))


def _finding(finding: MemoryFinding, number: int, verbose: bool) -> FindingCard:
    stake = in_memory(finding)
    matters = f"({finding.severity})" if verbose or finding.severity == "negligible" else ""
    consequence = finding.consequence or ""
    place = where(finding.location, None) if verbose and finding.location else ""
    said = (
        Fact("at", place, "place"),
        *(evidence(finding.evidence) if verbose else ()),
        Fact("also", "" if consequence in (stake, finding.summary) else consequence),
        *fix_facts(finding),
    )
    facts = tuple(fact for fact in said if fact.text)
    code = tuple((finding.hint or "").splitlines())
    return FindingCard(
        number, finding.id, f"{stake} {matters}".strip(), finding.summary, facts, code
    )


def _closing(report: MemoryReport, verbose: bool) -> Iterator[Block]:
    if not [f for f in report.findings if f.severity != "negligible"]:
        yield Text("Nothing worth fixing here.")
    if report.not_checked and verbose:
        rows = tuple((item.id, item.why, item.record) for item in report.not_checked)
        listed = Records("Not checked", ("cause", "why", "record"), rows)
        yield Details("What was not checked, and what to record", (listed,))
    elif report.not_checked:
        yield Text(", ".join(item.id for item in report.not_checked), label="Not checked")
    for dropped in report.not_shown if verbose else ():
        yield Text(f"{dropped.id}: {dropped.why}", label="Found, not shown")
    for item in report.crashed:
        yield Text(f"{item.id}: {item.why}", "bad", "Crashed")


def _details(device: DeviceMemory, verbose: bool, drawn: Pictures | None) -> Iterator[Block]:
    yield from _holders(device.moments[0], None if verbose else _HOLDERS)
    yield _growth(device)
    if device.fragmentation is not None:
        yield _fragmentation(device.fragmentation)
    for failed in device.failures if drawn is not None else device.failures[-1:]:
        yield from _failure(failed, verbose)
    yield from _what_if(device, verbose)
    if drawn is not None:
        yield from _in_full(device, drawn)


def _in_full(device: DeviceMemory, drawn: Pictures) -> Iterator[Block]:
    """The other moments, and the pictures of the peak."""
    for moment in device.moments[1:]:
        yield Details(moment_title(moment), (*_moment(moment), *_holders(moment, None)))
    if drawn.flame is not None:
        yield Gap()
        yield Figure("Live bytes at the peak by stack", svg=drawn.flame)
    if drawn.heap is not None:
        yield Gap()
        yield Figure("The heap at the peak", svg=drawn.heap)
    if device.fragmentation is not None:
        yield _pieces(device.fragmentation)


def _holders(moment: Moment, most: int | None) -> Iterator[Block]:
    if moment.holders:
        yield Table(
            heads=("Largest holders", "bytes"),
            rows=tuple(
                (f"{h.category}: {holder_words(h)}", size(h.bytes))
                for h in holders_by_words(moment.holders)
            ),
            most=most,
            left_out=moment.holders_left_out,
            more="holders",
        )


def _growth(device: DeviceMemory) -> Text:
    grown = device.growth
    if grown.why_not:
        return Text(f"not judged ({grown.why_not})", label="Growth")
    if grown.bytes_per_step > 0:
        said = f"the least in use rises by {size(grown.bytes_per_step)} a step"
        return Text(said, label="Growth")
    return Text(f"none over {len(grown.floor)} steps", label="Growth")


def _fragmentation(found: FragmentationItem) -> Text:
    return Text(
        f"{size(found.reserved)} at the peak of use: {size(found.active)} in use, "
        f"{size(found.whole_free)} in free segments (given back when needed), "
        f"{size(found.split_free)} free inside {found.partly_used_segments} used segments "
        f"(cannot be given back)",
        label="Reserved",
    )


def _pieces(f: FragmentationItem) -> Table:
    inside = f"free inside {f.partly_used_segments} of {f.segments} segments, cannot be given back"
    return Table(
        ("at the peak of use", "bytes"),
        (
            ("reserved", size(f.reserved)),
            ("in use", size(f.active)),
            ("of that rounding and remainders", size(f.rounding)),
            ("in free segments, given back when needed", size(f.whole_free)),
            (inside, size(f.split_free)),
            ("largest free piece", size(f.largest_hole)),
            ("times the allocator gave memory back and asked again", str(f.retries)),
        ),
    )


def _failure(failed: FailureItem, verbose: bool) -> Iterator[Block]:
    yield Gap()
    yield Heading("The request that failed")
    yield Text(
        f"A request of {size(failed.wanted)} with {size(failed.live)} live of "
        f"{size(failed.reserved)} reserved, largest free piece {size(failed.largest_hole)}; "
        f"the step needs {size(failed.needed)}, {size(failed.limit)} could be reserved. "
        f"{FAILURE_CAUSES[failed.fragmented]}."
    )
    if failed.batch_factor_that_fits is not None:
        yield Text(f"About {failed.batch_factor_that_fits:.2f} × its batch would fit.")
    if failed.remedies:
        yield Table(
            heads=("change", "the step needs", ""),
            rows=tuple(
                (r.label, size(r.needed), "fits" if r.fits else "does not fit")
                for r in failed.remedies
            ),
            numeric=(False, True, False),
            below=_assuming([r.assumption for r in failed.remedies]) if verbose else (),
        )


def _what_if(device: DeviceMemory, verbose: bool) -> Iterator[Block]:
    answers = device.what_if if verbose else device.what_if[:_WHAT_IFS]
    if answers:
        yield Gap()
        yield Table(
            heads=("What if", "peak", "saves"),
            rows=tuple(
                (a.label + " *" * (not a.lossless), size(a.peak), size(a.saves)) for a in answers
            ),
            note="" if all(a.lossless for a in answers) else _CHANGES_NUMBERS,
            below=_assuming([a.assumption for a in answers]) if verbose else (),
        )
    if device.batch is not None:
        sentence = largest_batch(device.batch)
        assumed = f" Assumed: {device.batch.assumption}." if verbose else ""
        yield Text(f"{sentence[0].upper()}{sentence[1:]}.{assumed}")


def _assuming(assumptions: Sequence[str]) -> tuple[tuple[Fact, ...], ...]:
    return tuple((Fact("assuming", text),) for text in assumptions)


def comparison_page(found: MemoryComparison) -> Page:
    """Two recordings side by side."""
    compared = (
        ("Peaks", found.peaks),
        ("At the peak, by category", found.categories),
        ("At the peak, by place", found.holders),
    )
    return Page(
        (
            Title(f"{found.before.path} → {found.after.path}"),
            *(block for title, changes in compared for block in _compared(title, changes)),
            Gap(),
            *(Text(sentence) for sentence in found.predictions),
            *(Text(text, label="gone") for text in found.gone),
            *(Text(text, label="new") for text in found.new),
        )
    )


def _compared(title: str, changes: tuple[Change, ...]) -> tuple[Block, ...]:
    heads = (title, "before", "after", "change", "relative")
    return (Gap(), Table(heads, tuple(map(_change, changes)), whole=True))


def _change(c: Change) -> tuple[str, ...]:
    change = c.after - c.before
    sign = "+" if change > 0 else "−" if change < 0 else ""
    times = relative(c.before, c.after).replace("-", "−") if c.before else ""
    return (c.what, size(c.before), size(c.after), sign + size(abs(change)), times)
