from itertools import pairwise

from pinchpoint.capture.process.policy import (
    COOLDOWN_STEPS,
    MOST_RECORDINGS,
    AtSteadyState,
    WhenSlower,
)
from pinchpoint.capture.process.step_clock import STEADY_STEPS, StepClock

MS = 1_000_000


def fed(policy, *durations_ms):
    """Edges at which the policy says yes, for steps of these durations."""
    now = [0]
    clock = StepClock(lambda: now[0])
    clock.edge()
    yes = []
    for i, duration in enumerate(durations_ms):
        now[0] += int(duration * MS)
        clock.edge()
        if policy.ready(clock):
            yes.append(i)
    return yes


def test_steps_as_usual_are_never_recorded():
    assert fed(WhenSlower(), *[10, 11, 12, 10, 9] * 400) == []


def test_a_lasting_slowdown_is_recorded_soon_and_said():
    policy = WhenSlower()
    (first,) = fed(policy, *[10] * 300, *[15] * 100)
    assert 305 <= first <= 315
    assert policy.triggers == ["after 310 steps, a step took 15 ms, 1.50 times as long as before"]


def test_a_single_slow_step_is_no_slowdown():
    assert fed(WhenSlower(), *[10] * 300, 500, *[10] * 300) == []


def test_a_creeping_slowdown_is_seen_in_the_end():
    assert fed(WhenSlower(), *[10 + i / 200 for i in range(1600)])


def test_recordings_keep_their_distance_and_end():
    yes = fed(WhenSlower(), *[10] * 300, *[20] * 6000)
    assert len(yes) == MOST_RECORDINGS
    assert all(b - a >= COOLDOWN_STEPS for a, b in pairwise(yes))


def test_two_kinds_of_steps_in_turns_are_steady():
    yes = fed(AtSteadyState(), 3000, 800, *[95, 9] * 40)
    assert yes[0] <= 4 * STEADY_STEPS + 2
    assert fed(AtSteadyState(), *[200 * 0.95**i for i in range(60)]) == []


def test_of_long_steps_a_program_may_have_few():
    assert fed(AtSteadyState(), 3000, 800, *[400] * 9)[0] == 7  # two cold steps, twice three
    unsteady = [400, 700] * 3 + [400] * 40
    assert fed(AtSteadyState(), 9000, 800, *unsteady)[0] <= 20
    policy = AtSteadyState()
    assert fed(policy, *[3000 * 0.95**i for i in range(12)])
    assert policy.steady is False


def test_steps_that_are_listened_to_show_that_steps_are_steady():
    now, told = [0], []
    steps = StepClock(lambda: now[0])
    steps.edge()
    for n, takes in enumerate([900, 800, *[500] * 6, 400, 410, 400]):
        if 2 <= n < 8:
            steps.watch()
        now[0] += takes * MS
        steps.edge()
        told.append(steps.steady())
    assert told == [False] * 10 + [True]  # three ordinary ones to compare the recording with
    assert steps.undisturbed() == [0, 1, 8, 9, 10]
