from dataclasses import replace

import pytest

from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns, unrecorded_excess_ns
from pinchpoint.analysis.mean.rare_steps import rare_causes, recurring_ns, taken_by_others
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.trace.run_samples import RunPart
from sampled_runs import EVALUATING, MS, SAVING, TRAINING, WAITING, sampled, samples


def blind(found):
    """The same run, in which the looks at far steps saw other threads alone."""
    return replace(found, events=tuple(replace(event, seen=()) for event in found.events))


def test_every_fifth_step_saves():
    (cause,) = rare_causes(sampled(samples(SAVING)))
    assert cause.kind is GapKind.CHECKPOINT
    assert (cause.place.at.function, cause.place.at.line) == ("save", 88)
    assert cause.place.inside == "torch.save"
    assert cause.every == 5
    assert cause.ns_per_step == pytest.approx(477 * MS / 5)  # 504 instead of 27, each fifth
    assert cause.recurs


def test_a_rhythm_shows_among_far_steps_of_other_causes_and_where_some_were_not_seen():
    found = samples(SAVING)
    others = (11, 12, 37, 58, 73)
    seen = tuple(n for n in found.far_steps if n not in (29, 34, 39))  # these were recorded
    numbers = tuple(sorted((*seen, *others)))
    found = replace(
        found,
        events=tuple(e for e in found.events if e.step in seen),
        far_steps=numbers,
        far_excess_ns=(477 * MS,) * len(numbers),
    )
    assert rare_causes(sampled(found))[0].every == 5


def test_steps_without_a_rhythm_have_none():
    found = samples(SAVING)
    moved = (4, 11, 13, 22, 27, 41, 48, 60, 71, 90)
    events = tuple(replace(e, step=n) for e, n in zip(found.events, moved, strict=False))
    found = replace(found, events=events, far_steps=moved, far_excess_ns=(477 * MS,) * 10, far=10)
    assert rare_causes(sampled(found))[0].every is None


@pytest.mark.parametrize(
    ("found", "kind", "function"),
    [
        (samples(EVALUATING), GapKind.PYTHON, "evaluate"),
        (samples(WAITING), GapKind.DATA, "<module>"),
        (samples(SAVING, looks=0, save_ns=400 * MS), GapKind.CHECKPOINT, None),
        (samples(TRAINING, gc_ns=450 * MS), GapKind.GC, None),
        (samples(TRAINING, wait_ns=450 * MS), GapKind.DATA, None),
    ],
    ids=["evaluation", "loader by its frames", "timed save", "timed collection", "timed wait"],
)
def test_what_far_steps_do(found, kind, function):
    (cause,) = rare_causes(sampled(found))
    assert cause.kind is kind
    assert (cause.place.at.function if cause.place.at else None) == function


def test_without_looks_at_typical_steps_no_place_has_more_of_a_far_one():
    """Of a run of few steps most were far, and what they do others may do as long."""
    (cause,) = rare_causes(sampled(replace(samples(EVALUATING), usual=())))
    assert cause.kind is GapKind.UNRECORDED
    assert cause.place.at is None


def test_usual_work_inside_a_function_that_only_far_steps_call_is_of_that_function():
    """An evaluation calls the model as each step does: it is the place, the model is not."""
    model, *rest = TRAINING
    within = (model, "train.py(70): evaluate", *rest)
    (cause,) = rare_causes(sampled(samples(within)))
    assert cause.place.at.function == "evaluate"
    assert cause.kind is GapKind.PYTHON


def test_parts_of_one_function_that_only_far_steps_call_are_one_cause():
    """Each far step is looked at once or twice, each time in another part of the rollout."""
    found = samples(EVALUATING, count=200)
    rollout = ("train.py(60): rollout", "train.py(99): <module>")
    parts = [(f"sim.py({line}): {name}", *rollout) for line, name in ((8, "act"), (20, "advance"))]
    parts += [rollout, TRAINING]
    frames = tuple(dict.fromkeys(f for part in parts for f in part))
    stacks = tuple(tuple(map(frames.index, part)) for part in parts)
    events = tuple(
        replace(event, looks=2, seen=((n % 3, event.ns // 1000),))
        for n, event in enumerate(found.events)
    )
    found = replace(found, frames=frames, stacks=stacks, usual=((3, 1_000_000),), events=events)
    threads = tuple(replace(thread, stacks=((3, 500),)) for thread in found.threads)
    (cause,) = rare_causes(sampled(replace(found, threads=threads)))
    assert (cause.place.at.function, cause.place.at.line) == ("rollout", 60)
    assert cause.every == 5
    assert cause.ns_per_step == pytest.approx(477 * MS / 5)


def test_of_functions_within_each_other_the_innermost_is_named_with_the_library_it_calls():
    """One look in twenty is beside the innermost function, in the one that calls it."""
    outer = ("train.py(60): compute", "train.py(99): <module>")
    root = ("scipy/linalg/_matfuncs.py(421): sqrtm", "train.py(70): trace_of_root", *outer)
    parts = [root, outer, TRAINING]
    frames = tuple(dict.fromkeys(f for part in parts for f in part))
    stacks = tuple(tuple(map(frames.index, part)) for part in parts)
    found = samples(EVALUATING, count=200)
    events = tuple(
        replace(e, looks=2, seen=((n % 20 == 0, e.ns // 1000),)) for n, e in enumerate(found.events)
    )
    found = replace(found, frames=frames, stacks=stacks, usual=((2, 1_000_000),), events=events)
    threads = tuple(replace(thread, stacks=((2, 500),)) for thread in found.threads)
    (cause,) = rare_causes(sampled(replace(found, threads=threads)))
    assert (cause.place.at.function, cause.place.at.line) == ("trace_of_root", 70)
    assert cause.place.inside == "scipy.linalg._matfuncs.sqrtm"


@pytest.mark.parametrize(
    "found",
    [
        samples(TRAINING),
        samples(EVALUATING, looks=1),
        samples(EVALUATING, queued_ratio=0.95),
        blind(samples(EVALUATING)),
    ],
    ids=["usual work that took longer", "a single look", "no core", "looks at other threads"],
)
def test_what_is_not_known_has_no_place(found):
    (cause,) = rare_causes(sampled(found))
    assert cause.kind is GapKind.UNRECORDED
    assert cause.place.at is None


def shared(usual, seen, looks=20):
    """A run of which typical and far steps of 504 ms are at two places: microseconds at each."""
    found = samples(EVALUATING)
    seen = tuple(enumerate(seen))
    events = tuple(replace(event, looks=looks, seen=seen) for event in found.events)
    return replace(found, usual=tuple(enumerate(usual)), events=events)


def test_a_place_of_usual_steps_that_alone_takes_longer_made_a_step_long():
    """Of 27 ms it takes a fifth; of 504 all but what the rest takes of any step."""
    (cause,) = rare_causes(sampled(shared((200_000, 800_000), (480_000, 24_000))))
    assert cause.kind is GapKind.PYTHON
    assert cause.place.at.function == "evaluate"
    assert cause.ns_per_step == pytest.approx((480 - 0.2 * 27) / 477 * 477 * MS / 5, rel=0.01)


@pytest.mark.parametrize(
    "found",
    [
        shared((200_000, 800_000), (380_000, 124_000)),
        shared((200_000, 800_000), (504_000, 0), looks=2),
        shared((900_000, 100_000), (504_000, 0)),
    ],
    ids=["the rest takes longer, too", "by chance", "it is nearly all of a usual step"],
)
def test_a_place_of_usual_steps_is_not_blamed_for_what_makes_all_of_a_step_longer(found):
    (cause,) = rare_causes(sampled(found))
    assert cause.kind is GapKind.UNRECORDED


def test_a_machine_that_is_always_full_is_no_reason():
    full = samples(EVALUATING, queued_ratio=0.6)
    full = replace(full, queued_ns=round(0.6e9 * full.seconds))
    (cause,) = rare_causes(sampled(full))
    assert cause.place.at.function == "evaluate"


def test_the_beginning_of_a_run_does_not_count_for_its_mean():
    first = samples(SAVING, every=5, count=100)
    first = replace(first, events=first.events[:3], far_steps=first.far_steps[:3])
    trace = sampled(first)
    assert not rare_causes(trace)[0].recurs
    assert recurring_ns(trace) == 0


def test_the_mean_is_the_typical_step_and_what_comes_again():
    trace = sampled(samples(SAVING, far_ms=127))
    usual = corrected_step_ns(trace)
    assert mean_without_profiler_ns(trace) == pytest.approx(usual + 20 * MS)
    assert unrecorded_excess_ns(trace) is None  # it was seen


def test_a_host_that_runs_ahead_of_its_device_loses_nothing():
    """Nine steps of 1 ms and one of 91: as long as the ten of the device, of 10 ms each."""
    assert rare_causes(sampled(samples(EVALUATING, every=10, usual_ms=1, far_ms=91))) == ()


def test_only_what_the_mean_exceeds_the_devices_step_by_is_lost():
    trace = sampled(samples(SAVING, every=10, usual_ms=1, far_ms=191))  # 20 ms in the mean
    (cause,) = rare_causes(trace)
    assert cause.ns_per_step == pytest.approx(20 * MS - corrected_step_ns(trace))


def test_without_far_steps_nothing_is_said():
    assert rare_causes(sampled(samples(SAVING, every=0))) == ()


@pytest.mark.parametrize(
    ("cores", "throttled", "counted"), [(0.9, 0, False), (0.1, 0, True), (0.9, 900, True)]
)
def test_steps_whose_cores_other_programs_had_are_no_part_of_the_mean(cores, throttled, counted):
    found = samples(EVALUATING, queued_ratio=0.95)
    events = tuple(replace(e, throttled_ns=throttled * MS) for e in found.events)
    trace = sampled(replace(found, events=events))
    trace = replace(trace, run=replace(trace.run, cores_of_others=cores, cores_there=2))
    assert rare_causes(trace)[0].no_core
    assert bool(recurring_ns(trace)) is counted
    assert bool(taken_by_others(trace)) is not counted


def test_a_run_that_was_full_for_a_while_is_not_always_full():
    full = samples(EVALUATING, queued_ratio=0.6)
    part = RunPart(0, 8, 0, 27 * MS, 0, 26 * MS, None, None, None, (), ())  # 1 of 27 ms off a core
    full = replace(full, queued_ns=round(0.6e9 * full.seconds), parts=(part,))
    assert rare_causes(sampled(full))[0].no_core
