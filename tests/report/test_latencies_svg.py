"""Latencies of a load as a picture: a line a load, the ends of the intervals where they are."""

import re

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.report.svg.latencies import MOST_LOADS, latencies_svg

KINDS = {"ttft": "first token", "e2e": "end to end"}


def _run(i, **kinds):
    return RunMetrics(
        run_id=str(i),
        bench_id="s",
        started_utc="",
        status="ok",
        order_index=i,
        latency_ms=kinds,
    )


def _summary(median, p95, p99_bounds):
    return Summary(
        count=100,
        median=median,
        p95=p95,
        p99=p95 * 1.1,
        median_ci95=(median * 0.9, median * 1.1),
        p95_bounds=(p95 * 0.8, p95 * 1.2),
        p99_bounds=p99_bounds,
    )


def _ends(svg):
    pattern = r'stroke-width="3" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"'
    return [tuple(map(float, found)) for found in re.findall(pattern, svg)]


def test_percentiles_stand_on_a_scale_of_ratios_and_open_ends_reach_the_edge():
    svg = latencies_svg([_run(0, e2e=_summary(10.0, 40.0, (30.0, None)))], KINDS)
    median, p95, p99 = _ends(svg)
    centres = [float(x) for x in re.findall(r'cx="([\d.]+)" cy="[\d.]+" r="5"><', svg)]
    assert [a < c < b for (a, b), c in zip((median, p95), centres, strict=False)] == [True, True]
    # 0.9 to 1.1 of the median is as wide as the same ratio of anything else.
    assert round((p95[1] - p95[0]) / (median[1] - median[0]), 2) == round(0.4055 / 0.2007, 2)
    assert p99[1] == 960.0  # the right edge
    assert "p99 44.0 ms, at least 30.0 (95 %)" in svg
    assert "end to end</text>" in svg  # one load has no number


def test_loads_are_told_apart_and_the_first_are_drawn():
    runs = [_run(i, ttft=_summary(10.0, 40.0, None)) for i in range(7)]
    svg = latencies_svg(runs, KINDS)
    labels = re.findall(r">first token, load (\d)</text>", svg)
    assert labels == [str(i + 1) for i in range(MOST_LOADS)]


def test_nothing_is_drawn_of_nothing():
    assert latencies_svg([_run(0)], KINDS) == ""
    none = Summary(count=0, median=None, p95=None)
    assert latencies_svg([_run(0, e2e=none)], KINDS) == ""
