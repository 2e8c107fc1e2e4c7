"""What ``bench run`` and ``bench serve`` measured: runs of a command, latency of a server."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.bench.serve.sweep import Sweep, SweepPoint
from pinchpoint.monitor.environment import redacted_command
from pinchpoint.report.blocks import Fact, Figure, Table
from pinchpoint.report.pages.result import ResultPage, figure, range_of, table
from pinchpoint.report.svg.latencies import latencies_svg
from pinchpoint.report.svg.saturation import saturation_svg

# ------------------------------------------------------------------------------------------------
# The page of runs of one command.


def run_page(result: BenchResult) -> ResultPage:
    """Every measure over the valid runs, then the runs."""
    valid = [run for run in result.runs if run.valid]
    found = across_runs(result.runs)
    return ResultPage(
        title=f"{result.bench_id}: {len(valid)} of {len(result.runs)} runs valid",
        headline=shlex.join(redacted_command(result.command)),
        tables=(_measures(found), *_percentiles(valid), _runs(result.runs)),
        warnings=(*result.warnings, *_modes(found), *_invalid(result.runs)),
        notes=(
            *_over_runs(found),
            *_units(valid),
            *_open_sides(r.steps.step_time_ms for r in valid if r.steps),
        ),
    )


def _over_runs(found: dict[str, AcrossRuns]) -> list[str]:
    if not any(len(a.values) > 1 for a in found.values()):
        return []
    return [
        "median, its 95 % interval and spread (standard deviation over mean) are over the runs:"
        " each run is one value"
    ]


def _percentiles(valid: list[RunMetrics]) -> list[Table]:
    """Steps of each run, as measured: a run is the sample, and its steps are not pooled."""
    rows = tuple(
        _row(f"run {run.order_index + 1}", run.steps.step_time_ms) for run in valid if run.steps
    )
    return [table("step time, ms", ("", "steps", "median", "p95", "p99"), rows)] if rows else []


def _measures(found: dict[str, AcrossRuns]) -> Table:
    return table(
        "measure",
        ("", "median", "95 % interval", "spread", "runs"),
        tuple(
            (
                a.measure.label,
                figure(a.median, a.measure.unit),
                _interval(a),
                "-" if a.cv is None else f"{100 * a.cv:.1f} %",
                str(len(a.values)),
            )
            for a in found.values()
        ),
    )


# High end over low end: two runs that differ by half have an interval of four orders of magnitude.
SAYS_NOTHING_RATIO = 100.0


def _interval(a: AcrossRuns) -> str:
    if a.ci95 is not None and a.ci95[1] > SAYS_NOTHING_RATIO * a.ci95[0] > 0:
        return "too few runs"
    return range_of(a.ci95, a.measure.unit)


def _runs(runs: tuple[RunMetrics, ...]) -> Table:
    return table(
        "run",
        ("", "status", "wall", "warm-up", "steps", "count as"),
        tuple(_run_row(run) for run in runs),
    )


def _run_row(run: RunMetrics) -> tuple[str, ...]:
    steps, warm = run.steps, run.warmup
    worth = steps.effective_n if steps else None
    return (
        str(run.order_index + 1),
        "invalid" if run.status == "ok" and run.invalid_reasons else run.status,
        figure(run.duration_s, "s"),
        f"{warm.steps} steps" if warm else "-",
        str(steps.count) if steps else "-",
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
        if any(run.steps and (run.steps.effective_n or inf) < run.steps.count for run in valid):
            notes.append(
                "count as: neighbouring steps are alike (a slow one often follows a slow one), so"
                " that they tell no more than this many steps that have nothing to do with another"
            )
    elif valid:
        notes.append(f"no steps: {valid[0].unknown.get('steps', 'not recorded')}")
    return tuple(notes)


def _open_sides(summaries: Iterable[Summary]) -> list[str]:
    """What *at least* means, where it is said."""
    if any(s.p99_bounds is not None and s.p99_ci95 is None and s.count for s in summaries):
        return [
            "at least: the upper end of the 95 % interval is not known; p95 takes 72 steps or"
            " requests for it, p99 368"
        ]
    return []


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
        figures=_percentiles_drawn(result.runs),
        tables=(*(_latency(run) for run in result.runs), _rates(result)),
        warnings=(*result.warnings, *_warned_runs(result.runs), *_lagging(result.runs)),
        notes=_notes(result.runs),
    )


def _percentiles_drawn(runs: tuple[RunMetrics, ...]) -> tuple[Figure, ...]:
    """Drawn where pictures are; the tables say the same."""
    if not latencies_svg(runs, _KINDS):
        return ()
    return (
        Figure(
            "Latency",
            svg=lambda: latencies_svg(runs, _KINDS),
            note="Median, p95 and p99 with their 95 % intervals, on a scale of ratios; a line to"
            " the right edge has no upper end: too few requests for one.",
        ),
    )


def sweep_page(found: Sweep) -> ResultPage:
    """One row a rate, and the knee."""
    said = _knee(found)
    objectives = ", ".join(f"{k} {v:g} ms" for k, v in found.objectives_ms.items())
    header = ("", "answered/s", "goodput/s", "TTFT p95, ms", "e2e median", "p95", "p99")
    rates = table("requests/s", header, tuple(_sweep_row(p) for p in found.points))
    return ResultPage(
        title=f"{found.bench_id}: {len(found.points)} "
        + ("parts of a ramp" if found.ramp else "rates"),
        headline=f"{found.model}: {said}",
        figures=(_curve(found),),
        tables=(replace(rates, below=tuple(map(_sweep_intervals, found.points))),),
        warnings=found.warnings,
        notes=(
            *(f"{p.rate_per_s:.4g}/s: {p.why}" for p in found.points if p.why),
            f"objectives: {objectives}"
            if objectives
            else "no --goodput: a p95 of twice that of the lowest rate counts as beyond the knee",
        ),
    )


def _knee(found: Sweep) -> str:
    """How much the server keeps up with, and from where on it does not, or nobody can tell."""
    knee, after = found.knee_per_s, next((p for p in found.points if not p.below_knee), None)
    unknown = after is not None and after.below_knee is None
    if knee is None:
        if unknown:
            return "cannot tell: this machine was too busy at the lowest rate already"
        where = "from the beginning of the ramp" if found.ramp else "at the lowest rate already"
        return f"beyond the knee {where}"
    said = f"keeps up to {knee:.3g} requests a second"
    if after is None:
        return f"{said}, the highest rate tried: the knee is higher"
    if unknown:
        end = "" if found.beyond_per_s is None else f", and not to {found.beyond_per_s:.3g}"
        return f"{said} at least{end}; between, this machine was too busy to tell"
    return f"{said}, and not to {after.rate_per_s:.3g}"


def _curve(found: Sweep) -> Figure:
    """Drawn where pictures are; the table says the same."""
    return Figure(
        "Saturation",
        svg=lambda: saturation_svg(found),
        note="Above: what is sent, answered, and answered within the objectives. Below: latency, on"
        " a scale of ratios. The line is the highest rate below the knee.",
    )


_WHERE = {True: "", False: " (beyond)", None: " (cannot tell)"}


def _sweep_row(p: SweepPoint) -> tuple[str, ...]:
    ttft, e2e = p.ttft_ms, p.e2e_ms
    return (
        f"{p.rate_per_s:.4g}{_WHERE[p.below_knee]}",
        figure(p.answered_per_s, ""),
        figure(p.goodput_per_s, ""),
        figure(ttft.p95, "") if ttft else "-",
        figure(e2e.median, "") if e2e else "-",
        figure(e2e.p95, "") if e2e else "-",
        figure(e2e.p99, "") if e2e else "-",
    )


def _sweep_intervals(p: SweepPoint) -> tuple[Fact, ...]:
    """Within what each percentile lies, below its rate: beside it, a log has no room."""
    ttft, e2e = p.ttft_ms, p.e2e_ms
    bounds = {
        "TTFT p95": ttft.p95_bounds if ttft else None,
        "e2e p95": e2e.p95_bounds if e2e else None,
        "p99": e2e.p99_bounds if e2e else None,
    }
    said = [f"{label} {_bounds(ends)}" for label, ends in bounds.items() if ends]
    return (Fact("", "95 %: " + ", ".join(said)),) if said else ()


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
        _with_bounds(s.p95, s.p95_bounds or s.p95_ci95),
        _with_bounds(s.p99, s.p99_bounds or s.p99_ci95),
    )


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """``38.5 (37.8–39.4)``: three of them fit on a line."""
    said = figure(value, "")
    if interval is None:
        return said
    return f"{said} ({'–'.join(figure(end, '') for end in interval)})"


def _with_bounds(value: float | None, bounds: tuple[float | None, float | None] | None) -> str:
    """``38.5 (37.8–39.4)``, ``38.5 (at least 37.8)``."""
    if bounds is None or bounds == (None, None):
        return figure(value, "")
    return f"{figure(value, '')} ({_bounds(bounds)})"


def _bounds(bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    if low is not None and high is not None:
        return f"{figure(low, '')}–{figure(high, '')}"
    return f"at most {figure(high, '')}" if low is None else f"at least {figure(low, '')}"


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


LAG_RATIO = 0.05  # of the median first token: above, waiting for a CPU is worth a word
# Of the first texts: above half of the requests beyond a percentile, it may be one of these.
BUNCHED_RATIOS = {"p99": 0.005, "p95": 0.025}


def _lagging(runs: tuple[RunMetrics, ...]) -> list[str]:
    """Where the load generator itself was short of a CPU, and latencies hold some of that."""
    said = []
    for run in runs:
        lag, first = run.counters.get("generator_lag_p95_ms"), (run.latency_ms or {}).get("ttft")
        rest = _rest_of_lag(run)
        if rest and lag and first and first.median and lag > LAG_RATIO * first.median:
            said.append(
                f"load {run.order_index + 1}: the load generator waited up to {lag:.3g} ms for a"
                f" CPU (p95); {rest}"
            )
    return said


def _rest_of_lag(run: RunMetrics) -> str:
    """What latencies hold of the generator's own lateness; empty where that is nothing."""
    if not run.counters.get("arrivals_stamped"):
        return "latencies hold some of that"
    bunched = run.counters.get("first_texts_with_later_ratio") or 0.0
    held = [name for name, least in BUNCHED_RATIOS.items() if bunched > least]
    if not held:
        return ""
    return (
        f"{100 * bunched:.1f} % of the first texts were read together with later ones and carry"
        f" the later time, so that {' and '.join(held)} of the first token may be too long by the"
        " gap between two texts"
    )


def _notes(runs: tuple[RunMetrics, ...]) -> tuple[str, ...]:
    notes = ["in brackets: 95 % intervals, from order statistics"]
    if any(not run.counters.get("tokens_counted_by_server") for run in runs):
        notes.append("the server gives no token counts: a chunk counts as a token")
    notes += _open_sides(s for run in runs for s in (run.latency_ms or {}).values())
    if len(runs) > 1:
        notes.append("the server was one process: loads share what it keeps between them")
    return tuple(notes)
