"""The page of a job of many ranks: who is late, what waits, what would help."""

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from pinchpoint.report.blocks import (
    Bar,
    Block,
    Breakdown,
    ByClock,
    Command,
    Details,
    Fact,
    Figure,
    FindingCard,
    First,
    Gap,
    Heading,
    Items,
    Page,
    Table,
    Text,
    Title,
)
from pinchpoint.report.documents.clean import cleaned
from pinchpoint.report.documents.clock import job_as_recorded
from pinchpoint.report.documents.ranks import HeatMap, JobFindingItem, RanksReport
from pinchpoint.report.documents.report import ResultTable, finding_key
from pinchpoint.report.pages.ladder import ladder_block
from pinchpoint.report.pages.report import evidence, fix_facts
from pinchpoint.report.quantity import in_unit, quantity, time_unit
from pinchpoint.report.svg.ranks import heat_svg, timeline_svg
from pinchpoint.report.words import ranks as words
from pinchpoint.report.words.ladder import clock_words
from pinchpoint.report.words.report import place, place_unless_said

# ------------------------------------------------------------------------------------------------
# The map of late ranks as lines of text, readable at 10,000 ranks.


_ROWS, _COLUMNS = 16, 56  # characters of the heat map; both fit a terminal of 80 by 24
_SHADES = " ░▒▓█"


def heat_lines(heat: HeatMap) -> tuple[str, tuple[str, ...]] | None:
    """A title and one line a block of ranks; None where nobody was late."""
    if len(heat.rows) < 2 or not heat.columns:
        return None
    rows, columns = _blocks(len(heat.rows), _ROWS), _blocks(len(heat.columns), _COLUMNS)
    cells = [[_worst(heat, a, b) for b in columns] for a in rows]
    top = max((v for row in cells for v in row if v is not None), default=0)
    if top <= 0:
        return None
    first, last = heat.columns[0][0], heat.columns[-1][1]
    title = f"Late, and waited for: ranks × steps {first} to {last}, darkest {quantity(top, 'ns')}"
    lines = []
    for block, row in zip(rows, cells, strict=True):
        low, high = heat.rows[block.start][0], heat.rows[block.stop - 1][1]
        label = f"{low}" if low == high else f"{low} to {high}"
        lines.append(f"  {label:>14}  |" + "".join(_shade(v, top) for v in row) + "|")
    return title, tuple(lines)


def _blocks(count: int, most: int) -> list[slice]:
    each = -(-count // most)
    return [slice(a, min(a + each, count)) for a in range(0, count, each)]


def _worst(heat: HeatMap, rows: slice, columns: slice) -> int | None:
    known = [v for row in heat.excess_ns[rows] for v in row[columns] if v is not None]
    return max(known, default=None)


def _shade(value: int | None, top: int) -> str:
    if value is None:
        return "?"
    return _SHADES[round((len(_SHADES) - 1) * max(value, 0) / top)]


# ------------------------------------------------------------------------------------------------
# The page of a job of many ranks: who is late, what waits, what would help.


_MOST_LATE = 6  # of each kind on a screen; --verbose has all
_MOST_ROWS = 6  # of a table
_MOST_RANK_ROWS = 500  # of the table of all ranks; the JSON document has every one
_SHOWN = (  # column of the table, title
    ("kind", "collective"),
    ("bytes", "message"),
    ("per_step", "a step"),
    ("ranks", "ranks"),
    ("exposed_waiting", "waiting"),
    ("exposed_transfer", "transfer"),
    ("busbw", "bus rate"),
    ("of_link", "of link"),
)
_HEAT = (
    "Own time beyond that of the peers, as far as they waited for it. Rows are ranks (or the worst "
    "of a block of ranks), columns steps."
)
_LEGEND = (
    ("r-own", "own work"),
    ("r-hidden", "communication beside it"),
    ("r-waiting", "waiting for the last rank"),
    ("r-transfer", "transfer that nothing hides"),
)
_COLOURS = {"waiting-for-ranks": "waiting", "exposed-transfer": "transfer"}


def ranks_page(report: RanksReport, *, verbose: bool = False, full: bool = False) -> Page:
    """The page; ``full`` with pictures and every table."""
    safe = cleaned(report)
    first, *others = words.source_line(safe)
    return Page((Title(first, tuple(others)), *ranks_blocks(safe, verbose=verbose, full=full)))


def ranks_blocks(safe: RanksReport, *, verbose: bool, full: bool) -> Iterator[Block]:
    """The same without a title, of a report that was cleaned."""
    doubts = Items(words.doubts(safe), "warning")
    yield from _on_clocks(_head, safe, full)
    if doubts.texts and not full:
        yield doubts
    if ladder_block(safe) and not full:
        yield Gap()
    yield from _on_clocks(_first, safe, full)
    if doubts.texts and full:
        yield doubts
    yield Gap()
    recorded = job_as_recorded(safe)
    for number, finding in enumerate(safe.findings, 1):
        yield _finding(safe, finding, number, verbose, recorded if full else None)
    if sentence := words.closing(safe):
        yield Text(sentence)
    yield Gap()
    yield from _on_clocks(_breakdown, safe, full)
    if sentence := words.clock_sentence(safe):
        yield Text(sentence, "soft")
    yield from _late(safe, verbose)
    yield from _pictures(safe)
    yield from _on_clocks(_what_if, safe, full)
    if full:
        yield from (Details(t.title, (_table(t),)) for t in safe.tables.values())
    else:
        yield from _collectives(safe.tables.get("collectives"), verbose)
    if safe.buckets:
        yield Gap()
        yield from (Text(words.bucket_sentence(item)) for item in safe.buckets[:3])
    yield from _silent(safe, verbose)


def _on_clocks(
    part: Callable[[RanksReport], Iterator[Block]], report: RanksReport, full: bool
) -> Iterator[Block]:
    """A part of the page; of the full page on both clocks, where they differ."""
    shown = [*part(report)]
    recorded = [*part(job_as_recorded(report))] if full else shown
    for one, other in zip(shown, recorded, strict=True):
        yield one if one == other else ByClock(one, other)


def _head(report: RanksReport) -> Iterator[Block]:
    yield Text(report.verdict, "strong", answers="why")
    if sentence := words.step_sentence(report):
        yield Text(sentence, "step", figure=words.step_figure(report), answers="how slow")


def _first(report: RanksReport) -> Iterator[Block]:
    """The first finding and the ladder."""
    ladder = ladder_block(report)
    if report.findings:
        yield First(_finding(report, report.findings[0], 1, verbose=False), ladder)
    elif ladder:
        yield ladder


def _breakdown(report: RanksReport) -> Iterator[Block]:
    parts = words.top_parts(report)
    total = sum(ns for *_, ns in parts)
    if total:
        unit = time_unit(total)
        bars = tuple(
            Bar(
                label,
                in_unit(ns, unit),
                ns / total,
                "rest" if part is None else _COLOURS.get(part.part, part.group),
            )
            for label, part, ns in parts
        )
        clock = clock_words(report)
        yield Breakdown(f"Where a step goes, {clock}, mean over ranks", unit, bars)


def _finding(
    report: RanksReport,
    finding: JobFindingItem,
    number: int,
    verbose: bool,
    recorded: RanksReport | None = None,
) -> FindingCard:
    gain = words.gain(report, finding)
    other = "" if recorded is None else words.gain(recorded, recorded.findings[number - 1])
    where = place(finding.location) if verbose else place_unless_said(finding)
    said = (
        Fact("on", words.shown_on(finding) or ""),
        Fact("at", where or "", "place"),
        *(evidence(finding.evidence) if verbose else ()),
        *fix_facts(finding),
    )
    facts = tuple(fact for fact in said if fact.text)
    code = tuple((finding.hint or "").splitlines())
    other = "" if other == gain else other
    key = finding_key(report.findings[:number])
    return FindingCard(number, finding.id, gain, finding.summary, facts, code, other, key)


def _late(report: RanksReport, verbose: bool) -> Iterator[Block]:
    most = len(report.stragglers) if verbose else _MOST_LATE
    late = map(words.straggler_sentence, report.stragglers[:most])
    yield from _listed("Late ranks", late)
    if not report.stragglers:
        waited = map(words.incident_sentence, report.incidents[:_MOST_LATE])
        yield from _listed("Steps that waited for one rank", waited)
    suspects = map(words.mismatch_sentence, report.mismatches[:_MOST_LATE])
    yield from _listed("Collectives on which ranks do not agree: suspects for a hang", suspects)


def _listed(title: str, sentences: Iterator[str]) -> Iterator[Block]:
    if texts := tuple(sentences):
        yield Gap()
        yield Heading(title)
        yield Items(texts)


def _pictures(report: RanksReport) -> Iterator[Block]:
    heat, timeline = report.heat_map, report.timeline
    if heat is not None and (drawn := heat_lines(heat)):
        yield Gap()
        yield Figure(*drawn, svg=lambda: heat_svg(heat), note=_HEAT)
    if timeline is not None:
        title = f"Step {timeline.step} of some ranks on the common clock"
        yield Figure(title, svg=lambda: timeline_svg(timeline), legend=_LEGEND)


_SAID_BY = {"straggler-rank": "no-late-ranks"}  # findings, and what their fixes are called there


def _what_if(report: RanksReport) -> Iterator[Block]:
    sentence = words.scaling_sentence(report)
    if sentence is None:
        return
    yield Gap()
    yield Text(sentence)
    # A finding has said it above, with a range: a second figure for one change would only ask why.
    told = {_SAID_BY[f.id] for f in report.findings if f.predicted_step_ns and f.id in _SAID_BY}
    rows = tuple(
        (item.label, quantity(item.step_ns, "ns")) for item in report.what_if if item.id not in told
    )
    if rows:
        yield Table(("What if", f"a step, {clock_words(report)}"), rows)


def _collectives(table: ResultTable | None, verbose: bool) -> Iterator[Block]:
    if table is None or not table.rows:
        return
    position = {column.id: i for i, column in enumerate(table.columns)}
    at = [position[name] for name, _ in _SHOWN]
    yield Gap()
    yield Table(
        heads=tuple(title for _, title in _SHOWN),
        rows=tuple(
            tuple(words.cell(row[i], table.columns[i].unit) for i in at) for row in table.rows
        ),
        most=None if verbose else _MOST_ROWS,
        left_out=table.rows_left_out,
        more="kinds",
    )


def _table(table: ResultTable) -> Table:
    rows = table.rows[:_MOST_RANK_ROWS]
    return Table(
        heads=tuple(column.label for column in table.columns),
        rows=tuple(
            tuple(_cell(c.id, value, c.unit) for value, c in zip(row, table.columns, strict=True))
            for row in rows
        ),
        numeric=tuple(bool(column.unit) for column in table.columns),
        note=table.note,
        left_out=table.rows_left_out + len(table.rows) - len(rows),
        more="rows; the JSON document has them",
    )


def _cell(column: str, value: Any, unit: str) -> str:
    if column == "rank":  # a name, not a number of things
        return str(value)
    return words.file_name(str(value)) if column == "path" else words.cell(value, unit)


def _silent(report: RanksReport, verbose: bool) -> Iterator[Block]:
    for item in report.crashed:
        yield Text(f"{item.id} ({item.why})", "bad", "Failed")
    reasons: dict[str, list[str]] = {}
    for item in report.not_checked:
        if item.record:
            reasons.setdefault(f"{item.why}; {item.record}", []).append(item.id)
    for why, ids in reasons.items():
        yield Text(f"{', '.join(ids)}: {why}", label="Not checked")
    alike = [i for i in report.not_checked if not i.record]
    if verbose and alike:
        said = f"{', '.join(i.id for i in alike)}; {alike[0].why}"
        yield Text(said, label="Not checked")
    if report.stragglers:
        yield Gap()
        yield Command(f"pinchpoint diagnose {shlex.quote(report.stragglers[0].path)}")
