"""What ``bench run`` and ``bench serve`` measured: runs of a command, latency of a server."""

import shlex

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.monitor.environment import redacted_command
from pinchpoint.report.blocks import Table
from pinchpoint.report.pages.result import ResultPage, figure, range_of, table

# ------------------------------------------------------------------------------------------------
# The page of runs of one command.


def run_page(result: BenchResult) -> ResultPage:
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


_KINDS = {
    "ttft": "first token (TTFT)",
    "tpot": "per output token (TPOT)",
    "itl": "between chunks (ITL)",
    "e2e": "end to end",
}


def serve_page(result: BenchResult) -> ResultPage:
    """Latency of each load with intervals from order statistics, then rates."""
    valid = [run for run in result.runs if run.valid]
    first = result.runs[0]
    rate = first.params.get("rate_per_s")
    load = (
        f"{rate:g} requests/s, open loop"
        if rate
        else (f"{first.params.get('concurrency')} clients, closed loop")
    )
    return ResultPage(
        title=f"{result.bench_id}: {len(valid)} of {len(result.runs)} loads valid",
        headline=f"{first.params.get('model')}, {load}",
        tables=(*(_latency(run) for run in result.runs), _rates(result)),
        warnings=(*result.warnings, *_warned_runs(result.runs)),
        notes=_notes(result.runs),
    )


def _latency(run: RunMetrics) -> Table:
    return table(
        f"load {run.order_index + 1}, ms",
        ("", "n", "median", "p95", "p99"),
        tuple(_row(_KINDS[kind], s) for kind, s in (run.latency_ms or {}).items()),
    )


def _row(label: str, s: Summary) -> tuple[str, ...]:
    return (
        label,
        str(s.count),
        _with_interval(s.median, s.median_ci95),
        _with_interval(s.p95, s.p95_ci95),
        _with_interval(s.p99, s.p99_ci95),
    )


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """``38.5 (37.8–39.4)``: three of them fit on a line."""
    said = figure(value, "")
    if interval is None:
        return said
    return f"{said} ({'–'.join(figure(end, '') for end in interval)})"


def _rates(result: BenchResult) -> Table:
    rows = [
        (
            str(run.order_index + 1),
            str(run.requests_ok),
            str(run.requests_failed),
            figure(run.throughput.value if run.throughput else None, "/s"),
            figure(run.counters.get("output_tokens_per_s"), "/s"),
            figure(run.goodput_req_per_s, "/s"),
        )
        for run in result.runs
    ]
    found = across_runs(result.runs)
    if "throughput_per_s" in found and len(result.runs) > 1:
        goodput = found.get("goodput_req_per_s")
        rows.append(
            (
                "median",
                "",
                "",
                figure(found["throughput_per_s"].median, "/s"),
                "",
                figure(goodput.median if goodput else None, "/s"),
            )
        )
    return table("load", ("", "ok", "failed", "requests", "output tokens", "goodput"), tuple(rows))


def _warned_runs(runs: tuple[RunMetrics, ...]) -> list[str]:
    return [f"load {r.order_index + 1}: {why}" for r in runs for why in r.invalid_reasons]


def _notes(runs: tuple[RunMetrics, ...]) -> tuple[str, ...]:
    notes = ["in brackets: 95 % intervals, from order statistics"]
    if any(not run.counters.get("tokens_counted_by_server") for run in runs):
        notes.append("the server gives no token counts: a chunk counts as a token")
    if any(s.p99 is None for run in runs for s in (run.latency_ms or {}).values()):
        notes.append("a percentile without an interval is not shown: p99 needs 368 requests")
    if len(runs) > 1:
        notes.append("the server was one process: loads share what it keeps between them")
    return tuple(notes)
