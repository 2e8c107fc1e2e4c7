import os
import sys
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from pinchpoint.bench import ab
from pinchpoint.bench.ab import AbPlan, at_once, run_ab
from pinchpoint.bench.ab.calibration import calibration
from pinchpoint.bench.ab.result import good_pairs, log_ratios
from pinchpoint.bench.folders import start_session
from pinchpoint.bench.measures import MEASURES, custom_measure
from pinchpoint.bench.metrics import Gpu, RunMetrics, Summary, TimedSteps
from pinchpoint.bench.run import Arm, RunOptions
from pinchpoint.bench.run.process import _RUNNING, run_command
from pinchpoint.bench.run.waits import _SAID_BY_USER
from pinchpoint.errors import MeasurementInvalid, UsageError

A, B = Arm("A", ("a",)), Arm("B", ("b",))


def _said(text):
    return None


@pytest.fixture
def machine(monkeypatch):
    """Replaces the measurement by a function of the arm and the run's number."""

    def arrange(duration_s, **more):
        numbers = count()

        def measured(arm, options, place):
            facts = {k: v(arm.name, place.order_index) for k, v in more.items()}
            return RunMetrics(
                run_id=str(next(numbers)),
                bench_id=options.bench_id,
                arm=arm.name,
                pair_index=place.pair_index,
                order_index=place.order_index,
                started_utc="",
                duration_s=duration_s(arm.name, place.order_index),
                **({"status": "ok"} | facts),
            )

        monkeypatch.setattr(ab, "measure_run", measured)
        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))

    return arrange


def _ab(tmp_path, **more):
    plan = AbPlan(A, B, RunOptions("test", session_id="s"), **more)
    with start_session("ab", {}, tmp_path / "s") as session:
        return run_ab(plan, session, _said)


def _jitter(i):
    return 1 + 0.002 * ((i * 7) % 5 - 2)


def test_no_change_passes_after_three_pairs_where_these_are_alike(tmp_path, machine):
    machine(lambda arm, i: 10 * _jitter(i))
    result = _ab(tmp_path)
    assert (result.verdict, result.pairs_measured) == ("pass", 3)
    assert [r.arm for r in sorted(result.runs, key=lambda r: r.order_index)][:4] == list("ABBA")


@pytest.mark.parametrize("most", [4, 5, 20, 160])
def test_three_pairs_may_pass_whatever_the_plan(tmp_path, machine, most):
    machine(lambda arm, i: 10 * _jitter(i))
    result = _ab(tmp_path, most_pairs=most)
    assert (result.verdict, result.pairs_measured, result.looks) == ("pass", 3, (3, most))


def _pairs_of(tmp_path, machine, *percent):
    """What pairs of B against A come to that differ by so much, and are enough."""
    ratios = iter([1.0, *(1 + p / 100 for p in percent)])  # the first is the warm-up's
    machine(lambda arm, i: 10.0 if arm == "A" else 10.0 * next(ratios))
    result = _ab(tmp_path)
    return result.verdict, result.pairs_measured, next(m.improved for m in result.measures)


@pytest.mark.parametrize(
    ("percent", "found"),
    [
        pytest.param((0.3, -0.4, 0.2), ("pass", 3, False), id="alike"),
        pytest.param((1.5, -1.2, 0.9, 0.1, -0.3), ("pass", 5, False), id="less alike"),
        pytest.param((2.7, 2.9, 2.5, 2.6, 2.8), ("regressed", 5, False), id="nearly 3 %"),
        pytest.param((-4.0, -4.1, -3.9, -4.0, -4.1), ("pass", 5, True), id="better"),
    ],
)
def test_three_pairs_pass_only_what_neither_looks_worse_nor_better(
    tmp_path, machine, percent, found
):
    """Of a threshold of 3 %; improvements are claimed at looks alone, as regressions are."""
    assert _pairs_of(tmp_path, machine, *percent) == found


def test_a_slow_down_of_five_percent_is_found(tmp_path, machine):
    machine(lambda arm, i: 10 * _jitter(i) * (1.05 if arm == "B" else 1))
    result = _ab(tmp_path)
    assert result.verdict == "regressed"
    [gated] = [m for m in result.measures if m.gated]
    assert gated.name == "duration_s"
    assert gated.estimate_ratio == pytest.approx(0.05, abs=0.005)
    assert "5." in result.why or "4.9" in result.why


def test_an_improvement_passes_and_is_said(tmp_path, machine):
    machine(lambda arm, i: 10 * _jitter(i) * (0.5 if arm == "B" else 1))
    result = _ab(tmp_path)
    assert result.verdict == "pass"
    assert "improved 2.00 ×" in result.why


def test_an_improvement_is_claimed_as_carefully_as_a_regression(tmp_path, machine):
    better = iter([0.90, 0.97, 0.99, 0.94, 0.96])  # the 95 % interval is below 0, and no more
    machine(lambda arm, i: 10.0 if arm == "A" else 10.0 * next(better, 1.0))
    result = _ab(tmp_path, most_pairs=5, warmup_runs=0)
    [gated] = [m for m in result.measures if m.gated]
    assert gated.ci95_ratio[1] < 0
    assert not gated.improved
    assert result.why == "no change as large as the threshold"


def test_a_steady_drift_is_no_regression(tmp_path, machine):
    machine(lambda arm, i: 10 * 1.02**i)
    assert _ab(tmp_path).verdict == "pass"


def test_noise_is_inconclusive_with_what_it_would_take(tmp_path, machine):
    machine(lambda arm, i: 10 * (1 + 0.3 * ((i * 13) % 7 - 3) / 3))
    result = _ab(tmp_path, most_pairs=5)
    assert result.verdict == "inconclusive"
    assert "pairs on this machine show changes" in result.why
    assert result.why.count("on this machine") == 1  # measures that say the same, together


@pytest.mark.parametrize(
    ("budget_s", "pairs", "threshold"),
    [(None, "--pairs ", "--threshold "), (3600.0, "--budget ", "a threshold of ")],
)
def test_advice_is_in_the_options_that_there_are(tmp_path, machine, budget_s, pairs, threshold):
    """``bench check`` has a budget, and neither ``--pairs`` nor ``--threshold``."""
    machine(lambda arm, i: 10 * (1 + 0.1 * ((i * 13) % 7 - 3) / 3))
    said = _ab(tmp_path, most_pairs=5, budget_s=budget_s).advice
    assert next(one for one in said if one.startswith(("--pairs ", "--budget "))).startswith(pairs)
    assert next(one for one in said if "threshold" in one).startswith(threshold)


def test_disturbed_pairs_are_replaced_as_a_whole(tmp_path, machine):
    machine(
        lambda arm, i: 10.0 * _jitter(i),
        invalid_reasons=lambda arm, i: ("GPU 0 was slowed",) if i == 3 else (),
    )
    result = _ab(tmp_path)
    assert (result.verdict, result.pairs_measured, result.pairs_excluded) == ("pass", 6, 1)
    assert result.warnings[0] == "runs left out: GPU 0 was slowed"


def test_too_many_disturbed_pairs_decide_nothing(tmp_path, machine):
    machine(lambda arm, i: 10.0, invalid_reasons=lambda arm, i: ("hot",) if i % 4 == 0 else ())
    result = _ab(tmp_path)
    assert result.verdict == "inconclusive"
    assert "disturbed" in result.why


def _slower(arm, i):
    return (20.0 if arm == "B" else 10.0) * _jitter(i)


def test_a_regression_that_disturbed_pairs_show_too_stands(tmp_path, machine):
    machine(_slower, invalid_reasons=lambda arm, i: ("hot",) if i in (1, 5) else ())
    result = _ab(tmp_path)
    assert (result.verdict, result.pairs_measured, result.pairs_excluded) == ("regressed", 5, 2)
    assert "2 of 5 pairs were disturbed, and show it as well" in result.why


def test_a_regression_that_a_disturbed_pair_does_not_show_is_none(tmp_path, machine):
    machine(
        lambda arm, i: 10.0 if i in (1, 5) else _slower(arm, i),
        invalid_reasons=lambda arm, i: ("hot",) if i in (1, 5) else (),
    )
    result = _ab(tmp_path)
    assert (result.verdict, result.why) == ("inconclusive", "2 of 5 pairs were disturbed")


def test_no_valid_pair_is_an_invalid_measurement(tmp_path, machine):
    machine(lambda arm, i: 10.0, invalid_reasons=lambda arm, i: ("hot",))
    with pytest.raises(MeasurementInvalid, match="hot") as error:
        _ab(tmp_path)
    assert error.value.exit_code == 5


def test_a_failing_command_stops_at_once(tmp_path):
    plan = AbPlan(
        Arm("A", (sys.executable, "-c", "raise SystemExit('no data')")), B, RunOptions("t")
    )
    with (
        start_session("ab", {}, tmp_path / "s") as session,
        pytest.raises(MeasurementInvalid, match="A: the command ended with exit code 1: no data"),
    ):
        run_ab(plan, session, _said)


def test_clock_not_code(tmp_path, machine):
    machine(
        lambda arm, i: 10 * _jitter(i) * (1.06 if arm == "B" else 1),
        gpu=lambda arm, i: (
            Gpu(device="0", sm_clock_mhz={"median": 1980 / (1.06 if arm == "B" else 1)}),
        ),
    )
    result = _ab(tmp_path)
    assert result.verdict == "regressed"
    assert any("clock, not code" in note for note in result.notes)


def test_switches_that_differ_are_shown(tmp_path, machine):
    machine(lambda arm, i: 10.0, program=lambda arm, i: {"threads": 4 if arm == "A" else 8})
    assert "threads: 4 in A, 8 in B" in _ab(tmp_path).notes


def test_two_speeds_are_named(tmp_path, machine):
    machine(lambda arm, i: (10 if i % 3 else 12) * _jitter(i))
    result = _ab(tmp_path, most_pairs=10)
    assert any("two speeds" in w for w in result.warnings)


def test_a_measure_that_is_not_there(tmp_path, machine):
    machine(lambda arm, i: 10.0)
    with pytest.raises(UsageError, match="step_time_ms: the runs do not give it"):
        _ab(tmp_path, thresholds={"step_time_ms": 0.03})
    with pytest.raises(UsageError, match="no measure 'speed'"):
        _ab(tmp_path.with_name("other"), thresholds={"speed": 0.03})


def test_higher_is_better_turns_the_sign(tmp_path, machine):
    machine(lambda arm, i: 10.0, custom=lambda arm, i: {"tok": 100.0 if arm == "A" else 90.0})
    measure = custom_measure("tok", "higher")
    result = _ab(tmp_path, custom={"tok": measure})
    assert result.verdict == "regressed"
    assert log_ratios(good_pairs([tuple(result.runs[:2])]), measure)[0] == pytest.approx(
        0.105360516
    )


def test_calibration(tmp_path, machine):
    machine(lambda arm, i: 10 * _jitter(i))
    result = _ab(tmp_path, most_pairs=10, stop_early=False)
    done = calibration(result, MEASURES, "now")
    [noise] = done.noise
    assert noise.pairs == 10
    assert noise.visible_ratio["20"] < noise.visible_ratio["10"] < noise.visible_ratio["5"]
    assert noise.pairs_needed["10%"] == 3
    assert noise.verdict == "pass"


def _steps(wall_ms, cpu_ms, clock="host", own_ms=None):
    return TimedSteps(
        count=50,
        unit="ms",
        clock=clock,
        source="mark",
        cpu_ms=cpu_ms,
        own_ms=own_ms,
        step_time_ms=Summary(count=50, median=wall_ms),
    )


_BUSY = (1.0, 1.6, 0.7, 1.3, 2.1, 0.8, 1.1)  # what neighbours make of the wall time


def _on_a_busy_machine(machine, cpu_ratio, clock="host"):
    machine(
        lambda arm, i: 10.0,
        steps=lambda arm, i: _steps(
            20 * _BUSY[i * 3 % 7], 10 * _jitter(i) * (cpu_ratio if arm == "B" else 1.0), clock
        ),
    )


def test_cpu_time_sees_what_wall_time_on_a_busy_machine_cannot(tmp_path, machine):
    _on_a_busy_machine(machine, 1.1)
    result = _ab(tmp_path, thresholds={"step_time_ms": 0.1})
    assert result.verdict == "regressed"
    assert result.why.startswith("CPU time of a step 10.1 % worse; wall time")
    assert result.pairs_measured == 5  # it does not go on once that is known


def test_cpu_time_passes_nothing_by_itself(tmp_path, machine):
    """Time spent waiting is no CPU time."""
    _on_a_busy_machine(machine, 1.0)
    result = _ab(tmp_path, thresholds={"step_time_ms": 0.1})
    assert result.verdict == "inconclusive"
    assert result.why.endswith("CPU time of a step the same")
    assert result.advice


@pytest.mark.parametrize(
    ("cpu_ratio", "own_ratio", "verdict", "by"),
    [
        pytest.param(1.0, 1.0, "pass", ("own_ms_per_step", "cpu_ms_per_step"), id="as before"),
        pytest.param(1.1, 1.1, "regressed", ("own_ms_per_step", "cpu_ms_per_step"), id="more work"),
        pytest.param(1.0, 1.1, "regressed", ("own_ms_per_step",), id="it waits"),
        pytest.param(1.3, 1.0, "inconclusive", (), id="work that a worker did before"),
    ],
)
def test_time_without_waiting_for_a_cpu_decides(
    tmp_path, machine, cpu_ratio, own_ratio, verdict, by
):
    def steps(arm, i):
        far_off = 1.5 if i % 5 == 4 else 1.0  # the CPU itself is slow now and then
        ratios = (cpu_ratio, own_ratio) if arm == "B" else (1.0, 1.0)
        cpu, own = (10 * _jitter(i) * ratio * far_off for ratio in ratios)
        return _steps(20 * _BUSY[i * 3 % 7], cpu, own_ms=own)

    machine(lambda arm, i: 10.0, steps=steps)
    result = _ab(tmp_path, thresholds={"step_time_ms": 0.05}, most_pairs=40)
    assert (result.verdict, result.decided_by) == (verdict, by)


@pytest.mark.parametrize(
    ("own_ratio", "verdict"),
    [
        pytest.param(1.0, "pass", id="as before"),
        pytest.param(1.1, "regressed", id="more work, hidden by what neighbours did"),
    ],
)
def test_wall_time_passes_only_if_the_time_without_waiting_does_not_look_worse(
    tmp_path, machine, own_ratio, verdict
):
    def steps(arm, i):
        own = 10 * _jitter(i) * (own_ratio if arm == "B" else 1.0)
        return _steps(30 * _jitter(i + 1), own, own_ms=own)

    machine(lambda arm, i: 10.0, steps=steps)
    result = _ab(tmp_path, thresholds={"step_time_ms": 0.05})
    assert (result.verdict, result.pairs_measured) == (verdict, 3 if verdict == "pass" else 5)


def test_a_budget_is_used_up_and_no_more(tmp_path, machine):
    machine(lambda arm, i: 10.0 * _BUSY[i * 3 % 7])  # seconds; two warm-ups 20, six pairs 135
    result = _ab(tmp_path, most_pairs=40, budget_s=170.0)
    assert (result.verdict, result.pairs_measured, result.looks) == ("inconclusive", 6, (5, 6))
    assert any(said.startswith("time its steps: pinchpoint.step()") for said in result.advice)


def test_pairs_that_take_longer_than_the_first_ones_stay_within_the_budget(tmp_path, machine):
    """Two warm-ups and three pairs take 85 s, two more 165; eleven were planned."""
    machine(lambda arm, i: (10.0 if i < 6 else 30.0) * _BUSY[i * 3 % 7])
    result = _ab(tmp_path, most_pairs=40, budget_s=270.0)
    assert (result.verdict, result.pairs_measured, result.looks) == ("inconclusive", 5, (5,))
    assert sum(run.duration_s for run in result.runs) == pytest.approx(230.0)


def test_few_pairs_decide_where_the_budget_has_time_for_no_more(tmp_path, machine):
    """44 % beside noise of 15 %: not at the first of four looks, but at the only one there is."""
    noise = (1.0, 1.1, 1.05, 1.15, 1.0, 0.9, 0.95, 1.1, 1.0, 0.95)
    machine(lambda arm, i: 5 * noise[(i - 2) % 10] * (1.44 if arm == "B" else 1.0))
    found = _ab(tmp_path, most_pairs=40, budget_s=72.0)
    assert (found.verdict, found.pairs_measured, found.looks) == ("regressed", 4, (4,))


def test_where_a_device_works_cpu_time_decides_nothing(tmp_path, machine):
    _on_a_busy_machine(machine, 1.5, clock="cuda_event")
    assert _ab(tmp_path, thresholds={"step_time_ms": 0.1}).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("load", "waits", "said_by_user", "sleeping"),
    [
        pytest.param(0.0, False, {}, [False] * 8, id="alone"),
        pytest.param(1e3, False, {}, [True] * 8, id="busy before the first run"),
        pytest.param(0.0, True, {}, [False, True, *[True] * 6], id="a run shows it"),
        pytest.param(1e3, True, {"KMP_BLOCKTIME": "0"}, [False] * 8, id="the user says how"),
    ],
)
def test_threads_sleep_in_both_of_a_pair_where_others_take_the_cpus(
    tmp_path, machine, monkeypatch, load, waits, said_by_user, sleeping
):
    asked = []

    def steps(arm, i):
        return _steps(20 * _jitter(i), 10.0, own_ms=10.0 if waits else 20 * _jitter(i))

    machine(lambda arm, i: 10.0, steps=steps)
    measured = ab.measure_run

    def measure(arm, options, place):
        asked.append(options.threads_sleep)
        return replace(measured(arm, options, place), threads_sleep=options.threads_sleep)

    monkeypatch.setattr(ab, "measure_run", measure)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    arms = Arm("A", ("a",)), Arm("B", ("b",), env=said_by_user)
    plan = AbPlan(*arms, RunOptions("test"), thresholds={"step_time_ms": 0.05}, most_pairs=3)
    with start_session("ab", {}, tmp_path / "s") as session:
        result = run_ab(plan, session, _said)
    assert asked == sleeping
    assert any("OMP_WAIT_POLICY" in note for note in result.notes) == sleeping[-1]


@pytest.mark.parametrize(
    ("load", "cwd", "asked", "device", "together"),
    [
        pytest.param(1e3, "base", None, False, True, id="in two folders"),
        pytest.param(1e3, None, None, False, False, id="in one folder"),
        pytest.param(1e3, None, True, False, True, id="in one folder, as asked for"),
        pytest.param(1e3, "base", False, False, False, id="not asked for"),
        pytest.param(1e3, "base", None, True, False, id="on a device"),
        pytest.param(0.0, "base", None, False, False, id="alike by themselves"),
        pytest.param(0.0, "base", True, False, True, id="on a quiet machine, as asked for"),
    ],
)
def test_both_of_a_pair_run_at_once_where_others_take_the_cpus(
    tmp_path, machine, monkeypatch, load, cwd, asked, device, together
):
    machine(
        lambda arm, i: 10.0 * _jitter(i),
        steps=lambda arm, i: _steps(20.0, 20.0, "cuda_event" if device else "host", 20.0),
    )
    measured = ab.measure_run
    monkeypatch.setattr(
        ab,
        "measure_run",
        lambda arm, options, place: replace(measured(arm, options, place), **_asked(options)),
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(at_once, "_fits", lambda so_far: True)
    result = _compared(tmp_path, cwd, at_once=asked, budget_s=51.0)
    assert {run.at_once for run in result.runs} == {together}
    assert any("at the same time" in note for note in result.notes) == together
    # Two runs of warming up, 10 s each; then as many pairs as 31 s have time for.
    assert result.pairs_measured == 3
    assert [run.arm for run in result.runs] == list("ABABAB")


def _run(wall_ms, cpu_ms, *, own_ms=None, mad=0.0, at_once=False):
    steps = _steps(wall_ms, cpu_ms, own_ms=own_ms or wall_ms)
    steps = replace(steps, step_time_ms=replace(steps.step_time_ms, mad=mad))
    return RunMetrics(
        run_id="1",
        bench_id="b",
        started_utc="",
        status="ok",
        duration_s=9.0,
        steps=steps,
        at_once=at_once,
    )


@pytest.mark.parametrize(
    ("alone", "env", "asked", "expected"),
    [
        pytest.param([_run(20, 40), _run(20.5, 40)], {}, None, "APART", id="runs are alike"),
        pytest.param([_run(20, 40), _run(22, 44)], {}, None, "SWAPPED", id="runs differ"),
        pytest.param([_run(20, 40, mad=1.0)] * 2, {}, None, "SWAPPED", id="steps differ"),
        pytest.param([_run(20, 40)] * 2, {}, True, "SWAPPED", id="asked for"),
        pytest.param([_run(20, 40), _run(30, 60)], {}, False, "APART", id="not to be"),
        pytest.param([_run(20, 40), _run(30, 30)], {}, None, "APART", id="B has fewer threads"),
        pytest.param([_run(20, 40), _run(30, 30)], {}, True, "AT_ONCE", id="fewer, and asked for"),
        pytest.param([_run(20, 10), _run(30, 15)], {}, True, "AT_ONCE", id="both wait"),
        pytest.param(
            [_run(20, 40), _run(30, 60)],
            {"OMP_WAIT_POLICY": "active"},
            True,
            "AT_ONCE",
            id="threads are to spin",
        ),
    ],
)
def test_which_programs_exchange_their_cpus(monkeypatch, alone, env, asked, expected):
    monkeypatch.setattr(at_once, "_fits", lambda so_far: True)
    monkeypatch.setattr(at_once, "halves", lambda: ({0}, {1}))
    for name in _SAID_BY_USER:
        monkeypatch.delenv(name, raising=False)
    arms = Arm("A", ("a",), cwd=Path("base")), Arm("B", ("b",), env=env)
    assert at_once.manner(*arms, alone, asked=asked).name == expected


def test_at_once_that_cannot_be_is_said(tmp_path, machine):
    machine(lambda arm, i: 10.0, steps=lambda arm, i: _steps(20.0, 20.0, "cuda_event"))
    result = _compared(tmp_path, "base", most_pairs=3, at_once=True)
    assert result.warnings == (
        "--at-once: both would take the device from each other, so that A and B ran one after the"
        " other",
    )


def _asked(options):
    return {"at_once": options.at_once, "threads_sleep": options.threads_sleep}


def _compared(tmp_path, cwd, **more):
    arms = Arm("A", ("a",), cwd=Path(cwd) if cwd else None), Arm("B", ("b",))
    plan = AbPlan(*arms, RunOptions("test"), thresholds={"step_time_ms": 0.05}, **more)
    with start_session("ab", {}, tmp_path / "s") as session:
        return run_ab(plan, session, _said)


@pytest.mark.parametrize(
    ("own_ratio", "clock", "cwd", "asked", "told"),
    [
        pytest.param(0.5, "host", None, None, True, id="half of a step waits for a CPU"),
        pytest.param(1.0, "host", None, None, True, id="nothing waits"),
        pytest.param(0.5, "cuda_event", None, None, False, id="a device times the steps"),
        pytest.param(0.5, "host", "base", None, False, id="tried, as there are two folders"),
        pytest.param(0.5, "host", None, True, False, id="tried, as it was asked for"),
        pytest.param(0.5, "host", "base", False, True, id="was not to be tried"),
    ],
)
def test_pairs_at_once_are_advised_where_nothing_is_in_the_way(
    tmp_path, machine, monkeypatch, own_ratio, clock, cwd, asked, told
):
    def steps(arm, i):
        wall = 20 * _BUSY[i * 3 % 7]
        return _steps(wall, wall, clock, own_ratio * wall)

    machine(lambda arm, i: 10.0, steps=steps)
    monkeypatch.setattr(at_once, "_fits", lambda so_far: True)
    result = _compared(tmp_path, cwd, most_pairs=3, at_once=asked)
    assert result.verdict == "inconclusive"
    assert any(said.startswith("--at-once, if A and B") for said in result.advice) == told


def test_programs_that_cannot_run_at_once_run_one_after_the_other(tmp_path, machine, monkeypatch):
    """The second of two finds the port of the first in use."""
    machine(lambda arm, i: 10.0, steps=lambda arm, i: _steps(20.0 * _jitter(i), 20.0))
    measured = ab.measure_run

    def measure(arm, options, place):
        place.folder.mkdir(parents=True)
        status = "failed" if options.at_once and arm.name == "B" else "ok"
        return replace(measured(arm, options, place), status=status, **_asked(options))

    monkeypatch.setattr(ab, "measure_run", measure)
    monkeypatch.setattr(os, "getloadavg", lambda: (1e3, 1e3, 1e3))
    monkeypatch.setattr(at_once, "_fits", lambda so_far: True)
    result = _compared(tmp_path, "base", most_pairs=3)
    assert (result.pairs_measured, {run.at_once for run in result.runs}) == (3, {False})
    kept = sorted(folder.name for folder in (tmp_path / "s/runs").iterdir())
    assert kept[:4] == ["000-A", "000-A-at-once", "001-B", "001-B-at-once"]
    assert len(kept) == 2 + 2 + 6  # set aside, warm-ups, pairs


def test_programs_at_once_are_both_ended_where_one_cannot_be_started(tmp_path):
    def endless():
        return run_command((sys.executable, "-c", "while True: pass"), folder=tmp_path)

    def unknown():
        while not _RUNNING:
            pass
        raise UsageError("no such command", hint="check it")

    with pytest.raises(UsageError, match="no such command"):
        at_once.both_at_once(endless, unknown)
    assert not _RUNNING


def test_beside_a_wall_time_on_a_busy_machine_stands_what_the_step_takes_without_the_others(
    tmp_path, machine, monkeypatch
):
    def steps(arm, i):
        b = arm == "B"
        return _steps(20.0 * _jitter(i) * (3.8 if b else 1), 20.0, own_ms=1.3 if b else 1.0)

    machine(lambda arm, i: 10.0, steps=steps, threads_sleep=lambda arm, i: True)
    result = _ab(tmp_path, thresholds={"step_time_ms": 0.05})
    assert result.why == (
        "step time, median 3.80 × worse (step without waiting for a CPU 30.0 % worse)"
    )
