import numpy as np
import pytest

from analysis.memory import recordings
from analysis.memory.programs import MIB, MOVE_BUFFER, Program, forward
from analysis.memory.recordings import cut_off
from analysis.memory.training import ACTIVATION, PARAMETERS, Training
from pinchpoint.analysis.memory.history import histories
from pinchpoint.analysis.memory.owners.owners import Confidence, MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase

OF_TRUTH = (
    MemoryCategory.PARAMETER,
    MemoryCategory.GRADIENT,
    MemoryCategory.OPTIMIZER_STATE,
    MemoryCategory.BUFFER,
)


@pytest.mark.parametrize("name", recordings.NAMES)
def test_categories_are_exact_at_every_moment_that_was_measured(name):
    history = recordings.history(name)
    times = history.replay.time_us
    for label, when, *wanted in recordings.truth(name)["marks"]:
        if when >= times[0]:
            event = int(np.searchsorted(times, when, "right")) - 1
            held = history.bytes_of(event)
            assert [held[c] for c in OF_TRUTH] == wanted[:4], label


@pytest.mark.parametrize("name", recordings.NAMES)
def test_categories_are_exact_at_the_end(name):
    history = recordings.history(name)
    held = history.bytes_of(history.last)
    wanted = recordings.truth(name)["at_end"]
    names = ("params", "grads", "optim", "buffers")
    assert [held[c] for c in OF_TRUTH] == [wanted[n] for n in names]


@pytest.mark.parametrize("name", recordings.NAMES)
def test_nothing_of_a_real_training_step_stays_unknown(name):
    history = recordings.history(name)
    held = history.bytes_of(history.peak_event)
    held_by_program = 32 * MIB if name == "fragmentation" else 64 * 1024
    assert held[MemoryCategory.UNKNOWN] <= held_by_program


def test_a_training_program_of_known_sizes():
    p = Program()
    buffer = p.alloc(MIB, MOVE_BUFFER)
    t = Training(p)
    for number in range(3):
        t.step(number)
    history = histories(p.trace())[0]
    held = history.bytes_of(history.phases.of(Phase.FORWARD)[-1].end - 1)
    assert held[MemoryCategory.PARAMETER] == sum(PARAMETERS)
    assert held[MemoryCategory.OPTIMIZER_STATE] == 2 * sum(PARAMETERS)
    assert held[MemoryCategory.BUFFER] == MIB
    assert held[MemoryCategory.ACTIVATION] == 6 * ACTIVATION
    assert held[MemoryCategory.UNKNOWN] == 0
    assert len(history.steps) == 3
    assert buffer in p.live
    row = int(np.flatnonzero(history.owners.is_(MemoryCategory.PARAMETER))[0])
    assert history.owners.confidence[row] == Confidence.HIGH


def test_gradients_live_from_the_backward_pass_to_zero_grad():
    p = Program()
    t = Training(p)
    t.step(0)
    history = histories(p.trace())[0]
    backward = history.phases.of(Phase.BACKWARD)[0]
    assert history.bytes_of(backward.end - 1)[MemoryCategory.GRADIENT] == sum(PARAMETERS)
    assert history.bytes_of(history.last)[MemoryCategory.GRADIENT] == 0


def test_scratch_of_cublas_is_no_activation():
    p = Program()
    t = Training(p)
    t.step(0)
    p.alloc(33_554_432, forward(21, caller=40))
    p.alloc(1_048_576, forward(21, caller=40))
    t.step(1)
    history = histories(p.trace())[0]
    held = history.bytes_of(history.last)
    assert held[MemoryCategory.WORKSPACE] == 33_554_432 + 1_048_576
    assert held[MemoryCategory.ACTIVATION] == 0


@pytest.mark.parametrize("keep", [2000, 2250, 2800, 3300, 3700])
def test_a_recording_that_ends_inside_a_pass_is_read_like_the_pass_before(keep):
    whole = recordings.history("healthy_train")
    cut = histories(cut_off(recordings.recording("healthy_train"), whole, keep))[0]
    then = whole.bytes_of(keep - 1)
    assert cut.bytes_of(cut.last) == then
