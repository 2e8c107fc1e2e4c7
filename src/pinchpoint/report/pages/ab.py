"""The page of a comparison of A with B."""

import shlex
from collections.abc import Mapping
from typing import Any

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.report.blocks import Table
from pinchpoint.report.pages.result import (
    Case,
    Outcome,
    ResultPage,
    change,
    change_range,
    figure,
    table,
)

_OUTCOMES: dict[str | None, Outcome] = {
    "regressed": "fail",
    "pass": "pass",
    "inconclusive": "inconclusive",
}


def page(result: AbResult) -> ResultPage:
    """Gated measures with their verdicts, then the others."""
    gated = [m for m in result.measures if m.gated]
    shown = [m for m in result.measures if not m.gated]
    tables = [_table("gated", gated)]
    if shown:
        tables.append(_table("not gated", shown))
    return ResultPage(
        title=f"A/B of {result.bench_id}: {pairs(result)}",
        verdict=result.verdict,
        headline=result.why,
        tables=tuple(tables),
        warnings=result.warnings,
        notes=(*_arms(result), *result.notes),
        cases=tuple(Case(m.name, _OUTCOMES[m.verdict], _message(m)) for m in gated),
    )


def pairs(result: AbResult) -> str:
    """How many pairs, and how many were left out."""
    left = f", {result.pairs_excluded} left out" if result.pairs_excluded else ""
    return f"{result.pairs_measured} interleaved pairs{left}"


def _table(title: str, measures: list[MeasureResult]) -> Table:
    return table(
        title,
        ("", "A", "B", "worse by", "95 % interval", "sees from", "verdict"),
        tuple(
            (
                m.label,
                figure(m.a_median, m.unit),
                figure(m.b_median, m.unit),
                change(m.estimate_ratio),
                change_range(m.ci95_ratio),
                change(m.smallest_visible_ratio),
                m.verdict or "",
            )
            for m in measures
        ),
    )


def _message(m: MeasureResult) -> str:
    a, b = figure(m.a_median, m.unit), figure(m.b_median, m.unit)
    interval = change_range(m.ci95_ratio)
    limit = change(m.threshold_ratio)
    return f"{m.label}: {a} to {b}, worse by {change(m.estimate_ratio)} ({interval}), limit {limit}"


def _arms(result: AbResult) -> list[str]:
    return [_arm(name, arm) for name, arm in result.arms.items()]


def _arm(name: str, arm: Mapping[str, Any]) -> str:
    """The command, with the variables or the branch that tell the arms apart."""
    sets = [f"{k.removeprefix('env:')}={v}" for k, v in arm["params"].items() if k[:4] == "env:"]
    branch = arm["params"].get("branch")
    where = f" on {branch} ({str(arm['params'].get('commit'))[:10]})" if branch else ""
    return f"{name}: {shlex.join([*sets, *arm['command']])}{where}"
