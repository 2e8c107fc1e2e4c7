"""Steps of a run that become longer, because work grows or because the machine becomes slower."""

from dataclasses import replace

import pytest

from exceptional_programs import now_and_then
from pinchpoint.analysis.mean.growth import grown_ns
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_samples import RunPart
from program import Program
from sampled_runs import WAITING, samples

MS = 1_000_000
PARTS, EACH = 16, 50
GROWS = ("pandas/core/concat.py(80): concat", "train.py(33): add", "train.py(99): <module>")
STAYS = ("torch/autograd/graph.py(865): _engine_run_backward", "train.py(95): <module>")
HOOK = ("train.py(76): <lambda>", "torch/utils/hooks.py(9): hook")


def run(more_ms, *, slower=0.0, kept=0.02, beside=False, looks=200):
    """Steps of 6 ms that stay and of ``more_ms(part)`` that are added at ``add``."""
    found = samples(every=0)
    parts = []
    for number in range(PARTS):
        stays, grows = 6 * (1 + slower * number), more_ms(number)
        us = 20_000 * looks / PARTS
        share = grows / (stays + grows)
        waits = ((1, round(us * share)),) if beside else ((0, round(us * share)),)
        took = round((stays + grows + 0.1 * (number % 2)) * MS)
        parts.append(
            RunPart(
                first=2 + EACH * number,
                steps=EACH,
                p25_ns=took - MS // 10,
                p50_ns=took,
                p75_ns=took + MS // 10,
                cpu_ns=5 * MS,
                objects=round(1_000_000 * (1 + kept * number)),
                resident_bytes=None,
                device_bytes=1 << 30,
                seen=((1, round(us * (1 - share))), *waits),
                beside=((2, round(us * share)),) if beside else (),
            )
        )
    frames = tuple(dict.fromkeys((*GROWS, *STAYS, *HOOK)))
    stacks = tuple(tuple(map(frames.index, stack)) for stack in (GROWS, STAYS, HOOK))
    found = replace(found, frames=frames, stacks=stacks, parts=tuple(parts))
    timed = (10 * MS,) * 20
    return replace(
        now_and_then("checkpoint", ()), run=RunFacts(samples=found, unprofiled_step_ns=timed)
    )


def test_work_that_grows_is_told_with_its_place_its_slope_and_the_step_as_it_was():
    (found,) = diagnose(run(lambda part: 4 + part)).found
    assert found.id == "growing-steps"
    assert found.finding.summary == (
        "Each step is longer than the one before: 11.6 ms at step 102, 23.6 ms at step 702, mostly"
        " because of add (train.py:33): 5.47 ms and then 17.5 ms a step"
    )
    said = {fact.what: fact.value for fact in found.finding.evidence}
    assert said["growth by step"] == pytest.approx(MS / EACH, rel=0.02)  # 1 ms in each part
    assert said["at least, 99 % sure"] <= said["growth by step"] <= said["at most"]
    assert "objects that Python holds" in said["grew with them"]
    # The mean of the run is 17.55 ms, and the first quarter 11.55: what it would be.
    assert found.predicted.base_ns == pytest.approx(17.55 * MS, rel=0.01)
    assert found.predicted.range_ns[0] <= 11.55 * MS <= found.predicted.range_ns[1]


def test_what_a_thread_of_autograd_runs_is_named_in_place_of_the_wait_for_it():
    (found,) = diagnose(run(lambda part: 4 + part, beside=True)).found
    assert str(found.finding.location) == "<lambda> (train.py:76)"


def among_others(trace, cpu_ms):
    """The same run without a device, with a core of its own now and then."""
    parts = [
        replace(
            part,
            p50_ns=(20 + 90 * (number * 7 % 5)) * MS,
            cpu_ns=round(cpu_ms(number) * MS),
            device_bytes=None,
        )
        for number, part in enumerate(trace.run.samples.parts)
    ]
    found = replace(trace.run.samples, parts=tuple(parts))
    return replace(trace, run=replace(trace.run, samples=found))


def test_among_other_programs_work_that_grows_is_known_by_its_thread_on_a_core(outcome):
    grows = run(lambda part: 4 + part)
    (found,) = outcome("growing-steps", among_others(grows, lambda part: 10 + part)).findings
    assert found.summary.startswith("Each step has its thread on a core for longer than the one")
    assert str(found.location) == "add (train.py:33)"
    assert outcome("growing-steps", among_others(grows, lambda part: 10)).answer == "clear"


def test_time_on_a_core_that_multiplies_is_no_slower_machine_although_the_rest_grows_too(outcome):
    """Beside 4 to 49 ms at one place the rest grows from 6 to 13.2 ms; looks are few early."""
    grows = run(lambda part: 4 + 3 * part, slower=0.08, looks=64)
    on_core = among_others(grows, lambda part: 10 + 3.5 * part)
    (found,) = outcome("growing-steps", on_core).findings
    assert str(found.location) == "add (train.py:33)"


def levelling(part):
    return 24 * (1 - 0.85**part)


def test_what_comes_to_an_end_is_the_programs_where_the_work_of_one_place_multiplies(outcome):
    trace = among_others(run(levelling), lambda part: 6 + levelling(part))
    (found,) = outcome("growing-steps", trace).findings
    assert found.summary.startswith("Late steps have their thread on a core for longer than early")
    assert str(found.location) == "add (train.py:33)"
    assert "what changed there in the course of the run" in found.fix


def test_what_comes_to_an_end_and_a_neighbour_would_explain_is_undecided(outcome):
    trace = among_others(run(levelling), lambda part: 20 + levelling(part))
    said = outcome("growing-steps", trace)
    assert (said.answer, said.fits) == ("not checked", True)
    assert "on a core, most of it in add (train.py:33), yet their growth levels off" in said.why


@pytest.mark.parametrize(
    ("seen", "answer"), [(WAITING, "clear"), (("train.py(95): <module>",), "not checked")]
)
def test_a_loader_that_falls_behind_is_no_growth(outcome, seen, answer):
    """Once what was made before is used up, steps wait for their batch where the growth is."""
    trace = run(lambda part: 4 + 8 * (part > 7) + 0.001 * part)
    # Rows 0 and 1 are what grows and what stays in both runs.
    found = replace(samples(seen), parts=trace.run.samples.parts)
    trace = replace(trace, run=replace(trace.run, samples=found))
    assert outcome("growing-steps", trace).answer == answer


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (run(lambda part: 4.0 * (1 + 0.1 * part), slower=0.1), "all that they do takes longer"),
        (run(lambda part: 4 + 8 * (part > 7) + 0.001 * part), "at once"),
        (run(lambda part: 4 + 8 * (1 - 0.85**part)), "levels off"),
        (run(lambda part: 4 + part, kept=0.0), "nothing that they keep"),
        (run(lambda part: 4 + part, looks=8), "too few looks"),
    ],
)
def test_a_machine_that_becomes_slower_is_no_work_that_grows(outcome, trace, why):
    said = outcome("growing-steps", trace)
    assert (said.answer, why in said.why) == ("not checked", True), said.why


def test_where_the_host_waits_for_the_device_what_is_kept_there_has_to_grow_as_much(outcome):
    slower = run(lambda part: 4.0 * (1 + 0.1 * part), slower=0.1)  # at all places alike
    parts = slower.run.samples.parts
    for each, answer in ((0.3, "found"), (0.001, "not checked")):
        held = [
            replace(part, device_bytes=round((1 << 30) * (1 + each * n)))
            for n, part in enumerate(parts)
        ]
        seen = replace(slower.run.samples, parts=tuple(held))
        said = outcome("growing-steps", replace(slower, run=replace(slower.run, samples=seen)))
        assert said.answer == answer
    assert grown_ns(replace(slower, run=replace(slower.run, samples=seen))) > 0


def sorting(sort_us):
    """Steps of 8 ms of the device in products, and one sort."""
    p = Program()
    for _ in p.steps(4):
        with p.row("aten::mm"):
            p.kernel("gemm", 8_000)
        with p.frame("auc.py(96): compute"), p.row("aten::sort"):
            p.kernel("radix_sort", sort_us)
        p.sync()
    return p.trace()


@pytest.mark.parametrize(("late_us", "answer"), [(3_000, "found"), (220, "not checked")])
def test_a_window_late_in_the_run_tells_what_grows_on_the_device(outcome, late_us, answer):
    slower = run(lambda part: 4.0 * (1 + 0.1 * part), slower=0.1)
    facts = replace(slower.run, named=sorting(200), late=sorting(late_us))
    said = outcome("growing-steps", replace(slower, run=facts))
    assert said.answer == answer
    for found in said.findings:
        assert (found.location.file, found.location.function) == ("auc.py", "compute")
        assert "aten::sort" in found.summary
        assert "200 µs of the device and then 3.00 ms a step" in found.summary


def test_steps_that_stay_as_they_are_are_quiet(outcome):
    assert outcome("growing-steps", run(lambda part: 4 + 0.3 * (part * 7 % 5))).answer == "clear"
    assert outcome("growing-steps", now_and_then("checkpoint", ())).answer == "not checked"
