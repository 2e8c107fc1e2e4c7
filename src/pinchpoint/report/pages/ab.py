"""The page of a comparison of A with B."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pinchpoint.bench.ab.bisect import Bisection
from pinchpoint.bench.ab.calibration import Calibration
from pinchpoint.bench.ab.gain import gain_in_words, gains, improved_times
from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.words import in_words, range_in_words, with_range
from pinchpoint.compare.fix import FixOutcome
from pinchpoint.report.blocks import Fact, Ladder, Rung, Table
from pinchpoint.report.pages.fix import fix_ladder
from pinchpoint.report.pages.result import (
    Case,
    Outcome,
    ResultPage,
    figure,
    table,
)
from pinchpoint.report.quantity import number
from pinchpoint.report.words.fix import fix_sentence

# ------------------------------------------------------------------------------------------------
# A calibration: what this machine can see.


def calibration_page(done: Calibration) -> ResultPage:
    """Noise by measure, what a number of pairs sees, how many pairs a change needs."""
    return ResultPage(
        title=f"calibration of {done.bench_id}",
        headline="two identical commands, interleaved: all differences are noise",
        tables=(_visible(done), _needed(done)),
        warnings=(*done.warnings, *_alarms(done)),
        notes=tuple(
            f"{n.label} has two speeds, {100 * n.two_speeds_ratio:.0f} % apart: pin CPUs, NUMA"
            " node, clocks"
            for n in done.noise
            if n.two_speeds_ratio
        ),
    )


def _visible(done: Calibration) -> Table:
    columns = list(done.noise[0].visible_ratio) if done.noise else []
    rows = [
        (
            n.label,
            str(n.pairs),
            f"{100 * n.sd_pair_log:.2f} %",
            *(f"{100 * n.visible_ratio[c]:.1f} %" for c in columns),
        )
        for n in done.noise
    ]
    header = ("", "pairs", "sd of a pair", *(f"{c} pairs see" for c in columns))
    return table("measure", header, tuple(rows))


def _needed(done: Calibration) -> Table:
    columns = list(done.noise[0].pairs_needed) if done.noise else []
    rows = [
        (
            n.label,
            *("> 400" if n.pairs_needed[c] is None else str(n.pairs_needed[c]) for c in columns),
        )
        for n in done.noise
    ]
    return table("pairs needed", ("", *(f"for {c}" for c in columns)), tuple(rows))


def _alarms(done: Calibration) -> list[str]:
    return [
        f"{n.label}: the rule called identical commands {n.verdict}"
        for n in done.noise
        if n.verdict == "regressed"
    ]


# ------------------------------------------------------------------------------------------------
# The page of a comparison of A with B.


_OUTCOMES: dict[str | None, Outcome] = {
    "regressed": "fail",
    "pass": "pass",
    "inconclusive": "inconclusive",
}


def page(result: AbResult, fix: FixOutcome | None = None) -> ResultPage:
    """Whether the fix worked, then gated measures with their verdicts, then the others."""
    gated = [m for m in result.measures if m.gated]
    shown = [m for m in result.measures if not m.gated]
    tables = [_table("gated", gated)]
    if shown:
        tables.append(_table("not gated", shown))
    return ResultPage(
        title=f"A/B of {result.bench_id}: {pairs(result)}",
        verdict=result.verdict,
        headline=result.why,
        headline_answers="how sure",
        answer=_answer(fix) if fix else _measured(result, gated),
        ladder=fix_ladder(fix) if fix else _arms_as_bars(gated),
        tables=tuple(tables),
        warnings=result.warnings,
        notes=(*_arms(result), *result.notes, *(f"to decide: {how}" for how in result.advice)),
        cases=tuple(
            Case(m.name, _OUTCOMES[m.verdict], _message(m), improved=m in gains(result))
            for m in gated
        ),
    )


def _answer(fix: FixOutcome) -> str:
    said = fix_sentence(fix)
    return f"{said[:1].upper()}{said[1:]}"


def _measured(result: AbResult, gated: list[MeasureResult]) -> str:
    """Whether B is better, of the measure that decides; of several the one that is worse."""
    if not gated:
        return ""
    if found := gains(result):
        values = " → ".join(figure(side, found[0].unit) for side in found[0].sides)
        return f"B is better: {gain_in_words(result)} ({values})"
    decided = [m for m in result.measures if m.name in result.decided_by]
    m = next((m for m in (*gated, *decided) if m.verdict == result.verdict), (*decided, *gated)[0])
    said = _SAID.get(result.verdict, "")
    values = " → ".join(figure(side, m.unit) for side in m.sides)
    return f"{said}: {m.label} {values}, {with_range(m.estimate_ratio, m.ci95_ratio, m.better)}"


_SAID = {
    "regressed": "B is worse",
    "pass": "B is not worse",
    "inconclusive": "Cannot tell from these pairs",
}


def _arms_as_bars(gated: list[MeasureResult]) -> Ladder | None:
    """A and B of the first measure; the range of B is that of the change."""
    m = next((m for m in gated if m.better == "lower" and m.a_median > 0), None)
    if m is None:
        return None
    a, (low, high) = m.sides[0], m.ci95_ratio or (m.estimate_ratio, m.estimate_ratio)
    b, least, most = (a * (1 + ratio) for ratio in (m.estimate_ratio, low, high))
    whole = max(a, b, least, most)
    between = f"{number(least)} to {number(most)}" if m.ci95_ratio else ""
    share = (b / whole, least / whole, most / whole)
    return Ladder(
        m.label,
        m.unit,
        (
            Rung("A", number(a), *3 * (a / whole,), role="today"),
            Rung("B, by the pairs", number(b), *share, between=between, role="together"),
        ),
        answers="did it work, how sure",
    )


def bisect_page(found: Bisection) -> ResultPage:
    """Which commit, and what was compared on the way."""
    tried = tuple(reversed(found.tried))
    rows = tuple((t.commit[:10], t.verdict, in_words(t.change_ratio, t.better)) for t in tried)
    compared = table("commit", ("", "verdict", "it is"), rows)
    if found.verdict == "found":
        headline = f"the first commit that is worse than {found.good}: {found.first_bad}"
    elif found.verdict == "not worse":
        headline = f"{found.bad[:10]} is not worse than {found.good}: nothing to search"
    else:
        headline = f"not decided: one of {len(found.left)} commits, from {found.left[0][:10]} to"
        headline += f" {found.left[-1][:10]}; more --pairs, or a quieter machine, tell which"
    return ResultPage(
        title=f"bisect: {found.good} to {found.bad[:10]}, {len(found.tried)} comparisons",
        verdict=found.verdict,
        headline=headline,
        tables=(replace(compared, below=tuple((Fact("", t.why),) * bool(t.why) for t in tried)),),
        next_command=f"git show {found.first_bad[:10]}" if found.first_bad else None,
    )


def pairs(result: AbResult) -> str:
    """How many pairs, and how many were left out."""
    left = f", {result.pairs_excluded} left out" if result.pairs_excluded else ""
    return f"{result.pairs_measured} interleaved pairs{left}"


def _table(title: str, measures: list[MeasureResult]) -> Table:
    rows = tuple(
        (
            m.label,
            *(figure(side, m.unit) for side in m.sides),
            in_words(m.estimate_ratio, m.better),
            m.verdict or "",
        )
        for m in measures
    )
    made = table(title, ("", "A", "B", "B is", "verdict"), rows)
    return replace(made, below=tuple(map(sureness, measures)))


def sureness(m: MeasureResult) -> tuple[Fact, ...]:
    """Within what the change lies, and how large a worsening these pairs would show."""
    seen = m.smallest_visible_ratio
    said = (
        f"95 %: {range_in_words(m.ci95_ratio, m.better)}" if m.ci95_ratio else "",
        f"visible from {in_words(seen, m.better)} on" if seen else "",
    )
    text = "; ".join(filter(None, said))
    return (Fact("", text),) if text else ()


def _message(m: MeasureResult) -> str:
    a, b = (figure(side, m.unit) for side in m.sides)
    if m.improved:
        return f"{m.label}: {a} to {b}, {improved_times(m)}"
    how = with_range(m.estimate_ratio, m.ci95_ratio, m.better)
    return f"{m.label}: {a} to {b}, {how}, allowed {100 * (m.threshold_ratio or 0):.3g} %"


def _arms(result: AbResult) -> list[str]:
    return [_arm(name, arm) for name, arm in result.arms.items()]


def _arm(name: str, arm: Mapping[str, Any]) -> str:
    """The command, with the variables or the branch that tell the arms apart."""
    sets = [f"{k.removeprefix('env:')}={v}" for k, v in arm["params"].items() if k[:4] == "env:"]
    branch = arm["params"].get("branch")
    commit = str(arm["params"].get("commit") or "")
    where = f" on {branch} (commit {commit[:10]})" if branch else ""
    if branch and commit.startswith(branch):
        where = f" at commit {commit[:10]}"
    return f"{name}: {shlex.join([*sets, *arm['command']])}{where}"
