"""Functions that are called again with what they were given before, by what a run has heard."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.evidence.heard import changes_each_time, said_of
from pinchpoint.diagnosis.finding import Location
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_samples import HeardCalls, HeardFunction
from sampled_runs import samples

MS = 1_000_000
TABLE = "mel.py(7): table"
OUTER = "mel.py(20): spectrogram"


def function(frame=TABLE, *, caller="mel.py(25): spectrogram", **known):
    """Called twice a step for 4 ms in all, with the same two inputs in each."""
    facts = {
        "calls": 2,
        "ns": 4.0 * MS,
        "told": 12,
        "distinct": 2,
        "new_ratio": 0.0,
        "alike": True,
        "answers": 2,
        "numbers": 4000,
        "varied": True,
        "unread": False,
        "inside": (),
        "tiny_ratio": 0.0,
        "tiny_of": "",
        "why": "",
        "untold": 0,
    }
    return HeardFunction(frame, caller, **(facts | known))


def run(*functions, by="optimizer", why="", device=True, recorded=True):
    """Steps of 20 ms that launch a kernel behind two calls of 2 ms, which launch nothing."""
    built = TraceBuilder() if device else TraceBuilder(devices=())
    for step in range(6):
        at = step * 20 * MS
        built.step(step, at, 20 * MS)
        built.python("train.py(3): step", at + 1_000, 19 * MS)
        for call in range(2 * recorded):
            built.python(TABLE, at + 1 * MS + call * 3 * MS, 2 * MS)
        if device:
            built.launch(at + 8 * MS, 10_000, "gemm", at + 9 * MS, 9 * MS)
        else:
            built.op("aten::mm", at + 8 * MS, 11 * MS)
    heard = HeardCalls(6, by, functions, why)
    found = replace(samples(every=0, usual_ms=20), heard=heard)
    return replace(built.trace(), run=RunFacts(samples=found, unprofiled_step_ns=(20 * MS,) * 10))


def test_a_table_that_is_made_anew_in_each_call(outcome):
    (finding,) = outcome("same-arguments-again", run(function(), device=False)).findings
    assert "table (mel.py:7) is called 2 × a step from spectrogram (mel.py:25)" in finding.summary
    assert "12 calls in 6 steps had 2 different inputs" in finding.summary
    assert (finding.location.file, finding.location.line) == ("mel.py", 25)
    assert finding.cost_ns_per_step == 4 * MS
    assert finding.confidence == "high"


def test_its_calls_go_and_nothing_else(predicted):
    after = predicted(run(function(), device=False), "same-arguments-again")
    assert after == pytest.approx(16 * MS, rel=0.05)
    after = predicted(run(function(new_ratio=0.5), device=False), "same-arguments-again")
    assert 16 * MS < after < 18.5 * MS


def test_time_is_the_share_of_the_steps_that_were_listened_to(outcome):
    """Others made these twice as long as most: of 40 ms 4 are 2 of 20."""
    trace = run(function(), device=False)
    heard = replace(trace.run.samples.heard, step_ns=40 * MS)
    longer = replace(trace.run, samples=replace(trace.run.samples, heard=heard))
    (finding,) = outcome("same-arguments-again", replace(trace, run=longer)).findings
    assert finding.cost_ns_per_step == 2 * MS


def test_the_outermost_one_is_told(outcome):
    inner = function(inside=(1,))
    both = run(inner, function(OUTER, caller="train.py(4): step", ns=5.0 * MS), device=False)
    (finding,) = outcome("same-arguments-again", both).findings
    assert "spectrogram (mel.py:20)" in finding.summary
    changing = function(OUTER, distinct=12, new_ratio=1.0)
    (finding,) = outcome("same-arguments-again", run(inner, changing, device=False)).findings
    assert "table (mel.py:7)" in finding.summary


def test_of_tensors_on_a_device_it_says_that_it_saw_shapes(outcome):
    (finding,) = outcome("same-arguments-again", run(function(unread=True), device=False)).findings
    assert "as far as they do not lie on the device" in finding.summary
    assert finding.confidence == "medium"


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(function(alike=False), id="random, or something else that changes"),
        pytest.param(function(distinct=12, new_ratio=1.0), id="new inputs"),
        pytest.param(function(distinct=2, told=2), id="too few calls"),
        pytest.param(function(untold=3, why="it changes what it is given"), id="some not known"),
        pytest.param(function(numbers=1, varied=False, answers=1), id="answers nothing"),
        pytest.param(function(varied=False, distinct=1, answers=1), id="a buffer to fill"),
    ],
)
def test_functions_that_are_not_known_to_repeat(outcome, one):
    assert outcome("same-arguments-again", run(one, device=False)).answer == "clear"


def test_little_time_is_small(outcome):
    trace = run(function(ns=0.5 * MS), device=False)
    assert outcome("same-arguments-again", trace).answer == "smaller"


def test_a_loop_in_which_nothing_is_new_measures_something(outcome):
    trace = run(function(), by="call", device=False)
    assert outcome("same-arguments-again", trace).answer == "clear"
    new = function(OUTER, distinct=12, new_ratio=1.0, ns=0.1 * MS)
    trace = run(function(), new, by="call", device=False)
    assert outcome("same-arguments-again", trace).answer == "found"


def test_where_nothing_could_be_heard_it_says_so(outcome):
    trace = run(why="another profiler hears of its calls")
    assert outcome("same-arguments-again", trace).answer == "not checked"
    assert outcome("same-arguments-again", run()).answer == "clear"


@pytest.mark.parametrize(
    ("known", "said", "changes"),
    [
        ({}, "", False),
        ({"distinct": 12, "new_ratio": 1.0}, "; it is given something new in each", True),
        ({"distinct": 1, "alike": False}, "; it gives something else in each", True),
        (
            {"told": 0, "distinct": 0, "untold": 12, "why": "it changes what it is given"},
            "; whether it is given the same again is not known: it changes what it is given",
            False,
        ),
        (
            {"tiny_ratio": 0.4, "tiny_of": "answer"},
            "; of the numbers of an array that table gives 40 % are subnormal",
            False,
        ),
        ({"tiny_ratio": 0.01, "tiny_of": "answer"}, "", False),
    ],
)
def test_what_was_heard_says_what_to_do_about_a_place(known, said, changes):
    trace = run(function(**known))
    at = Location("mel.py", 9, "table")
    found = said_of(trace, at)
    assert found.startswith(said) if said else not found
    assert changes_each_time(trace, at) is changes
    assert not said_of(trace, Location("mel.py", 9, "other"))


def test_what_a_function_of_a_library_is_given_is_said_where_it_is_called():
    filtered = function("scipy/signal.py(40): sosfilt", tiny_ratio=0.3, tiny_of="given")
    said = said_of(run(filtered), Location("mel.py", 30, "spectrogram"))
    assert said.startswith("; of the numbers of an array that sosfilt is given 30 %")
