from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import IMPORTING, samples_of, spent, thread
from pinchpoint.diagnosis.rules.transfers.arrays_put_each_step import check
from pinchpoint.trace import RunFacts

MS = 1_000_000


def _steps(put_ms, copy_ms, *, thread_of_put=0):
    """Ten steps of 10 ms that compute for one; the copy begins after the put, on another thread."""
    built = TraceBuilder(devices=())
    xla = built.thread("XLA")
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        built.annotation("PjitFunction(update)", at + MS // 10, int(put_ms * MS) + MS // 10)
        put = built.thread("other") if thread_of_put else 0
        built.annotation("DevicePut", at + MS // 5, int(put_ms * MS), thread=put)
        then = at + MS // 5 + int(put_ms * MS)
        built.annotation("H2D Dispatch", then, int(copy_ms * MS), thread=xla)
        built.add("compiled_ops", op="dot.1", start_ns=at + 9 * MS, duration_ns=MS)
    return built.trace()


def test_what_is_put_and_copied_in_each_step():
    (found,) = check(_steps(3, 4))
    assert found.cost_ns_per_step == 7 * MS
    assert found.saving_ns_per_step == (2.1 * MS, 7 * MS)
    assert found.summary == (
        "Arrays of NumPy that are given to update are put into arrays of JAX 1 × a step: 7.00 ms of"
        " it, with the copies that follow"
    )


def test_no_gain_beyond_what_is_computed():
    (found,) = check(_steps(5, 6))
    assert found.saving_ns_per_step == (2.7 * MS, 9 * MS)


def test_the_line_that_looks_saw():
    looks = thread(
        spent(("work.py(12): train",), 2.0, doing="update()"),
        spent(("work.py(9): train",), 9.0, doing="rng.normal()"),
        spent(("jax/_src/api.py(3): device_put", *IMPORTING), 5.0),
    )
    run = RunFacts(samples=samples_of(looks))
    (found,) = check(replace(_steps(3, 4), run=run))
    assert (found.location.line, found.location.function) == (12, "train")


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(3, 4, thread_of_put=1), id="another thread puts the next batch"),
        pytest.param(TraceBuilder(devices=()).trace(), id="nothing"),
        pytest.param(replace(_steps(3, 4), devices=TraceBuilder().trace().devices), id="a device"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_batch_of_usual_size_is_seen(outcome):
    said = outcome("arrays-put-each-step", _steps(0.3, 0.3))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the step: 6.0 %")
