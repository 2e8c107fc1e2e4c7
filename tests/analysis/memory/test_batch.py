import pytest

from analysis.memory import recordings
from analysis.memory.programs import Program
from analysis.memory.training import ACTIVATION, Training
from pinchpoint.analysis.memory.failures import failures
from pinchpoint.analysis.memory.history import histories
from pinchpoint.analysis.memory.shortage import batch_after_failure, largest_batch_factor
from pinchpoint.analysis.memory.what_if import ALLOCATOR_MARGIN, batch

GIB = 1 << 30


def test_what_the_passes_allocate_grows_with_the_batch():
    p = Program()
    t = Training(p)
    for number in range(5):
        t.step(number)
    found = batch(histories(p.trace())[0], GIB)
    assert found.per_batch_bytes >= 6 * ACTIVATION
    assert found.left_out_bytes == 0
    filled = found.fixed_bytes + found.factor * found.per_batch_bytes
    assert filled == pytest.approx(ALLOCATOR_MARGIN * GIB, rel=1e-6)


def test_a_leak_is_neither_fixed_nor_scaled():
    p = Program()
    t = Training(p)
    for number in range(5):
        t.step(number)
        with p.step(100 + number):
            t.forward(caller=77)
    leaking = batch(histories(p.trace())[0], GIB)
    assert leaking.left_out_bytes >= 3 * 6 * ACTIVATION
    q = Program()
    t = Training(q)
    for number in range(5):
        t.step(number)
    mended = batch(histories(q.trace())[0], GIB)
    assert leaking.factor == pytest.approx(mended.factor)


def test_the_moment_that_fills_the_device_need_not_be_the_recorded_peak():
    history = recordings.history("leak_outputs")  # its peak lies in the optimizer
    found = batch(history, 80 * GIB)
    assert found.per_batch_bytes > 3 * found.left_out_bytes
    assert found.factor < 1000


def test_after_a_failure_both_answers_scale_the_same_step():
    history = recordings.history("oom")
    failure = failures(history)[-1]
    here = largest_batch_factor(history, failure)
    elsewhere = batch_after_failure(history, failure, round(failure.limit_bytes / ALLOCATOR_MARGIN))
    assert elsewhere.of_failing
    assert elsewhere.factor == pytest.approx(here, rel=1e-6)
