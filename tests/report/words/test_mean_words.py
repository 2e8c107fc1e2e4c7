import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from exceptional_programs import now_and_then, two_kinds
from loader_steps import loading
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report import markdown, terminal
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.documents.run import RunInfo
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.report.words.steps import base_ns, step_sentence
from pinchpoint.trace import RunCourse, RunFacts


def test_kinds_of_steps_are_said_apart():
    said = diagnose(two_kinds())
    assert list(mean_sentences(said)) == [
        "Two kinds of steps: 50.0 ms × 2 (with an optimizer step), 10.0 ms × 6 (without an"
        " optimizer step)",
        "50.0 ms (with an optimizer step), as recorded: optimizer 40.0, matrix products"
        " 10.0. No cause is found there: the device is at work",
        "10.0 ms (without an optimizer step), as recorded: matrix products 10.0. No cause is"
        " found there: the device is at work",
    ]
    for kind in said.steps.kinds:
        assert sum(part.ns_per_step for part in kind.breakdown) == kind.mean_ns
    assert [(kind.count, round(kind.time_ratio, 2)) for kind in said.steps.kinds] == [
        (2, 0.62),
        (6, 0.38),
    ]


@pytest.mark.parametrize(
    ("part", "said"), [("idle-python", ": the device waits for the host"), ("host-python", "")]
)
def test_on_a_cpu_alone_nothing_waits_for_the_host(part, said):
    document = diagnose(two_kinds())
    kinds = [
        replace_fields(
            kind,
            bound_by="host",
            breakdown=[replace_fields(p, part=part) for p in kind.breakdown],
        )
        for kind in document.steps.kinds
    ]
    document = replace_fields(document, steps=replace_fields(document.steps, kinds=kinds))
    sentences = list(mean_sentences(document))[1:]
    assert all(one.endswith(f"No cause is found there{said}") for one in sentences)


def test_a_cause_of_all_steps_is_not_denied_of_a_kind():
    document = diagnose(two_kinds())
    found = Finding(id="host-hotspot", summary="", evidence=())
    (_, first, _) = mean_sentences(replace_fields(document, findings=[found]))
    assert "No cause is found there by these steps alone" in first


def test_regular_exceptions_say_how_often():
    (sentence,) = mean_sentences(diagnose(now_and_then("checkpoint", (3, 8, 13), steps=16)))
    assert sentence == (
        "A typical step takes 10.0 ms without the profiler; steps of up to 110 ms, one every 5, add"
        " 20.0 ms a step (saving or loading a checkpoint)"
    )


def test_a_slow_beginning_is_said_and_does_not_count():
    said = diagnose(now_and_then("python", (0, 1)))
    (sentence,) = mean_sentences(said)
    assert (
        "he first complete step adds 10.0 ms a step while program or recording settles" in sentence
    )
    assert said.steps.base_ns is None
    assert base_ns(said) < 11e6
    assert "typical step" not in said.verdict


def test_steps_alike_need_no_sentence():
    assert list(mean_sentences(diagnose(now_and_then("python", ())))) == []


def test_nothing_worth_fixing_is_not_said_of_a_long_step_without_a_finding():
    said = diagnose(loading([0.1] * 7 + [12.0], workers=4))
    assert said.findings == ()
    assert "yet one step of 14.2 ms adds 1.70 ms a step" in closing_sentence(said)


def test_the_run_speaks_where_the_recording_is_quicker():
    timed = (10_000_000,) * 9 + (110_000_000,)
    quiet = now_and_then("python", ())
    said = diagnose(replace(quiet, run=RunFacts(unprofiled_step_ns=timed)))
    assert said.steps.run_mean_ns == base_ns(said) == 20_000_000
    assert said.steps.run_excess_ns == 10_000_000


@pytest.mark.parametrize(("each_ms", "range_ms"), [(40, (10, 40)), (20, (10, 38)), (5, (5, 38))])
def test_the_steps_that_a_run_counted_are_within_what_it_says_of_their_mean(each_ms, range_ms):
    timed = (10_000_000,) * 9 + (110_000_000,)
    course = RunCourse(60 * 10**9, counted=1000, counted_ns=each_ms * 10**9)
    run = RunFacts(unprofiled_step_ns=timed, course=course)
    said = diagnose(replace(now_and_then("python", ()), run=run))
    assert said.steps.run_counted_ns == each_ms * 10**6
    low, high = said.steps.base_range_ns
    assert (low, high) == (range_ms[0] * 10**6, pytest.approx(range_ms[1] * 10**6, rel=0.03))
    told = f"its steps took at most {each_ms}.0 ms each" if each_ms > 9 else "at most 5.00 ms each"
    assert (told in " ".join(mean_sentences(said))) == (each_ms != 20)


def test_every_format_says_it():
    said = diagnose(now_and_then("python", (4,)))
    for text in (
        terminal.render(report_page(said)),
        markdown.render(report_page(said)),
        static.render(said),
    ):
        words = " ".join(re.sub("<.*?>", "", text).split())
        assert "ms on average" in words
        assert "20.0" in words
        assert "one step of 110 ms adds 10.0 ms a step" in words


def test_the_mean_that_gains_count_from_is_said_where_it_is_another():
    said = diagnose(now_and_then("checkpoint", (3, 8, 13), steps=16))
    steps = replace_fields(said.steps, base_ns=25_000_000)
    sentence = step_sentence(replace_fields(said, steps=steps))
    assert (
        "ms on average without the profiler (gains count from 25.0), 30.0 in the trace" in sentence
    )
    assert sentence.endswith("the few recorded steps differ much")
    page = static.render(replace_fields(said, steps=steps))
    assert "(<b>gains count from 25.0</b>), 30.0 in the trace" in page
    assert page.index("gains count from") < page.index(
        "Two kinds" if "Two kinds" in page else "Most"
    )


def test_what_others_did_to_the_steps_is_said_with_them():
    busy = "the machine was busy: other programs used 1.8 of its 2 cores"
    run = RunInfo(total_ns=10**9, looks=100, every_ns=10**7, disturbed=(busy,))
    said = replace_fields(diagnose(now_and_then("checkpoint", ())), run=run)
    assert "The machine" + busy[11:] in mean_sentences(said)
    found = replace_fields(diagnose(now_and_then("checkpoint", (3, 8, 13), steps=16)), run=run)
    shown = [
        any("what carries over is their ratio" in one for one in mean_sentences(report))
        for report in (found, replace_fields(said, device=None), replace_fields(found, device=None))
    ]
    assert shown == [False, False, True]  # what a device does takes as long; no change is told


def test_steps_whose_cores_others_had_are_told_and_left_out():
    said = diagnose(now_and_then("checkpoint", ()))
    steps = replace_fields(said.steps, taken_steps=33, taken_ns_per_step=62_000_000)
    (sentence,) = [
        one for one in mean_sentences(replace_fields(said, steps=steps)) if "no core" in one
    ]
    assert sentence.startswith("At least 33 steps of the run had no core")
    assert "62.0 ms a step to its mean" in sentence
    little = replace_fields(said.steps, taken_steps=33, taken_ns_per_step=1000)
    assert not any("no core" in s for s in mean_sentences(replace_fields(said, steps=little)))
