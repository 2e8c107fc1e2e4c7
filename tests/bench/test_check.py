import msgspec
import numpy as np
import pytest

from pinchpoint.bench.ab.gain import gain_in_words
from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.baselines import (
    Entry,
    Gate,
    SessionMedian,
    entry_key,
    read_baseline,
    with_session,
    write_baseline,
)
from pinchpoint.bench.baselines.check import check, suspects
from pinchpoint.bench.baselines.confirmation import confirmed
from pinchpoint.bench.baselines.screen import levels, screen
from pinchpoint.bench.measures import Threshold
from pinchpoint.bench.metrics import Memory, RunMetrics, Summary, TimedSteps, Work
from pinchpoint.bench.result import BenchResult
from pinchpoint.errors import MeasurementInvalid, NotComparable, UnreadableFile, UsageError
from pinchpoint.report import ci
from pinchpoint.report.pages import check as check_page

ENV = {"gpu": {"count": 1, "devices": [{"name": "H100"}]}, "host": {"cpu_model": "EPYC"}}
FIVE_PERCENT = Gate(Threshold(ratio=0.05), "fail")


def _entry(values, **more):
    medians = tuple(
        SessionMedian(session_id=str(i), utc="", value=v, runs=3) for i, v in enumerate(values)
    )
    return Entry(**({"better": "lower", "unit": "ms", "session_medians": medians} | more))


def _result(duration_s, session="new", memory=None, **more):
    runs = tuple(
        RunMetrics(
            run_id=f"{session}{i}",
            bench_id="train",
            started_utc="",
            status=more.pop("status", "ok"),
            duration_s=duration_s * (1 + 0.001 * i),
            memory=Memory(torch_peak_allocated_bytes=memory),
        )
        for i in range(3)
    )
    return BenchResult(
        session_id=session,
        bench_id="train",
        kind="run",
        created_utc="2026-01-01",
        command=("train",),
        runs=runs,
        environment=more.pop("environment", ENV),
        env_key="k",
    )


def _baseline(values, gate=FIVE_PERCENT, memory=None):
    baseline = None
    for i, value in enumerate(values):
        gates = {"duration_s": gate, "device_peak_bytes": Gate(Threshold(ratio=0.02), "fail")}
        baseline = with_session(baseline, _result(value, str(i), memory), gates=gates)
    return baseline


STEADY = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.02, 9.98]


@pytest.mark.parametrize(
    ("value", "more", "verdict"),
    [
        pytest.param(10.05, {}, "pass", id="as before"),
        pytest.param(10.5, {}, "suspect", id="over the bound, under ten per cent"),
        pytest.param(11.5, {}, "regressed", id="over ten per cent"),
        pytest.param(5.0, {}, "pass", id="faster"),
        pytest.param(9.5, {"better": "higher"}, "suspect", id="higher is better"),
        pytest.param(10.15, {"threshold_pct": 5.0}, "pass", id="under half of the threshold"),
    ],
)
def test_screen(value, more, verdict):
    assert screen(value, _entry(STEADY, **more)).verdict == verdict


def test_the_bound_is_a_prediction_interval_of_the_window():
    stats = pytest.importorskip("scipy.stats", reason="scipy is the oracle")
    rng = np.random.default_rng(0)
    past = np.exp(rng.normal(np.log(10), 0.02, 20))
    found = screen(10.0, _entry(past.tolist()))
    spread = np.log(past).std(ddof=1) * np.sqrt(1 + 1 / 20)
    assert np.log1p(found.bound_ratio) == pytest.approx(stats.t.ppf(0.995, 19) * spread)


def test_noise_that_hides_the_threshold_is_no_silent_pass():
    noisy = [10.0, 12.0, 9.0, 11.0, 8.5, 10.5]
    found = screen(10.2, _entry(noisy, threshold_pct=5.0))
    assert found.verdict == "inconclusive"
    assert "past sessions differ so much" in found.why


def test_few_sessions_are_said():
    assert "with 1 past session; how much they differ" in screen(10.1, _entry([10.0])).why
    assert "with 2 past sessions;" in screen(10.1, _entry([10.0, 10.1])).why
    assert screen(10.1, _entry([])).verdict == "inconclusive"


def test_only_the_present_level_counts():
    entry = _entry([20.0] * 8 + [10.0] * 6, segment_start="8")
    assert screen(11.5, entry).verdict == "regressed"
    assert len(entry.present_level()) == 6


def test_level_changes_are_found_in_the_whole_history():
    rng = np.random.default_rng(2)
    entry = _entry(np.r_[rng.normal(10, 0.05, 20), rng.normal(11, 0.05, 10)].tolist())
    [point] = levels(entry)
    assert point.at == 20


def test_pass_and_exit_code():
    found = check(_result(10.0), _baseline(STEADY))
    assert (found.verdict, found.exit_code) == ("pass", 0)


def test_regression_and_exit_code():
    found = check(_result(12.0), _baseline(STEADY))
    assert (found.verdict, found.exit_code) == ("regressed", 1)
    assert "wall time" in found.why


def test_a_suspect_is_inconclusive_until_it_is_confirmed():
    found = check(_result(10.6), _baseline(STEADY))
    assert (found.verdict, found.exit_code) == ("inconclusive", 4)
    assert suspects(found) == {"duration_s": pytest.approx(0.05)}
    cleared = confirmed(found, _ab("pass", 0.001))
    assert (cleared.verdict, cleared.exit_code) == ("pass", 0)
    proven = confirmed(found, _ab("regressed", 0.06))
    assert (proven.verdict, proven.exit_code) == ("regressed", 1)
    assert proven.confirmation is not None


def _ab(verdict, estimate, **more):
    measure = MeasureResult(
        name="duration_s",
        label="wall",
        unit="s",
        better="lower",
        gated=True,
        a_median=10,
        b_median=10,
        pairs=5,
        estimate_ratio=estimate,
        ci95_ratio=None,
        sd_pair_log=0.01,
        verdict=verdict,
    )
    own = more.pop("own", None)
    measure = msgspec.structs.replace(measure, **more)
    others = (msgspec.structs.replace(measure, **own),) if own else ()
    return AbResult(
        session_id="ab",
        bench_id="train",
        verdict=verdict,
        why="",
        measures=(measure, *others),
        arms={},
        pairs_measured=5,
        pairs_excluded=0,
        looks=(5,),
    )


BETTER = {
    "improved": True,
    "a_mean": 12.2,
    "b_mean": 10.0,
    "ci95_ratio": (1 / 1.30 - 1, 1 / 1.15 - 1),
}


def test_an_improvement_is_said_first_and_counted():
    found = confirmed(check(_result(10.6), _baseline(STEADY)), _ab("pass", 1 / 1.22 - 1, **BETTER))
    assert (found.verdict, found.exit_code, found.items[0].improved) == ("pass", 0, True)
    assert found.why.startswith("wall improved 1.22 × (95 %: 1.15 to 1.30 ×), against the base")
    shown = check_page.page(found)
    assert ci.result_outputs(shown) == "verdict=pass\nregressions=0\nimprovements=1\n"
    (line,) = ci.result_annotations(shown).splitlines()
    assert line.startswith("::notice ")
    assert "12.2 s to 10.0 s; improved 1.22 ×" in line
    assert "improved 1.22 ×" in ci.junit(shown)


def test_what_neighbours_gave_back_is_no_improvement():
    """Wall time became shorter, and the time without waiting for a CPU did not."""
    own = {"name": "own_ms_per_step", "gated": False, "estimate_ratio": 0.01}
    ab = _ab("pass", 1 / 1.22 - 1, own=own, **BETTER)
    found = confirmed(check(_result(10.6), _baseline(STEADY)), ab)
    assert not found.items[0].improved
    assert found.why.endswith("against the base (wall 1.0 % worse)")


def test_what_improved_and_has_no_gate_is_said_to_have_none():
    """Wall time became shorter by half and varies; the program's own time by a fifth, for sure."""
    own = {
        "name": "own_ms_per_step",
        "label": "step without waiting for a CPU",
        "unit": "ms",
        "gated": False,
        "a_mean": 1.8,
        "b_mean": 1.4,
        "estimate_ratio": 1.4 / 1.8 - 1,
        "ci95_ratio": (-0.24, -0.20),
        "improved": True,
    }
    ab = _ab("pass", -0.5, own=own)
    found = confirmed(check(_result(10.6), _baseline(STEADY)), ab)
    said = "step without waiting for a CPU, which has no gate, improved 1.29 × (95 %: 1.25 to"
    assert found.why.startswith(said)
    (case,) = [c for c in check_page.page(found).cases if c.name == "duration_s"]
    assert case.improved
    assert "step without waiting for a CPU 1.80 to 1.40 ms, improved 1.29 ×" in case.message
    small = own | {"estimate_ratio": -0.01, "ci95_ratio": (-0.011, -0.009)}
    found = confirmed(
        check(_result(10.6), _baseline(STEADY)), _ab("pass", 0.0, own=small, threshold_ratio=0.05)
    )
    assert not found.items[0].improved  # sure, and not worth a word


def test_an_improvement_begins_with_the_measure_that_is_gated():
    """On a busy machine a shorter step waits less often: both are said, the gated one first."""
    own = {"name": "own_ms_per_step", "label": "own", "gated": False, "estimate_ratio": -0.2}
    ab = _ab("pass", 1 / 1.6 - 1, own=own, improved=True)
    busy = msgspec.structs.replace(_result(10.0).runs[0], at_once=True)
    ab = msgspec.structs.replace(ab, runs=(busy,))
    ab = msgspec.structs.replace(
        ab,
        measures=tuple(
            msgspec.structs.replace(m, name=n)
            for m, n in zip(ab.measures, ("step_time_ms", "own_ms_per_step"), strict=True)
        ),
    )
    assert gain_in_words(ab) == "wall improved 1.60 ×; own improved 1.25 ×"


def test_what_decides_in_place_of_a_wall_time_is_shown_in_its_place():
    own = {
        "name": "own_ms_per_step",
        "label": "step without waiting for a CPU",
        "unit": "ms",
        "gated": False,
        "a_mean": 16.0,
        "b_mean": 18.0,
        "estimate_ratio": 0.125,
        "ci95_ratio": (0.09, 0.16),
    }
    ab = _ab("inconclusive", 0.4, own=own)
    ab = msgspec.structs.replace(ab, verdict="regressed", decided_by=("own_ms_per_step",))
    found = confirmed(check(_result(12.0), _baseline(STEADY)), ab)
    (case,) = [c for c in check_page.page(found).cases if c.name == "duration_s"]
    assert case.message == (
        "wall time of the process: its wall time varies too much here to tell; against the base"
        " step without waiting for a CPU 16.0 to 18.0 ms, 12.5 % worse (95 %: 9.0 to 16.0 % worse)"
    )
    _, instead, *rest = check_page.page(found).tables
    assert instead.heads[0] == "decides in place of wall time"
    assert [row[0] for row in instead.rows] == ["step without waiting for a CPU"]
    assert "95 %: 9.0 to 16.0 % worse" in instead.below[0][0].text
    shown = [row[0] for table in rest for row in table.rows]
    assert "step without waiting for a CPU" not in shown


def test_figures_are_those_of_the_pairs_and_those_of_past_sessions_stand_apart():
    """The session took 12 s and the history says 10; the pairs beside it 8.0 and 8.624."""
    pairs = {"a_mean": 8.0, "b_mean": 8.624, "ci95_ratio": (0.06, 0.096)}
    found = confirmed(check(_result(12.0), _baseline(STEADY)), _ab("regressed", 0.078, **pairs))
    shown = check_page.page(found)
    (first,) = shown.tables
    assert first.rows[0][:4] == ("wall time of the process", "8.00 s", "8.62 s", "7.8 % worse")
    assert "8 past sessions in the baseline: wall time of the process 10.0 s" in shown.notes[0]
    assert "only the pairs decided" in shown.notes[0]
    (case,) = [c for c in shown.cases if c.name == "duration_s"]
    assert case.message == (
        "wall time of the process: 8.00 s to 8.62 s; 7.8 % worse (95 %: 6.0 to 9.6 % worse)"
        " against the base"
    )


def test_a_warning_gate_never_fails():
    baseline = _baseline(STEADY, Gate(Threshold(ratio=0.05), "warn"))
    found = check(_result(12.0), baseline)
    assert (found.verdict, found.exit_code) == ("warned", 0)


@pytest.mark.parametrize(
    ("estimate", "between", "item", "verdict"),
    [
        pytest.param(-0.3, (-0.5, -0.2), "pass", "pass", id="better"),
        pytest.param(0.01, (-0.02, 0.04), "pass", "pass", id="below the threshold"),
        pytest.param(-0.3, (-0.5, 0.06), "inconclusive", "pass", id="pairs cannot tell"),
        pytest.param(0.2, (0.1, 0.3), "regressed", "warned", id="worse for certain"),
        pytest.param(0.2, None, "regressed", "warned", id="no interval: the history warns"),
    ],
)
def test_what_warns_is_judged_by_the_pairs_where_these_give_it(estimate, between, item, verdict):
    """20 % longer than the session of another hour, where 5 % are asked for."""
    baseline = _baseline(STEADY, Gate(Threshold(ratio=0.05), "warn"))
    found = check(_result(12.0), baseline)
    pairs = _ab("pass", estimate, gated=False, ci95_ratio=between, a_mean=5.0, b_mean=5.0)
    said = confirmed(found, pairs)
    assert (said.items[0].verdict, said.verdict) == (item, verdict)
    assert ("against the base" in said.items[0].why) == (between is not None)
    labels = [row[0] for one in check_page.page(said).tables for row in one.rows]
    assert labels.count("wall time of the process") == 1


def test_a_percentile_of_too_few_steps_warns_of_nothing_in_pairs_either():
    baseline = _baseline(STEADY, Gate(Threshold(ratio=0.05), "warn"))
    found = check(_result(12.0), baseline)
    (item,) = [i for i in found.items if i.name == "duration_s"]
    few = msgspec.structs.replace(item, center=None, verdict="inconclusive", why="9 samples")
    found = msgspec.structs.replace(found, items=(few,))
    said = confirmed(found, _ab("pass", 0.2, gated=False, ci95_ratio=(0.1, 0.3)))
    assert (said.items[0].why, said.verdict) == ("9 samples", "pass")


def test_a_warning_in_its_unit_is_held_against_the_base_and_shown_as_given():
    """10 s of the 10 s of past sessions are all of it; of the base's 100 s a tenth."""
    baseline = _baseline(STEADY, Gate(Threshold(absolute=10.0), "warn"))
    found = check(_result(10.0), baseline)
    pairs = {"a_mean": 100.0, "b_mean": 120.0, "ci95_ratio": (0.18, 0.22)}
    said = confirmed(found, _ab("pass", 0.2, gated=False, **pairs))
    assert said.items[0].verdict == "regressed"
    (row,) = [r for t in check_page.page(said).tables for r in t.rows if "wall" in r[0]]
    assert row[4:] == ("warn 10.0 s", "regressed")


def test_from_where_on_a_session_counts_as_worse_is_a_value_and_is_explained():
    """Half of 30 %; where runs or sessions differ by more, that is said with what helps."""
    shown = check_page.page(check(_result(10.0), _baseline(STEADY, Gate(Threshold(0.3), "fail"))))
    (below,) = shown.tables[0].below
    assert below[0].text == "counts as worse from 11.5 s on"
    (note,) = [n for n in shown.notes if n.startswith("counts as worse from")]
    assert note.endswith("half of the gate away from the past sessions")
    wild = [10.0, 12.0, 9.0, 11.0, 8.5, 10.5]
    shown = check_page.page(check(_result(10.0), _baseline(wild)))
    (note,) = [n for n in shown.notes if n.startswith("counts as worse from")]
    assert "past sessions differ so much" in note
    assert "longer runs, a quieter machine or a base to run in pairs with" in note


def test_memory_is_compared_exactly():
    baseline = _baseline(STEADY, memory=1_000_000)
    assert check(_result(10.0, memory=1_010_000), baseline).verdict == "pass"
    assert check(_result(10.0, memory=1_050_000), baseline).verdict == "regressed"


def test_another_machine_is_not_comparable():
    other = {"gpu": {"count": 1, "devices": [{"name": "A100"}]}, "host": {"cpu_model": "EPYC"}}
    with pytest.raises(NotComparable, match="GPU model: H100 in the baseline, A100 here") as error:
        check(_result(10.0, environment=other), _baseline(STEADY))
    assert error.value.exit_code == 3
    forced = check(_result(10.0, environment=other), _baseline(STEADY), force=True)
    assert forced.forced
    assert any("A100" in w for w in forced.warnings)


def test_no_valid_run():
    broken = _result(10.0)
    runs = tuple(msgspec.structs.replace(r, invalid_reasons=("hot",)) for r in broken.runs)
    with pytest.raises(MeasurementInvalid, match="hot"):
        check(msgspec.structs.replace(broken, runs=runs), _baseline(STEADY))


def test_an_unknown_benchmark():
    other = msgspec.structs.replace(_result(10.0), bench_id="other")
    with pytest.raises(UsageError, match=r"no session of this command \(other"):
        check(other, _baseline(STEADY))


def test_baseline_round_trip_and_new_level(tmp_path):
    baseline = _baseline(STEADY)
    path = tmp_path / "baseline.json"
    write_baseline(path, baseline)
    assert read_baseline(path) == baseline
    lifted = with_session(baseline, _result(12.0, "up"), gates={}, new_level=True)
    entry = lifted.entries[entry_key(_result(12.0))]["duration_s"]
    assert [m.value for m in entry.present_level()] == [pytest.approx(12.012)]
    assert len(entry.session_medians) == 9
    assert entry.threshold_pct == 5.0


@pytest.mark.parametrize("slept", [False, True])
def test_cpu_time_with_threads_that_slept_is_not_that_of_other_sessions(slept):
    """They sleep where the machine is busy only."""
    work = Work(wall_s=3.0, own_s=2.0, cpu_s=2.0, imports_s=0.0)
    plain = _result(10.0)
    runs = tuple(msgspec.structs.replace(r, work=work, threads_sleep=slept) for r in plain.runs)
    result = msgspec.structs.replace(plain, runs=runs)
    kept = with_session(None, result, gates={}).entries[entry_key(result)]
    assert ("work_s" in kept, "work_cpu_s" in kept, "own_work_s" in kept) == (
        True,
        not slept,
        not slept,
    )


def test_the_same_session_counts_once():
    once = _baseline(STEADY)
    twice = with_session(once, _result(10.0, "0"), gates={})
    key = entry_key(_result(10.0))
    assert (
        twice.entries[key]["duration_s"].session_medians
        == once.entries[key]["duration_s"].session_medians
    )


def test_a_missing_baseline(tmp_path):
    with pytest.raises(UnreadableFile, match=r"none\.json"):
        read_baseline(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ('"gate": "fail"', '"gate": "fial"', "'fial' is none of fail, warn, show"),
        ('"test": "window"', '"test": ""', "'' is none of window, exact"),
        ('"better": "lower"', '"better": "less"', "'less' is none of higher, lower"),
        ('"window": 20', '"window": 0', "a window of 0 sessions"),
    ],
)
def test_a_word_that_would_be_no_gate_is_damage(said, instead, why, tmp_path):
    path = tmp_path / "b.json"
    write_baseline(path, _baseline(STEADY))
    text = path.read_text()
    assert said in text
    path.write_text(text.replace(said, instead))
    with pytest.raises(UnreadableFile, match=why):
        read_baseline(path)


def test_what_is_nested_without_end_is_damaged(tmp_path):
    path = tmp_path / "b.json"
    write_baseline(path, _baseline([1.0]))
    text = path.read_text()
    assert '"EPYC"' in text
    path.write_text(text.replace('"EPYC"', "[" * 300 + "]" * 300))
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        read_baseline(path)


def _stepping(wall_ms, cpu_ms, session="new", load=0.1):
    host = {"cpu_model": "EPYC", "load_1min": load, "cpus_logical": 2}
    result = _result(1.0, session, environment=ENV | {"host": host})
    runs = tuple(
        msgspec.structs.replace(
            run,
            steps=TimedSteps(
                count=50,
                unit="ms",
                clock="host",
                source="mark",
                cpu_ms=cpu_ms,
                step_time_ms=Summary(count=50, median=wall_ms * (1 + 0.001 * i)),
            ),
        )
        for i, run in enumerate(result.runs)
    )
    return msgspec.structs.replace(result, runs=runs)


def _history(sessions):
    baseline, gates = None, {"step_time_ms": FIVE_PERCENT}
    for i in range(sessions):
        value = 10 * (1 + 0.002 * (i % 3))
        baseline = with_session(baseline, _stepping(value, 9.0, str(i)), gates=gates)
    return baseline


@pytest.mark.parametrize(
    ("sessions", "load", "wall_ms", "cpu_ms", "verdict"),
    [
        pytest.param(8, 0.1, 12.0, 9.0, "regressed", id="a quiet machine with a history"),
        pytest.param(8, 4.0, 12.0, 9.0, "inconclusive", id="a busy machine"),
        pytest.param(8, 4.0, 16.0, 12.0, "inconclusive", id="whatever its CPU time says"),
        pytest.param(
            8, 0.1, 12.0, 10.8, "regressed", id="quiet, and its CPU time is worse as well"
        ),
        pytest.param(2, 0.1, 12.0, 9.0, "inconclusive", id="few sessions"),
        pytest.param(2, 0.1, 16.0, 9.0, "regressed", id="few sessions, and far worse"),
        pytest.param(8, 4.0, 10.0, 9.0, "pass", id="as before, on a busy machine"),
    ],
)
def test_wall_time_where_it_cannot_be_compared(sessions, load, wall_ms, cpu_ms, verdict):
    found = check(_stepping(wall_ms, cpu_ms, load=load), _history(sessions))
    assert found.verdict == verdict
    if verdict == "inconclusive":
        assert "--base COMMAND measures both side by side" in found.why
        assert suspects(found) == {"step_time_ms": 0.05}
