"""Whether a fix worked: what was measured against what was predicted."""

import shlex
from dataclasses import replace as replace_of_trace

import pytest
from msgspec.structs import replace

from exceptional_programs import now_and_then
from pinchpoint.analysis.replay import predict
from pinchpoint.compare.fix import fix_outcome
from pinchpoint.report.assemble.comparison import comparison
from pinchpoint.report.blocks import Command, Text
from pinchpoint.report.pages import result
from pinchpoint.report.pages.compare import profiles_page
from pinchpoint.report.pages.fix import fix_ladder
from pinchpoint.report.words.fix import fix_sentence
from pinchpoint.trace import LaunchTimes, RunFacts, Source

MS = 1e6


def outcome(measured, between, predicted=(8.64, (8.15, 9.44))):
    scaled = None
    if predicted is not None:
        scaled = (predicted[0] * MS, (predicted[1][0] * MS, predicted[1][1] * MS))
    spread = None if between is None else (between[0] * MS, between[1] * MS)
    return fix_outcome(("sync-in-loop",), 12.5 * MS, measured * MS, spread, "measured", scaled)


@pytest.mark.parametrize(
    ("measured", "between", "said"),
    [
        (8.57, (8.51, 8.63), "worked"),
        (7.0, (6.9, 7.1), "worked better"),
        (11.0, (10.9, 11.1), "worked in part"),
        (12.6, (12.55, 12.7), "did not help"),
        (12.3, (12.0, 12.6), "cannot tell"),
        (8.0, None, "worked better"),
    ],
)
def test_what_is_said(measured, between, said):
    assert outcome(measured, between).said == said


def test_the_sentence_is_the_one_that_people_want():
    said = fix_sentence(outcome(8.57, (8.51, 8.63)))
    assert said == "predicted 8.64 ms, measured 8.57 (8.51 to 8.63): it worked"


@pytest.mark.parametrize(
    ("measured", "end"),
    [
        (10.0, "20.0 % faster"),
        (15.0, "20.0 % slower"),
        (5.0, "2.50 × as fast"),
        (177.5, "14.2 × as long"),
    ],
)
def test_without_a_prediction_the_change_is_said(measured, end):
    assert fix_sentence(outcome(measured, None, None)).endswith(end)


def test_a_step_that_grew_though_a_cause_went_says_how_much():
    said = fix_sentence(outcome(15.0, (14.9, 15.1)))
    assert said.endswith("it did not help, the step is 20.0 % slower")
    assert "slower" not in fix_sentence(outcome(12.6, (12.55, 12.7)))


def test_the_picture_has_before_predicted_and_measured():
    ladder = fix_ladder(outcome(8.57, (8.51, 8.63)))
    assert [rung.label for rung in ladder.rungs] == ["before", "predicted", "measured"]
    assert all(0 <= rung.low <= rung.high <= 1 for rung in ladder.rungs)


def test_of_two_that_may_be_two_programs_it_is_said_so():
    doubt = "only 14 of 36 device operations in A and 14 in B have a partner"
    said = fix_sentence(replace(outcome(8.57, (8.51, 8.63)), doubt=doubt))
    assert said.endswith(f"(8.51 to 8.63): it worked, if both are one program ({doubt})")


TORCH = Source("a", "kineto", recorder="torch.profiler")


def shown(before, after):
    return result.blocks(profiles_page(comparison(before, after))).blocks


def said(blocks):
    return [block for block in blocks if isinstance(block, Text)]


def test_where_it_cannot_be_told_it_is_said_what_to_record_and_nothing_changed():
    trace = replace_of_trace(now_and_then("checkpoint", (3, 8)), source=TORCH)
    texts = said(shown(trace, trace))
    assert "cannot tell" in texts[0].text
    (to_tell,) = (text for text in texts if text.label == "To tell")
    assert "a change of more than" in to_tell.text
    assert not any("first cause" in text.text or text.label == "checkpoint-stall" for text in texts)


def test_of_few_steps_more_are_asked_for_and_of_known_commands_these():
    few = replace_of_trace(now_and_then("python", (), steps=3), source=TORCH)
    a, b = (
        replace_of_trace(few, run=RunFacts(command=("python", "my train.py", f"--lr={rate}")))
        for rate in (1, 2)
    )
    blocks = shown(a, b)
    (to_tell,) = (text.text for text in said(blocks) if text.label == "To tell")
    assert "too few: pinchpoint run --steps 8" in to_tell
    (command,) = (block.text for block in blocks if isinstance(block, Command))
    assert shlex.split(command)[:4] == ["pinchpoint", "bench", "ab", "--"]
    assert [shlex.split(one)[1] for one in shlex.split(command)[4:]] == ["my train.py"] * 2


@pytest.mark.parametrize(
    ("launch", "steps", "told"),
    [
        pytest.param(None, (14 * MS, 14 * MS), True, id="known of one"),
        pytest.param(LaunchTimes(8_000, 10_000), (12 * MS, 12 * MS), False, id="known of both"),
        pytest.param(LaunchTimes(8_000, 8_000), (12 * MS, 14 * MS), False, id="no more in one"),
    ],
)
def test_what_launches_cost_more_is_taken_out_of_both_steps_or_of_none(
    monkeypatch, launch, steps, told
):
    monkeypatch.setattr(predict, "_hidden_in_ns", lambda trace, ns, more: 1_000 * more)
    plain, timed = now_and_then("python", ()), (round(14 * MS),) * 20
    a, b = (
        replace_of_trace(plain, run=RunFacts(unprofiled_step_ns=timed, launch=of))
        for of in (LaunchTimes(8_000, 10_000), launch)
    )
    found = comparison(a, b)
    assert (found.a.unprofiled_step_ns, found.b.unprofiled_step_ns) == steps
    assert any(text.startswith("what launches cost more") for text in found.warnings) is told


def test_what_differs_by_itself_is_runs_where_pairs_were_measured():
    for clock, noun in (("measured in pairs of runs", "runs"), ("as recorded", "steps")):
        outcome = fix_outcome((), 100.0, 99.0, (90.0, 110.0), clock)
        assert f"within what {noun} differ by themselves" in fix_sentence(outcome)
