"""How often the diagnosis is right: on a few labelled recordings here, and on all of them."""

import importlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import pinchpoint as pp
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX, AS_IT_IS, Made

SCRIPTS = Path(__file__).parents[1] / "benchmarks"
FEW = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def benchmarks():
    """The modules of the benchmark, which import each other as scripts do."""
    before = set(sys.modules)
    sys.path.insert(0, str(SCRIPTS))
    names = ("accuracy", "accuracy_rows", "accuracy_figures", "held_out", "recording_cost")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path.remove(str(SCRIPTS))
    for name in set(sys.modules) - before:
        if str(SCRIPTS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def accuracy(benchmarks):
    return benchmarks.accuracy_figures  # with Row


@pytest.fixture(scope="module")
def few(benchmarks):
    return {row.name: row for row in benchmarks.accuracy_rows.judged_labelled(FEW)}


EXPECTED = {
    # recording: (first finding, its predicted step over the measured one after the fix)
    "c12_pageable_h2d.slow": ("pageable-h2d", 1.02),
    "c16_sync_in_loop.slow": ("sync-in-loop", 0.98),
    "c21_python_gc.slow": ("python-gc", 1.0),
    "c26_checkpoint_stall.slow": ("checkpoint-stall", 1.0),
    "c34_no_tensor_cores.slow": ("no-tensor-cores", 1.04),
    "c38_non_contiguous.slow": ("non-contiguous-access", 1.01),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_planted_cause_comes_first_with_the_gain_of_its_fix(few, name):
    cause, ratio = EXPECTED[name]
    row = few[name]
    assert row.found[0] == cause
    assert row.predicted_ns[0] / row.after_fix_ns == pytest.approx(ratio, abs=0.05)


def test_a_fixed_program_is_not_blamed_for_what_it_no_longer_does(few):
    assert "pageable-h2d" not in few["c12_pageable_h2d.fixed"].found


def test_a_healthy_program_has_no_finding(few):
    assert few["h05_healthy_graph_decode.healthy"].found == ()


def test_steps_are_close_to_those_without_the_profiler(few):
    stable = [row for row in few.values() if row.stable]
    assert len(stable) == 4
    for row in stable:
        assert row.corrected_ns == pytest.approx(row.unprofiled_ns, rel=0.05), row.name


def test_the_figures_of_these_few(accuracy, few):
    found = accuracy.figures(list(few.values()))
    assert (found.slow, found.first_right, found.in_three_right) == (6, 6, 6)
    assert (found.healthy, found.false_alarms, found.fixed, found.still_named) == (1, 0, 2, 0)
    assert found.gain_median < 0.08
    assert found.crashed == 0


def test_every_recording_here_is_labelled():
    rows = [json.loads(r) for r in (FEW / "labelled" / "truth.jsonl").read_text().splitlines()]
    labelled = {row["trace"] for row in rows} - {None}
    assert labelled == {path.name for path in (FEW / "labelled").glob("*.json.gz")}


def row(accuracy, found, *, case="a", variant="slow", truth=("sync-in-loop",), **more):
    facts = {
        "material": True, "time_case": True, "unprofiled_ns": 100.0, "after_fix_ns": 50.0,
        "stable": True, "predicted_ns": (50,) * len(found), "corrected_ns": 110,
        "predicted_range_ns": ((40, 60),) * len(found), "corrected_range_ns": (105, 120),
        "not_checked": (), "crashed": (),
    }  # fmt: skip
    return accuracy.Row(case=case, variant=variant, truth=truth, found=found, **facts | more)


def test_a_program_at_a_time_and_what_was_wrong_with_confidence(accuracy):
    rows = [
        row(accuracy, ("python-gc",), confidence="high"),
        row(accuracy, ("python-gc",), confidence="medium"),
        row(accuracy, (), variant="fixed", truth=("healthy",)),
        row(accuracy, ("sync-in-loop",), variant="fixed", truth=("healthy",), confidence="high"),
        row(accuracy, ("sync-in-loop",), case="b", confidence="high", below_bound=2),
        row(accuracy, ("python-gc",), case="h", variant="healthy", truth=("healthy",),
            confidence="high"),
    ]  # fmt: skip
    a, b, h = accuracy.families(rows)
    assert (a.name, a.recordings, a.first_right, a.confidently_wrong, a.alarms) == ("a", 4, 0, 1, 1)
    assert (b.first_right, b.confidently_wrong, b.below_bound) == (1, 0, 2)
    assert (h.slow, h.confidently_wrong, h.alarms) == (0, 1, 1)
    assert a.unprofiled_error == pytest.approx(0.1)
    assert b.gain_ranges.holding == b.gain_ranges.count == 1


def of_host(benchmarks, family, true_ns):
    """A step of 100 ms, half of it host work, and what it was measured to be."""
    made = Made(100e6, 50e6, 0.0, 0.0)
    return benchmarks.held_out.Predicted(family, family, 100_000_000, (0, 0), true_ns, made)


def test_a_family_gets_shares_that_the_others_chose(benchmarks):
    alone = of_host(benchmarks, "far", 140e6)  # only 0.8 of the host or more would hold it
    others = [of_host(benchmarks, name, 100e6) for name in "abcdefghij"]
    found = benchmarks.held_out.as_it_is([alone, *others])
    assert not found.said[0].holds  # the others choose the narrowest
    assert all(p.holds for p in found.said[1:])
    narrow = found.said[0].width
    assert narrow == pytest.approx(2 * ((50 * 0.03) ** 2 + (50 * 0.08) ** 2) ** 0.5 / 100)


def test_a_range_of_a_fix_stays_above_what_it_leaves_and_below_the_step_before(benchmarks):
    one = of_host(benchmarks, "a", 100e6)
    one = replace(one, bound_ns=95_000_000, base_ns=105_000_000)
    assert one.with_doubts(AFTER_A_FIX).range_ns == (95_000_000, 105_000_000)
    assert one.with_doubts(AS_IT_IS).true_ns == one.true_ns


def test_costs_of_recording_that_others_chose(benchmarks):
    found = benchmarks.recording_cost.held_out(
        [
            benchmarks.recording_cost.sample(pp.load(path), truth["case"], 1e6, 0.0)
            for path, truth in benchmarks.accuracy_rows.labelled(FEW, "c16_sync_in_loop")
        ]
    )
    assert found.families == ("c16_sync_in_loop",) * 2
    # Nobody else is there to choose, so the family gets the costs in use.
    assert found.held_out == found.in_use
    assert all(a >= b for a, b in zip(found.as_recorded, found.in_use, strict=True))


def test_every_figure_is_in_the_json(benchmarks):
    measured = benchmarks.accuracy.measure(FEW, "c34_no_tensor_cores")
    written = json.loads(json.dumps(benchmarks.accuracy.as_json(measured)))
    labelled, untuned = written["sets"]
    assert (labelled["recordings"], untuned["recordings"]) == (1, 0)
    assert labelled["families"][0]["name"] == "c34_no_tensor_cores"
    assert written["held_out"]["recording_cost"]["chosen"][0][1] == 1
    page = benchmarks.accuracy.page(measured)
    assert "| c34_no_tensor_cores | 1 | 1 of 1 | 1 of 1 | 0 | 0 |" in page


def test_counts_a_parent_half_and_leaves_out_what_cannot_be_told(accuracy):
    rows = [
        row(accuracy, ("sync-in-loop",), predicted_ns=(60,)),
        row(accuracy, ("sync-in-loop",), case="b", truth=("per-param-sync",)),
        row(accuracy, (), case="c"),
        row(accuracy, (), case="d", material=False),
        row(accuracy, ("python-gc", "sync-in-loop"), case="e", truth=("sync-in-loop", "python-gc")),
        row(accuracy, ("sync-in-loop",), variant="fixed", truth=("healthy",), corrected_ns=None),
        row(accuracy, ("launch-bound",), case="h", variant="healthy", truth=("healthy",)),
    ]
    found = accuracy.figures(rows)
    assert (found.slow, found.first_right, found.in_three_right) == (4, 2.5, 2.5)
    assert (found.two, found.both_right) == (1, 1)
    assert (found.fixed, found.still_named, found.false_alarms) == (1, 1, 1)
    assert found.unprofiled_median == pytest.approx(0.1)
    assert found.gain_median == pytest.approx(0.2)


def test_counts_ranges_that_hold_what_was_measured(accuracy):
    rows = [
        row(accuracy, ("sync-in-loop",), predicted_range_ns=((40, 50),)),
        row(accuracy, ("sync-in-loop",), case="b", predicted_range_ns=((51, 66),)),
        row(
            accuracy, ("sync-in-loop",), case="c", predicted_ns=(None,), predicted_range_ns=(None,)
        ),
        row(accuracy, (), case="d", corrected_range_ns=(95, 117), after_fix_ns=None),
    ]
    found = accuracy.figures(rows)
    assert (found.gain_ranges.holding, found.gain_ranges.count) == (1, 2)
    assert found.gain_ranges.median_width == pytest.approx(15 / 50)
    assert (found.unprofiled_ranges.holding, found.unprofiled_ranges.count) == (1, 4)


@pytest.mark.corpus
@pytest.mark.timeout(
    1800
)  # all of the corpus: half a minute alone, ten times that on a busy machine
def test_floors_over_all_labelled_recordings(accuracy, benchmarks):
    """A little below what was last measured; see docs/accuracy.md."""
    corpus = os.environ.get("PINCHPOINT_CORPUS")
    if not corpus:
        pytest.skip("PINCHPOINT_CORPUS is not set")
    found = accuracy.figures(list(benchmarks.accuracy_rows.judged_labelled(Path(corpus))))
    assert found.slow >= 45
    assert found.first_right / found.slow >= 0.88
    assert found.both_right == found.two
    assert found.false_alarms == 0
    assert found.still_named <= 1
    assert found.unprofiled_median <= 0.025
    assert found.unprofiled_p90 <= 0.12
    assert found.gain_median <= 0.10
    assert found.gain_p90 <= 0.55
    for ranges in (found.unprofiled_ranges, found.gain_ranges):
        assert ranges.holding / ranges.count >= 0.8
    assert found.unprofiled_ranges.median_width <= 0.2
    assert found.gain_ranges.median_width <= 0.45
    assert found.crashed == 0


@pytest.mark.parametrize(
    ("text", "whole", "half"),
    [
        ("", (), ()),
        ("recompiles; graph-breaks (half); new:a-b", ("recompiles", "a-b"), ("graph-breaks",)),
        ("launch-bound (half), python-timestep-loop is wrong (no loop).", (), ("launch-bound",)),
    ],
)
def test_ids_are_read_from_the_words_that_accept_them(benchmarks, text, whole, half):
    found = benchmarks.accuracy_rows._accepted(text)
    assert found == (whole, half)


def test_untuned_programs_count_what_was_accepted_and_measured(benchmarks, accuracy):
    fact = {
        "case": "u", "variant": "slow", "truth": "new:own-cause + per-param-sync",
        "step_ms_unprofiled": [20.0, 21.0], "step_ms_fixed": [9.0, 8.0],
        "also_accepted": "launch-bound (half)",
    }  # fmt: skip
    truth = benchmarks.accuracy_rows._untuned_truth(fact, {})
    assert truth["truth"] == ("own-cause", "per-param-sync")
    assert (truth["half"], truth["after_fix_ns"]) == (("launch-bound",), 8e6)
    waste = {**fact, "variant": "healthy", "truth": "healthy", "also_accepted": ""}
    waste |= {"step_ms_fixed": None, "note": "real waste of another kind is in it: see w09"}
    found = benchmarks.accuracy_rows._untuned_truth(waste, {"w09": [5.0, 6.0]})
    assert found["truth"] == ("non-contiguous-access",)
    assert (found["variant"], found["after_fix_ns"]) == ("slow", 5e6)
