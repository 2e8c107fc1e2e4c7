"""The pages of comparisons: two profiles, or two benchmark results."""

import shlex
from itertools import groupby
from pathlib import PurePath
from textwrap import shorten

from pinchpoint.bench.words import in_words
from pinchpoint.compare.changed_rows import ChangedRow
from pinchpoint.compare.gates import Gated
from pinchpoint.compare.profiles import CauseOfChange, ChangedPart, ProfileComparison
from pinchpoint.compare.results import ResultChange, ResultComparison
from pinchpoint.report.blocks import Table, Text
from pinchpoint.report.pages.fix import fix_ladder
from pinchpoint.report.pages.result import (
    Case,
    ResultPage,
    figure,
    range_of,
    table,
)
from pinchpoint.report.quantity import duration, relative
from pinchpoint.report.words.fix import cannot_tell, fix_sentence, gone_words, to_tell

ROWS = 15  # changes on a screen; the document has all
_SIDE_BY_SIDE = 'pinchpoint bench ab -- "COMMAND A" "COMMAND B"'  # each as it is started
LEAST_SHARE = 0.001  # of the step: smaller changes are left to the JSON


def profiles_page(found: ProfileComparison) -> ResultPage:
    """Parts first, then operations and causes, what pieces are worth, then findings."""
    return ResultPage(
        title=f"{_name(found.a.path)} (A) against {_name(found.b.path)} (B)",
        headline=_headline(found),
        headline_answers="how slow, why",
        answer=_answer(found),
        ladder=None if found.fix is None else fix_ladder(found.fix),
        reasons=_causes(found),
        to_tell=to_tell(found) or "",
        tables=(
            *_gates(found.gates),
            _parts(found),
            *_rows(found),
            *_worth(found),
            *_findings(found),
        ),
        verdict=_verdict(found.gates),
        cases=_cases(found.gates),
        warnings=found.warnings,
        notes=_notes(found),
        next_command=_next(found),
    )


def _next(found: ProfileComparison) -> str:
    """What measures both in turns: with their own commands, where these are known."""
    a, b = (shlex.join(side.command) for side in (found.a, found.b))
    if not a or not b:
        return _SIDE_BY_SIDE
    if a == b:
        return f"pinchpoint bench ab --branches BEFORE,AFTER -- {a}"
    return f"pinchpoint bench ab -- {shlex.quote(a)} {shlex.quote(b)}"


def _answer(found: ProfileComparison) -> str:
    if found.fix is None:
        return ""
    gone = gone_words(found.fix)
    said = fix_sentence(found.fix)
    if not gone:
        return f"{said[:1].upper()}{said[1:]}"
    reversed_ = found.fix.said == "did not help"
    return f"{gone}: {said}{'. If B is the earlier version, name it first' * reversed_}"


def _name(path: str) -> str:
    return PurePath(path).name or path


def _headline(found: ProfileComparison) -> str:
    if found.a_step_ns is None or found.b_step_ns is None or found.change_ns is None:
        return "a side has no step: nothing to compare"
    text = "The run took" if found.a.whole_run else "As recorded, a step takes"
    text += f" {duration(found.a_step_ns)} in A and {duration(found.b_step_ns)} in B"
    unprofiled = _unprofiled(found)
    if found.change_ratio is not None and not unprofiled:  # one ratio, that of the last step named
        text += f" ({relative(found.a_step_ns, found.b_step_ns)})"
    text += _sureness(found) + unprofiled
    if cannot_tell(found):
        return text
    if found.causes:
        first = found.causes[0]
        text += f"; first cause: {first.summary if _is_piece(first) else first.id}"
    elif found.rows and found.rows[0].change_ns:
        text += f"; most of it: {_what(found, found.rows[0])} {_signed(found.rows[0].change_ns)}"
    elif found.parts and found.parts[0].change_ns:
        text += f"; most of it: {found.parts[0].label} {_signed(found.parts[0].change_ns)}"
    return text


def _sureness(found: ProfileComparison) -> str:
    if found.a.whole_run:
        return ", of one run each"
    if found.sure is False:
        return ", which is within what steps differ by themselves"
    return ", from too few steps to tell from chance" if found.sure is None else ""


def _unprofiled(found: ProfileComparison) -> str:
    """The steps without the profiler; their means as well, where one differs from the typical."""
    a, b = found.a.unprofiled_step_ns, found.b.unprofiled_step_ns
    if a is None or b is None:
        return ""
    mean_a, mean_b = found.a.mean_step_ns, found.b.mean_step_ns
    if mean_a is None or mean_b is None or (mean_a, mean_b) == (a, b):
        return f"; without the profiler {_both(a, b)}"
    return (
        f"; without the profiler {duration(a)} and {duration(b)}; on average, exceptional steps and"
        f" all kinds included, {_both(mean_a, mean_b)}"
    )


def _both(a_ns: int, b_ns: int) -> str:
    return f"{duration(a_ns)} and {duration(b_ns)} ({relative(a_ns, b_ns)})"


def _signed(ns: int) -> str:
    return f"{'+' if ns >= 0 else '-'}{duration(abs(ns))}"


def _marked(change_ns: int, sure: bool | None) -> str:
    """The change, with a mark if steps differ as much by themselves."""
    return f"{_signed(change_ns)} {'~' if sure is False else ' '}"


def _parts(found: ProfileComparison) -> Table:
    rows = [_part(p) for p in found.parts if _shown(found, p.change_ns, p.a_ns + p.b_ns)]
    total = ("step", *(_time(t) for t in (found.a_step_ns, found.b_step_ns)))
    change = "-" if found.change_ns is None else _marked(found.change_ns, found.sure)
    title = "where the step goes, as recorded"
    if found.a.whole_run:
        title, total = "where the run goes, by looks at its main thread", ("run", *total[1:])
    return table(title, ("", "A", "B", "change  "), (*rows, (*total, change)))


def _part(p: ChangedPart) -> tuple[str, ...]:
    return (p.label, _time(p.a_ns), _time(p.b_ns), _marked(p.change_ns, p.sure))


def _time(ns: int | None) -> str:
    return "-" if not ns else duration(ns)


def _shown(found: ProfileComparison, change_ns: int, size_ns: int) -> bool:
    step = max(found.a_step_ns or 0, found.b_step_ns or 0)
    return abs(change_ns) > LEAST_SHARE * step or size_ns > 0.1 * step


def _rows(found: ProfileComparison) -> list[Table]:
    step = max(found.a_step_ns or 0, found.b_step_ns or 0)
    rows = [r for r in found.rows if abs(r.change_ns) > LEAST_SHARE * step]
    if not rows:
        return []
    shown = rows[:ROWS]
    lines = [_row(found, r) for r in shown]
    rest = (found.change_ns or 0) - sum(r.change_ns for r in shown)
    lines.append(("all others", "", "", _marked(rest, None), ""))
    header = ("", "A", "B", "change  ", "a step")
    return [table("largest changes, as recorded", header, tuple(lines))]


def _row(found: ProfileComparison, r: ChangedRow) -> tuple[str, ...]:
    return (
        _what(found, r) + _new_and_gone(r),
        _time(r.a_ns),
        _time(r.b_ns),
        _marked(r.change_ns, r.sure),
        f"{r.a_count:.0f} → {r.b_count:.0f}",
    )


def _new_and_gone(r: ChangedRow) -> str:
    """What of an operation is new or gone; the rest of its change is the same ones' time."""
    parts = [
        f"{duration(ns)} {word}" for ns, word in ((r.appeared_ns, "new"), (r.went_ns, "gone")) if ns
    ]
    return f" ({', '.join(parts)})" if parts and r.a_ns and r.b_ns else ""


def _what(found: ProfileComparison, r: ChangedRow) -> str:
    """``matrix products: aten::mm``, or ``idle: host runs Python, at train.py:17, step``."""
    label = next((p.label for p in found.parts if p.part == r.part), r.part)
    if r.group != "idle":
        return f"{label}: {r.what.removeprefix(f'{r.part}: ')}"
    text = f"{label}, in {r.what}" if r.what else f"{label},"
    if r.file:
        where = f"{_name(r.file)}:{r.line}" if r.line else _name(r.file)
        text += f" at {where}" + (f", {r.function}" if r.function else "")
    return text


def _causes(found: ProfileComparison) -> tuple[Text, ...]:
    """What changed; where that cannot be told, only what makes the figures of B others."""
    told = [c for c in found.causes if c.change_ns is None or not cannot_tell(found)]
    return tuple(
        Text(
            _cause(c, whole_run=found.a.whole_run),
            label=(c.where or "") if _is_piece(c) else c.id,
        )
        for c in told
    )


def _is_piece(cause: CauseOfChange) -> bool:
    return cause.rests_on == "piece"


def _cause(c: CauseOfChange, *, whole_run: bool = False) -> str:
    text = c.summary
    if c.possible:
        text += f": {' or '.join(c.possible)}"
    if c.where and c.where not in c.summary:
        text += f", at {c.where}"
    if c.change_ns is not None:
        text += f" ({_signed(c.change_ns)} of the {'run' if whole_run else 'step'}"
        gains = [
            f"a fix gains {duration(ns)} in {side}"
            for side, ns in (("A", c.a_saving_ns), ("B", c.b_saving_ns))
            if ns
        ]
        text += "".join(f"; {gain}" for gain in gains) + ")"
    return text


def _worth(found: ProfileComparison) -> list[Table]:
    if not found.worth:
        return []
    rows = tuple(
        (one.name, duration(one.a_ns), duration(one.b_ns), _signed(one.change_ns))
        for one in found.worth
    )
    return [
        table(
            "worth to a step, without the profiler",
            ("", "in A", "in B", "change"),
            rows,
        )
    ]


_SENTENCE = 118  # characters of a finding in one row; a longer cell would lose its middle
_REPORTED = {"appeared": "of B only", "went": "of A only", "stayed": "of both"}


def _findings(found: ProfileComparison) -> list[Table]:
    if not found.findings:
        return []
    told = set() if cannot_tell(found) else {c.id for c in found.causes}
    rows = tuple(
        (
            shorten(f"{f.id}: {f.summary}", _SENTENCE, placeholder=" …"),
            _REPORTED[f.change],
            _time(f.a_cost_ns),
            _time(f.b_cost_ns),
        )
        for f in found.findings
        if f.id not in told
    )
    return (
        [
            table(
                "findings" if not told else "other findings",
                ("", "reported", "cost in A", "cost in B"),
                rows,
            )
        ]
        if rows
        else []
    )


def _notes(found: ProfileComparison) -> tuple[str, ...]:
    notes = []
    marked = any(
        "~" in cell for t in (_parts(found), *_rows(found)) for row in t.rows for cell in row
    )
    if marked:
        notes.append("~ after a change: steps differ as much by themselves")
    m = found.matched
    if m:
        notes.append(
            f"of {m.a} device operations in A and {m.b} in B, {m.matched} are matched by their "
            f"place in the step ({m.kernel_changed} with another kernel); {m.went} went, "
            f"{m.appeared} appeared"
        )
    for side, name in ((found.a, "A"), (found.b, "B")):
        if side.launches_per_step is not None:
            notes.append(
                f"{name}: {side.steps} complete steps, {side.launches_per_step:.0f} launches a step"
            )
    return tuple(notes)


def results_page(found: ResultComparison) -> ResultPage:
    """One row a measure; of load tests a table for each load."""
    differ = [c for c in found.changes if c.verdict in ("worse", "better")]
    kind = "load tests" if any(c.how for c in found.changes) else "benchmark results"
    tables = [*_gates(found.gates)]
    for point, changes in groupby(found.changes, lambda c: c.point):
        rows = tuple(changes)
        tables += [_measures(point or "measure", rows), _ranges(rows)]
    return ResultPage(
        title=f"two {kind}" + (" (forced)" if found.forced else ""),
        verdict=_verdict(found.gates),
        headline=f"A: {found.a}; B: {found.b}; {len(differ)} of {len(found.changes)} differ",
        tables=tuple(tables),
        warnings=found.warnings,
        cases=_cases(found.gates),
        next_command=_SIDE_BY_SIDE if kind == "benchmark results" else None,
    )


def _measures(title: str, changes: tuple[ResultChange, ...]) -> Table:
    rows = tuple(
        (
            c.label,
            figure(c.a_median, c.unit),
            figure(c.b_median, c.unit),
            in_words(_known(c), c.better),
            c.verdict,
        )
        for c in changes
    )
    return table(title, ("", "A", "B", "B is", "verdict"), rows)


def _known(c: ResultChange) -> float | None:
    return c.change_ratio if (c.a_median > 0) == (c.b_median > 0) else None


def _ranges(changes: tuple[ResultChange, ...]) -> Table:
    """Of benchmarks the runs, of load tests intervals and what they rest on."""
    last = ("from",) if any(c.how for c in changes) else ()
    rows = tuple(
        (
            c.label,
            *(range_of(c.a_range, c.unit), str(c.a_runs)),
            *(range_of(c.b_range, c.unit), str(c.b_runs)),
            *(c.how for _ in last),
        )
        for c in changes
    )
    title = "95 % intervals" if last else "least and most of the runs"
    return table(title, ("", "A", "runs", "B", "runs", *last), rows)


def _gates(gates: tuple[Gated, ...]) -> list[Table]:
    rows = tuple(
        (g.label, in_words(g.change_ratio, g.better), f"{100 * g.threshold_ratio:.3g} %", g.outcome)
        for g in gates
    )
    return [table("gate", ("", "B is", "allowed", ""), rows)] if gates else []


def _verdict(gates: tuple[Gated, ...]) -> str | None:
    outcomes = {gate.outcome for gate in gates}
    return next((word for word in ("fail", "inconclusive", "pass") if word in outcomes), None)


def _cases(gates: tuple[Gated, ...]) -> tuple[Case, ...]:
    return tuple(
        Case(g.name, g.outcome, f"{g.label}: {in_words(g.change_ratio, g.better)}; {g.why}")
        for g in gates
    )
