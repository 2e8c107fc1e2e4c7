import pytest

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.result import across_runs, with_program


def _run(duration_s, status="ok", reasons=()):
    return RunMetrics(
        run_id="r",
        bench_id="b",
        started_utc="",
        status=status,
        duration_s=duration_s,
        invalid_reasons=reasons,
    )


def test_a_run_is_the_sample_and_only_valid_ones_count():
    runs = [_run(1.0), _run(4.0), _run(2.0), _run(9.0, "failed"), _run(9.0, reasons=("hot",))]
    found = across_runs(runs)["duration_s"]
    assert found.values == (1.0, 4.0, 2.0)
    assert found.median == 2.0
    low, high = found.ci95
    assert low < 2.0 < high
    assert low * high == pytest.approx(4.0)  # symmetric on the log scale


def test_one_run_has_no_interval():
    found = across_runs([_run(1.0)])["duration_s"]
    assert (found.ci95, found.cv, found.modes) == (None, None, None)


def test_no_valid_run():
    assert across_runs([_run(1.0, "failed")]) == {}


def test_the_program_speaks_for_its_own_switches():
    record = {
        "switches": {"torch": None, "gc_enabled": True},
        "unknown": {"switches.torch": "not imported", "host.turbo": "no file"},
    }
    run = RunMetrics(
        run_id="r",
        bench_id="b",
        started_utc="",
        status="ok",
        program={"torch": "2.11", "seed": 4},
    )
    merged = with_program(record, [_run(1.0), run])
    assert merged["switches"] == {"torch": "2.11", "gc_enabled": True}
    assert merged["unknown"] == {"host.turbo": "no file"}
    assert record["switches"]["torch"] is None
