"""Sentences about gains and costs that keep numbers from contradicting each other."""

import msgspec
import pytest

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import OneDeviceInfo
from pinchpoint.report.words.breakdown import device_work
from pinchpoint.report.words.ladder import rung_label
from pinchpoint.report.words.report import counted_in, gain, headline, hidden, to_fill_in
from pinchpoint.report.words.steps import spread_sentence, step_sentence, steps_found
from report_sample import full_report as sample
from report_sample import part

MS = 1_000_000


def finding(id_, **facts):
    return Finding(id=id_, summary="", evidence=(), **facts)


def with_steps(*lasting_ms, without_profiler_ms, count=None):
    report = sample()
    steps = msgspec.structs.replace(
        report.steps,
        count=len(lasting_ms) if count is None else count,
        duration_ns=tuple(ms * MS for ms in lasting_ms),
        unprofiled_ns_predicted=without_profiler_ms * MS,
    )
    return msgspec.structs.replace(report, steps=steps)


def test_a_cost_longer_than_the_step_says_what_it_was_counted_in():
    report = with_steps(160, 180, without_profiler_ms=129)
    said = counted_in(report, finding("a", cost_ns_per_step=166 * MS))
    assert said == "in all 2 recorded steps, 170 ms on average, with the profiler"
    assert counted_in(report, finding("a", cost_ns_per_step=120 * MS)) is None


def test_steps_that_the_recording_cut_are_told_from_those_counted_in():
    report = with_steps(160, 180, without_profiler_ms=129, count=3)
    said = counted_in(report, finding("a", cost_ns_per_step=166 * MS))
    assert said == "in the 2 complete of 3 recorded steps, 170 ms on average, with the profiler"


def test_no_average_that_is_shorter_than_the_cost():
    report = with_steps(160, without_profiler_ms=129)
    said = counted_in(report, finding("a", cost_ns_per_step=166 * MS))
    assert said == "in the recorded step, with the profiler"


def test_a_cost_that_hides_behind_the_device_says_how_much_of_it_is_no_gain():
    costly = finding("a", cost_ns_per_step=52 * MS, hidden_ns=30 * MS)
    said = "about 30.0 of its 52.0 ms a step pass while other work goes on: no gain there"
    assert hidden(costly) == said
    assert hidden(finding("a", cost_ns_per_step=52 * MS)) is None


def test_what_pays_after_others_counts_from_the_step_with_those():
    after = finding("b", given=("a",), given_step_ns=90 * MS, predicted_step_ns=50 * MS)
    assert gain(with_steps(130, without_profiler_ms=129), after) == "90.0 → 50.0 ms a step"


def test_several_devices_are_said_one_by_one():
    one = sample()
    assert "Device " not in (device_work(one) or "")
    devices = tuple(
        OneDeviceInfo(device=n, busy_ns=MS, idle_ratio=0.75, kernels=10) for n in range(4)
    )
    said = device_work(msgspec.structs.replace(one, devices=devices)) or ""
    assert "all devices at once are idle" in said
    assert "Each alone is idle of the recording: device 0 75.0 %, device 1 75.0 %" in said


def test_most_steps_are_those_that_are_not_named_beside_them():
    report = with_steps(27, 27, 28, 27, 294, without_profiler_ms=27)
    steps = msgspec.structs.replace(
        report.steps,
        how="marker",
        spread_ns=(27 * MS, 187 * MS),  # between steps, where none is
        outliers=({"step": 5, "duration_ns": 294 * MS},),
    )
    said = spread_sentence(msgspec.structs.replace(report, steps=steps))
    assert said == "Most steps take 27.0 to 28.0 ms as recorded; step 5 took 294 ms"


def test_steps_that_nothing_marks_are_rounds_at_a_place():
    report = with_steps(27, 27, 28, without_profiler_ms=27)
    for turns_at, said in ((None, "(markers)"), (("gp.py", 46, "main"), "(rounds at gp.py:46)")):
        steps = msgspec.structs.replace(report.steps, how="marker", turns_at=turns_at)
        assert steps_found(msgspec.structs.replace(report, steps=steps)).endswith(said)


@pytest.mark.parametrize(
    ("verdict", "first", "more"),
    [
        ("It waits 4.2 ms. Mostly: Python.", "It waits 4.2 ms. Mostly: Python.", ""),
        (f"It waits. {'And more ' * 20}", "It waits.", "And more " * 20),
        (f"{'All the time it waits ' * 9}. (As x.py says.)", "All the time it waits " * 9, None),
    ],
)
def test_a_headline_is_as_long_as_a_headline_may_be(verdict, first, more):
    assert headline(verdict)[0].rstrip(".") == first.rstrip(".")
    assert more is None or headline(verdict)[1] == more


def test_what_stands_for_a_command_is_said_once_and_only_where_it_stands():
    both = finding("a", confirm='pinchpoint bench ab -- "COMMAND" "COMMAND, CHANGED"')
    said = to_fill_in(sample(findings=(both, both)))
    assert said.startswith("COMMAND: the line that starts your program")
    assert "COMMAND, CHANGED: the same with the fix in it" in said
    known = finding("a", confirm="pinchpoint try --knob gc -- python my.py")
    assert to_fill_in(sample(findings=(known,))) is None


def test_two_changes_of_one_rule_are_told_apart_by_their_places():
    rungs = tuple(
        RungInfo(
            id="sync-in-loop",
            kind="finding",
            step_ns=MS,
            range_ns=(MS, MS),
            sure_ns=MS,
            base_ns=2 * MS,
            where=f"train.py:{line}",
        )
        for line in (3, 9)
    )
    pair, alone = (LadderInfo(base_ns=2 * MS, rungs=some) for some in (rungs, rungs[:1]))
    assert [rung_label(pair, rung) for rung in rungs] == [
        "sync-in-loop train.py:3",
        "sync-in-loop train.py:9",
    ]
    assert rung_label(alone, rungs[0]) == "sync-in-loop"


@pytest.mark.parametrize(
    ("ranks", "waits_ms", "doubted"), [(2, 9, True), (2, 1, False), (None, 9, False)]
)
def test_a_rank_that_waits_for_others_may_wait_for_their_profilers(ranks, waits_ms, doubted):
    report = with_steps(10, 10, 10, without_profiler_ms=10)
    report = msgspec.structs.replace(
        report,
        source=msgspec.structs.replace(report.source, one_of=ranks),
        steps=msgspec.structs.replace(report.steps, typical_ns=10 * MS, unprofiled_ns_range=None),
        breakdown=(
            part("exposed-communication", "communication", "exposed", waits_ms),
            part("gemm", "gemm", "device", 10 - waits_ms),
        ),
    )
    said = step_sentence(report)
    assert said.startswith("A step takes 10.0 ms, with ")
    assert ("those of other ranks may have made it wait longer" in said) == doubted


def test_time_that_other_work_hides_is_no_cost_beside_another_consequence():
    facts = {"cost_ns_per_step": 2 * MS, "consequence": "device memory grows"}
    report = with_steps(10, 10, without_profiler_ms=10)
    won = finding("a", predicted_step_ns=20_000 * MS, **facts)
    assert gain(report, won) == "device memory grows"
    assert gain(report, finding("a", **facts)) == "costs 2.00 ms a step"
