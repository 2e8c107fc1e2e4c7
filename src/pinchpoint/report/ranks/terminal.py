"""The job for a terminal or a log: 80 columns, readable without colour and at 10,000 ranks."""

import shlex
from collections.abc import Iterator
from textwrap import wrap

from pinchpoint.report.clean import cleaned
from pinchpoint.report.document import ResultTable
from pinchpoint.report.plain import ascii_only
from pinchpoint.report.quantity import in_unit, percent, quantity, time_unit
from pinchpoint.report.ranks import words
from pinchpoint.report.ranks.document import HeatMap, RanksReport
from pinchpoint.report.terminal import Look
from pinchpoint.report.to_copy import spaced, unbroken, whole

_LABEL_WIDTH = 49
_BAR_WIDTH = 15
_MOST_LATE = 6
_MOST_ROWS = 6  # of a table
_HEAT_ROWS, _HEAT_COLUMNS = 16, 56
_SHADES = (" ░▒▓█", " .:*#")  # with and without Unicode
_SHOWN = (  # column of the table, title, width
    ("kind", "collective", 16),
    ("bytes", "message", 9),
    ("per_step", "a step", 7),
    ("ranks", "ranks", 8),
    ("exposed_waiting", "waiting", 9),
    ("exposed_transfer", "transfer", 9),
    ("busbw", "bus rate", 10),
    ("of_link", "of link", 8),
)
_PLAIN = Look()

Line = tuple[str, str]  # what the first line begins with, text


def render_ranks(report: RanksReport, look: Look = _PLAIN) -> str:
    """The report as text that ends with a newline."""
    safe = cleaned(report)
    lines = [
        *_head(safe),
        *_breakdown(safe),
        *_findings(safe, look.verbose),
        *_late(safe, look.verbose),
        *_heat(safe.heat_map, look),
        *_what_if(safe),
        *_collectives(safe.tables.get("collectives"), look.verbose),
        *_advice(safe),
        *_silent(safe, look.verbose),
    ]
    return _drawn(lines, look)


def _head(report: RanksReport) -> Iterator[Line]:
    yield "", " · ".join(words.source_line(report))
    for sentence in (words.step_sentence(report), words.clock_sentence(report)):
        if sentence:
            yield "", sentence
    for doubt in words.doubts(report):
        yield "  ! ", doubt
    yield "", ""


def _breakdown(report: RanksReport) -> Iterator[Line]:
    parts = words.top_parts(report)
    total = sum(ns for *_, ns in parts)
    if total:
        unit = time_unit(total)
        title = "Where a step goes, mean over ranks"
        yield "", f"{title:{_LABEL_WIDTH}}{unit:>7}{'%':>7}"
        for label, _, ns in parts:
            short = label if len(label) < _LABEL_WIDTH - 2 else label[: _LABEL_WIDTH - 4] + "…"
            bar = "█" * round(_BAR_WIDTH * ns / total)
            figures = f"{in_unit(ns, unit):>7}{percent(ns / total):>7}"
            yield "", f"  {short:{_LABEL_WIDTH - 2}}{figures}  {bar}"
    yield "", report.verdict
    yield "", ""


def _findings(report: RanksReport, verbose: bool) -> Iterator[Line]:
    for position, finding in enumerate(report.findings, 1):
        yield f"{position:<2} ", f"{finding.id}: {words.gain(report, finding)}"
        yield "   ", finding.summary
        if seen := words.shown_on(finding):
            yield "   on       ", seen
        if verbose:
            for fact in finding.evidence:
                yield "   shows    ", f"{fact.what}: {quantity(fact.value, fact.unit)}"
        if finding.fix:
            yield "   fix      ", finding.fix
        for code in (finding.hint or "").splitlines():
            yield "            ", whole(code)
        if finding.confirm:
            yield "   confirm  ", finding.confirm
    if sentence := words.closing(report):
        yield "", sentence


def _late(report: RanksReport, verbose: bool) -> Iterator[Line]:
    most = len(report.stragglers) if verbose else _MOST_LATE
    if report.stragglers:
        yield "", ""
        yield "", "Late ranks"
        for straggler in report.stragglers[:most]:
            yield "  ", words.straggler_sentence(straggler)
    elif report.incidents:
        yield "", ""
        yield "", "Steps that waited for one rank"
        for incident in report.incidents[:_MOST_LATE]:
            yield "  ", words.incident_sentence(incident)
    if report.mismatches:
        yield "", ""
        yield "", "Collectives on which ranks do not agree: suspects for a hang"
        for mismatch in report.mismatches[:_MOST_LATE]:
            yield "  ", words.mismatch_sentence(mismatch)


def _heat(heat: HeatMap | None, look: Look) -> Iterator[Line]:
    if heat is None or len(heat.rows) < 2 or not heat.columns:
        return
    rows, columns = _halved(len(heat.rows), _HEAT_ROWS), _halved(len(heat.columns), _HEAT_COLUMNS)
    cells = [[_worst(heat, a, b) for b in columns] for a in rows]
    top = max((v for row in cells for v in row if v is not None), default=0)
    if top <= 0:
        return
    first, last = heat.columns[0][0], heat.columns[-1][1]
    yield "", ""
    yield (
        "",
        (f"Late, and waited for: ranks × steps {first} to {last}, darkest {quantity(top, 'ns')}"),
    )
    shades = _SHADES[0 if look.unicode else 1]
    for block, row in zip(rows, cells, strict=True):
        low, high = heat.rows[block.start][0], heat.rows[block.stop - 1][1]
        label = f"{low}" if low == high else f"{low} to {high}"
        yield "", f"  {label:>14}  |" + "".join(_shade(v, top, shades) for v in row) + "|"


def _halved(count: int, most: int) -> list[slice]:
    each = -(-count // most)
    return [slice(a, min(a + each, count)) for a in range(0, count, each)]


def _worst(heat: HeatMap, rows: slice, columns: slice) -> int | None:
    known = [v for row in heat.excess_ns[rows] for v in row[columns] if v is not None]
    return max(known, default=None)


def _shade(value: int | None, top: int, shades: str) -> str:
    if value is None:
        return "?"
    return shades[round((len(shades) - 1) * max(value, 0) / top)]


def _what_if(report: RanksReport) -> Iterator[Line]:
    sentence = words.scaling_sentence(report)
    if sentence is None:
        return
    yield "", ""
    yield "", sentence
    for item in report.what_if:
        yield "", f"  {item.label:<52}{quantity(item.step_ns, 'ns'):>10} a step"


def _collectives(table: ResultTable | None, verbose: bool) -> Iterator[Line]:
    if table is None or not table.rows:
        return
    position = {column.id: i for i, column in enumerate(table.columns)}
    at = [position[name] for name, *_ in _SHOWN]
    widths = [width for *_, width in _SHOWN]
    yield "", ""
    yield "", _row([title for _, title, _ in _SHOWN], [widths[0] + 2, *widths[1:]])
    rows = table.rows if verbose else table.rows[:_MOST_ROWS]
    for row in rows:
        yield "", "  " + _row([words.cell(row[i], table.columns[i].unit) for i in at], widths)
    left_out = table.rows_left_out + len(table.rows) - len(rows)
    if left_out:
        yield "  ", f"and {left_out:,} more kinds"


def _row(texts: list[str], widths: list[int]) -> str:
    first = texts[0][: widths[0]].ljust(widths[0])
    return first + "".join(t.rjust(w) for t, w in zip(texts[1:], widths[1:], strict=True))


def _advice(report: RanksReport) -> Iterator[Line]:
    if report.buckets:
        yield "", ""
        for item in report.buckets[:3]:
            yield "", words.bucket_sentence(item)


def _silent(report: RanksReport, verbose: bool) -> Iterator[Line]:
    for item in report.crashed:
        yield "", f"Failed: {item.id} ({item.why})"
    reasons: dict[str, list[str]] = {}
    for item in report.not_checked:
        if item.record:
            reasons.setdefault(f"{item.why}; {item.record}", []).append(item.id)
    for why, ids in reasons.items():
        yield "Not checked: ", f"{', '.join(ids)}: {why}"
    alike = [i for i in report.not_checked if not i.record]
    if verbose and alike:
        yield "Not checked: ", f"{', '.join(i.id for i in alike)}; {alike[0].why}"
    late = report.stragglers[0].path if report.stragglers else None
    if late:
        yield "", ""
        yield "Next: ", f"pinchpoint diagnose {shlex.quote(late)}"


def _drawn(lines: list[Line], look: Look) -> str:
    out = []
    for lead, text in lines:
        if "  " in text.strip() or text.startswith("  "):  # a row of a table is not wrapped
            out.append((lead + text).rstrip())
            continue
        room = max(look.width - len(lead), 20)  # a path stays whole, so that it can be copied
        said = unbroken(text)
        parts = wrap(said, room, break_on_hyphens=False, break_long_words=False) or [""]
        out += [
            ((lead if i == 0 else " " * len(lead)) + part).rstrip() for i, part in enumerate(parts)
        ]
    text = spaced("\n".join(out) + "\n")
    return text if look.unicode else ascii_only(text)
