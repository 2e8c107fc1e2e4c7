import pytest

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.result import BenchResult
from pinchpoint.compare.results import compare_results
from pinchpoint.errors import NotComparable
from pinchpoint.report import terminal
from pinchpoint.report.pages import compare as compare_page
from pinchpoint.report.pages.result import blocks

ENV = {"gpu": {"count": 1, "devices": [{"name": "H100"}]}, "host": {"cpu_model": "EPYC"}}


def _result(values, *, gpu="H100", bench_id="train", **params):
    env = {"gpu": {"count": 1, "devices": [{"name": gpu}]}, "host": {"cpu_model": "EPYC"}}
    runs = tuple(
        RunMetrics(run_id=str(i), bench_id=bench_id, started_utc="", status="ok", duration_s=v)
        for i, v in enumerate(values)
    )
    return BenchResult(
        session_id="s",
        bench_id=bench_id,
        kind="run",
        created_utc="2026-01-01T10:00",
        command=("train",),
        params=params,
        runs=runs,
        environment=env,
        env_key="k",
    )


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        pytest.param([10.0, 10.2, 9.9], "same", id="ranges overlap"),
        pytest.param([10.5, 10.6, 10.4], "cannot tell", id="apart by five per cent"),
        pytest.param([12.0, 12.2, 11.9], "worse", id="apart by twenty per cent"),
        pytest.param([5.0, 5.1, 5.2], "better", id="twice as fast"),
    ],
)
def test_stored_results_are_judged_with_care(b, verdict):
    found = compare_results(_result([10.0, 10.1, 9.95]), _result(b))
    [change] = found.changes
    assert change.verdict == verdict
    assert any("different sessions" in w for w in found.warnings)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_result([1.0], gpu="A100"), id="another device"),
        pytest.param(_result([1.0], bench_id="eval"), id="another benchmark"),
        pytest.param(_result([1.0], batch=4), id="other parameters"),
    ],
)
def test_not_comparable(other):
    with pytest.raises(NotComparable) as error:
        compare_results(_result([1.0]), other)
    assert error.value.exit_code == 3
    forced = compare_results(_result([1.0]), other, force=True)
    assert forced.forced
    assert "(forced)" in terminal.render(blocks(compare_page.results_page(forced)))
