"""How often the diagnosis is right: on a few labelled recordings here, and on all of them."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "accuracy.py"
FEW = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def accuracy():
    spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["accuracy"]


@pytest.fixture(scope="module")
def few(accuracy):
    return {row.name: row for row in accuracy.judged(FEW, "")}


EXPECTED = {
    # recording: (first finding, its predicted step over the measured one after the fix)
    "c12_pageable_h2d.slow": ("pageable-h2d", 1.02),
    "c16_sync_in_loop.slow": ("sync-in-loop", 0.93),
    "c21_python_gc.slow": ("python-gc", 0.93),
    "c26_checkpoint_stall.slow": ("checkpoint-stall", 0.89),
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
def test_floors_over_all_labelled_recordings(accuracy):
    """A little below what was last measured; see docs/accuracy.md."""
    corpus = os.environ.get("PINCHPOINT_CORPUS")
    if not corpus:
        pytest.skip("PINCHPOINT_CORPUS is not set")
    found = accuracy.figures(list(accuracy.judged(Path(corpus), "")))
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
def test_ids_are_read_from_the_words_that_accept_them(accuracy, text, whole, half):
    found = accuracy._accepted(text)
    assert found == (whole, half)


def test_untuned_programs_count_what_was_accepted_and_measured(accuracy):
    fact = {
        "case": "u", "variant": "slow", "truth": "new:own-cause + per-param-sync",
        "step_ms_unprofiled": [20.0, 21.0], "step_ms_fixed": [9.0, 8.0],
        "also_accepted": "launch-bound (half)",
    }  # fmt: skip
    truth = accuracy._untuned_truth(fact, {})
    assert truth["truth"] == ("own-cause", "per-param-sync")
    assert (truth["half"], truth["after_fix_ns"]) == (("launch-bound",), 8e6)
    waste = {**fact, "variant": "healthy", "truth": "healthy", "also_accepted": ""}
    waste |= {"step_ms_fixed": None, "note": "real waste of another kind is in it: see w09"}
    found = accuracy._untuned_truth(waste, {"w09": [5.0, 6.0]})
    assert found["truth"] == ("non-contiguous-access",)
    assert (found["variant"], found["after_fix_ns"]) == ("slow", 5e6)
