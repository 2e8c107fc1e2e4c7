"""The full report as one HTML file: what ``html`` renders, and a timeline, flame graphs and more.

Nothing is fetched. The page states by hash which scripts may run: those of this package. Without
scripts the tables, the graphs and a still timeline are there all the same.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from markupsafe import Markup

from pinchpoint.analysis.tables.call_tree import call_tree
from pinchpoint.report.documents.clean import clean, cleaned
from pinchpoint.report.documents.memory import MemoryReport
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html import fragment, source, template
from pinchpoint.report.html_page.memory import memory_view
from pinchpoint.report.html_page.static import shown
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.report.plain import plain
from pinchpoint.report.svg.flame import flame, of_calls
from pinchpoint.report.svg.timeline import timeline_svg
from pinchpoint.report.timeline.fold import MOST_SLICES, folded
from pinchpoint.report.timeline.full_steps import full_steps
from pinchpoint.report.timeline.lanes import Timeline, timeline
from pinchpoint.report.timeline.marks import marks
from pinchpoint.report.timeline.pack import Shown, pack
from pinchpoint.report.words.ranks import gain as gain_of_job
from pinchpoint.trace import Trace

MOST_FACTS = 200  # of the environment
MOST_BYTES = 8_000_000  # of the page: what a mail takes, and a browser opens at once
_SPARE_RATIO = 0.95  # of what a smaller timeline may take, because packing is not proportional
_TRIES = 4  # of making the timeline small enough

_SCRIPTS = (  # each line runs by itself, so that one that fails leaves the others
    ("tables.js",),
    ("flame.js",),
    (
        "timeline_data.js",
        "timeline_marks.js",
        "timeline_layout.js",
        "timeline_view.js",
        "timeline_arrows.js",
        "timeline_panel.js",
        "timeline_search.js",
        "timeline_address.js",
        "timeline_hands.js",
        "timeline.js",
    ),
)


def render(
    trace: Trace,
    report: Report,
    snapshot: Trace | None = None,
    job: RanksReport | None = None,
    found: MemoryReport | None = None,
    home: str | None = None,
) -> str:
    """The whole page as text.

    ``snapshot`` is one of memory that was taken beside the trace, ``job`` what all ranks of the
    run say together, ``found`` the answer about memory where it is not the usual one, ``home`` an
    address to go back to.
    """
    safe = clean(report)
    memory = memory_view(trace, report, snapshot, found)
    flames = _flames(trace)
    environment = list(_environment(trace))[:MOST_FACTS]
    facts = shown(safe)
    if memory is not None and memory.alone:
        facts["about_memory"] = memory.verdict
    if job is not None and job.findings:
        of_all = cleaned(job)
        first = of_all.findings[0]
        facts["of_job"] = (gain_of_job(of_all, first), first.summary, first.fix)
        facts["first_label"] = "Of this rank alone"
    whole = timeline(trace)

    def page(of_timeline: Mapping[str, Any]) -> str:
        return template("page.html").render(
            facts,
            interactive=True,
            home=home,
            flames=flames,
            memory=memory,
            ranks=None
            if job is None
            else fragment(ranks_page(job, verbose=True, full=True).blocks),
            environment=environment,
            contents=_contents(
                safe,
                facts,
                whole is not None,
                flames,
                bool(environment),
                memory is not None,
                job is not None,
            ),
            scripts=[Markup(script) for script in _scripts()],
            script_sources=Markup(" ".join(_hashes())),
            **of_timeline,
        )

    if whole is None:
        return page({"packed": None, "still": None, "left_out": (), "marked": {}})
    return _small_enough(trace, report, whole, page)


def _small_enough(
    trace: Trace, report: Report, whole: Timeline, page: Callable[[Mapping[str, Any]], str]
) -> str:
    """The page with as much of the timeline as it has room for."""
    steps, most = full_steps(trace, report), MOST_SLICES
    text, still = "", timeline_svg(whole)
    for _ in range(_TRIES):
        shown = folded(trace, whole, steps, most)
        drawn, full = shown.drawn, shown.in_full
        marked = marks(trace, drawn, report)
        packed = pack(
            trace, drawn, report, marked, Shown(steps if full is None else full, full is None)
        )
        text = page(
            {
                "packed": Markup(packed),
                "still": still,
                "left_out": drawn.left_out,
                "marked": marked,
            }
        )
        size = len(text.encode())
        if size <= MOST_BYTES:
            break
        room = max(MOST_BYTES - (size - len(packed)), 0)
        most = max(int(len(drawn.slices) * _SPARE_RATIO * room / len(packed)), 1)
    return text


@cache
def _scripts() -> tuple[str, ...]:
    return tuple("".join(map(source, names)) for names in _SCRIPTS)


@cache
def _hashes() -> tuple[str, ...]:
    digests = (hashlib.sha256(script.encode()).digest() for script in _scripts())
    return tuple(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _flames(trace: Trace) -> list[tuple[str, str, str, Markup]]:
    tree = call_tree(trace)
    if not len(tree):
        return []
    kinds = (
        (
            "flame-host",
            "Host time by stack",
            tree.host_ns,
            "Whole recording, all threads. Time that the host spent, waiting included.",
        ),
        (
            "flame-device",
            "Device time by stack",
            tree.device_ns,
            "Whole recording. Device time below what launched it; operations at the same time "
            "count each.",
        ),
    )
    drawn = (
        (id_, title, note, flame(of_calls(trace, tree, ns), title, "ns", "calls"))
        for id_, title, ns, note in kinds
    )
    return [(id_, title, note, svg) for id_, title, note, svg in drawn if svg is not None]


def _contents(
    safe: Report,
    facts: Mapping[str, Any],
    has_timeline: bool,
    flames: list[tuple[str, str, str, Markup]],
    has_environment: bool,
    has_memory: bool,
    has_ranks: bool,
) -> list[tuple[str, str]]:
    """Anchor and label of each view that the page has."""
    candidates = [
        ("overview", "Overview", True),
        ("breakdown", "Breakdown", bool(facts["parts"])),
        ("findings", "Findings", bool(facts["findings"])),
        ("ranks", "Ranks", has_ranks),
        ("timeline", "Timeline", has_timeline),
        *((id_, title, True) for id_, title, _, _ in flames),
        ("memory", "Memory", has_memory),
        ("roofline", "Roofline", facts["roofline"] is not None),
        ("causal", "What each piece is worth", bool(facts["ladder"] or facts["path"])),
        ("queue", "Queue", facts["queue"] is not None),
        *((f"table-{table.id}", table.title, True) for table in safe.tables.values()),
        ("environment", "Environment", has_environment),
        ("health", "How far to trust this", True),
    ]
    return [(id_, label) for id_, label, there in candidates if there]


def _environment(trace: Trace) -> Iterator[tuple[str, str]]:
    """Facts of the run folder, nested names joined with dots."""
    if trace.run is None:
        return
    if trace.run.command:
        yield "command", plain(" ".join(trace.run.command), 500)
    yield from _flat("", trace.run.documents)


def _flat(prefix: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in facts.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            yield from _flat(name, value)
        elif value is not None:
            yield plain(name, 100), plain(str(value), 300)
