"""The page of runs of one command."""

import shlex

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.monitor.environment import redacted_command
from pinchpoint.report.blocks import Table
from pinchpoint.report.pages.result import ResultPage, figure, range_of, table


def page(result: BenchResult) -> ResultPage:
    """Every measure over the valid runs, then the runs."""
    valid = [run for run in result.runs if run.valid]
    found = across_runs(result.runs)
    return ResultPage(
        title=f"{result.bench_id}: {len(valid)} of {len(result.runs)} runs valid",
        headline=shlex.join(redacted_command(result.command)),
        tables=(_measures(found), _runs(result.runs)),
        warnings=(*result.warnings, *_modes(found), *_invalid(result.runs)),
        notes=_units(valid),
    )


def _measures(found: dict[str, AcrossRuns]) -> Table:
    return table(
        "measure",
        ("", "median of runs", "95 % interval", "spread between runs", "runs"),
        tuple(
            (
                a.measure.label,
                figure(a.median, a.measure.unit),
                range_of(a.ci95, a.measure.unit),
                "-" if a.cv is None else f"{100 * a.cv:.1f} %",
                str(len(a.values)),
            )
            for a in found.values()
        ),
    )


def _runs(runs: tuple[RunMetrics, ...]) -> Table:
    return table(
        "run",
        ("", "status", "wall", "warm-up", "steps", "median step", "p95", "lag-1", "worth"),
        tuple(_run_row(run) for run in runs),
    )


def _run_row(run: RunMetrics) -> tuple[str, ...]:
    steps, warm = run.steps, run.warmup
    summary = steps.step_time_ms if steps else None
    rho = steps.lag1_autocorr if steps else None
    worth = steps.effective_n if steps else None
    return (
        str(run.order_index + 1),
        "invalid" if run.status == "ok" and run.invalid_reasons else run.status,
        figure(run.duration_s, "s"),
        f"{warm.steps} steps" if warm else "-",
        str(steps.count) if steps else "-",
        figure(summary.median if summary else None, "ms"),
        figure(summary.p95 if summary else None, "ms"),
        "-" if rho is None else f"{rho:.2f}",
        "-" if worth is None else f"{worth:.0f}",
    )


def _modes(found: dict[str, AcrossRuns]) -> list[str]:
    return [
        f"{a.measure.label} has two speeds, {100 * a.modes.gap_ratio:.0f} % apart"
        for a in found.values()
        if a.modes
    ]


def _invalid(runs: tuple[RunMetrics, ...]) -> list[str]:
    return [f"run {r.order_index + 1}: {why}" for r in runs for why in r.invalid_reasons]


def _units(valid: list[RunMetrics]) -> tuple[str, ...]:
    units = {run.throughput.unit for run in valid if run.throughput}
    clocks = {run.steps.clock for run in valid if run.steps}
    notes = [f"throughput in {', '.join(sorted(units))}"] if units else []
    if clocks:
        notes.append(f"steps timed by {', '.join(sorted(clocks))}")
    elif valid:
        notes.append(f"no steps: {valid[0].unknown.get('steps', 'not recorded')}")
    return tuple(notes)
