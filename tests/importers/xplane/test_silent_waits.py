"""Waits that no event shows: what is one, what is none, and what they make of a step."""

from dataclasses import replace

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.replay.predict import what_if
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.importers.xplane.host import linked
from pinchpoint.trace import Names
from pinchpoint.trace.kinds import UNRECORDED_WAIT

US = 1000
DISPATCH, WAKES = 200 * US, 100 * US
WORK = (600, 900, 700, 800, 1000, 750)  # of the device, in each step


def program(silent, *, work=WORK, inside="train.py(10): step", dispatches="PjitFunction(step)"):
    """Steps in which a program is dispatched, and then nothing is said for a while."""
    b, at = TraceBuilder(), 0
    for number, (works, says_nothing) in enumerate(zip(work, silent, strict=True)):
        works, says_nothing = works * US, says_nothing * US
        b.step(number, at, DISPATCH + says_nothing + US)
        if inside:
            b.python(inside, at, DISPATCH + says_nothing + US)
        b.annotation(dispatches, at, DISPATCH)
        b.launch(at + DISPATCH - 5 * US, 4 * US, "fusion", at + DISPATCH, works)
        b.python("time perf_counter", at + DISPATCH + says_nothing, US)
        at += DISPATCH + says_nothing + US
    return told(b)


def told(b, **parts):
    """The trace as the importers of XLA's formats link it."""
    trace = b.trace(**parts)
    names = Names(trace.names)
    ops = trace.device_ops
    host, calls, device = linked(trace.host_ops, trace.api_calls, ops, names)
    side = {"api_calls": calls, "device_ops": device} if len(ops) else {}
    return replace(trace, host_ops=host, names=names.freeze(), **side)


def waits(trace):
    """Start and end of each wait that was told of silence."""
    table = trace.api_calls if len(trace.device_ops or ()) else trace.host_ops
    if UNRECORDED_WAIT not in trace.names:
        return []
    rows = np.flatnonzero(table["name"] == trace.names.index(UNRECORDED_WAIT))
    return [(int(table["start_ns"][i]), int(table.end_ns[i])) for i in rows]


def until_done(*late, work=WORK):
    return [w + late[i % len(late)] for i, w in enumerate(work)]


def test_silence_from_the_dispatch_until_the_device_is_done_is_a_wait():
    found = waits(program(until_done(100, 130, 110)))
    lasts = [end - start for start, end in found]
    assert lasts == [(w + 100) * US for w in WORK]  # what comes after is Python


@pytest.mark.parametrize(
    "inside",
    ["train.py(10): step", None],
    ids=["in a function", "in the range of the step"],
)
def test_wherever_a_program_may_wait(inside):
    assert len(waits(program(until_done(100), inside=inside))) == len(WORK)


@pytest.mark.parametrize(
    "silent",
    [
        [1020] * 6,
        until_done(100, 500),
        until_done(100, -150),
        [700, 2000, 2000, 2000, 2000, 2000],
        [w // 2 for w in WORK],
        [40] * 6,
    ],
    ids=[
        "computing for as long, whatever the device has to do",
        "ends now soon, now late",
        "ends before the work does",
        "near the end of the work in one step only",
        "the device is still at work",
        "a pause between two calls",
    ],
)
def test_what_is_no_wait(silent):
    assert waits(program(silent)) == []


@pytest.mark.parametrize("inside", ["time sleep", "<unknown> sort"])
def test_what_a_function_of_c_does_is_its_own(inside):
    b, at = TraceBuilder(), 0
    for number, works in enumerate(WORK):
        silent = works * US + WAKES
        b.step(number, at, DISPATCH + silent)
        b.annotation("PjitFunction(step)", at, DISPATCH)
        b.launch(at + DISPATCH - 5 * US, 4 * US, "fusion", at + DISPATCH, works * US)
        b.python(inside, at + DISPATCH, silent)
        at += DISPATCH + silent
    assert waits(told(b)) == []


def test_what_xla_does_in_a_call_is_its_dispatch():
    b, at = TraceBuilder(), 0
    for number, works in enumerate(WORK):
        lasts = DISPATCH + works * US + WAKES
        b.step(number, at, lasts)
        b.annotation("PjitFunction(step)", at, lasts)
        b.launch(at + DISPATCH - 5 * US, 4 * US, "fusion", at + DISPATCH, works * US)
        at += lasts
    assert waits(told(b)) == []


def test_a_wait_that_a_range_of_jax_shows_is_told_once():
    b, at = TraceBuilder(), 0
    for number, works in enumerate(WORK):
        silent = works * US + WAKES
        b.step(number, at, DISPATCH + silent)
        b.annotation("PjitFunction(step)", at, DISPATCH)
        b.launch(at + DISPATCH - 5 * US, 4 * US, "fusion", at + DISPATCH, works * US)
        b.annotation("np.asarray(jax.Array)", at + DISPATCH, silent)
        b.python("jax/_src/array.py(629): _value", at + DISPATCH + US, silent - 2 * US)
        at += DISPATCH + silent
    trace = told(b)
    assert waits(trace) == []
    assert len(trace.api_calls) == 2 * len(WORK)


def on_cpu(silent, *, busy=WORK):
    """The same without a device: XLA computes on a thread of its own."""
    b, at = TraceBuilder(devices=()), 0
    pool = b.thread("tf_XLAEigen")
    for number, (works, says_nothing) in enumerate(zip(busy, silent, strict=True)):
        works, says_nothing = works * US, says_nothing * US
        b.step(number, at, DISPATCH + says_nothing + US)
        b.python("train.py(10): step", at, DISPATCH + says_nothing + US)
        b.annotation("PjitFunction(step)", at, DISPATCH)
        b.op("fusion.1", at + DISPATCH, works, thread=pool)
        b.python("time perf_counter", at + DISPATCH + says_nothing, US)
        at += DISPATCH + says_nothing + US
    return told(b)


def test_without_a_device_it_waits_for_the_threads_that_compute():
    assert [end - start for start, end in waits(on_cpu(until_done(100)))] == [
        (w + 100) * US for w in WORK
    ]
    parts = breakdown(on_cpu(until_done(100)))
    by_step = dict(zip((part.id for part in parts.parts), parts.by_step.T.tolist(), strict=True))
    assert by_step["host-wait"] == [100 * US] * 6
    assert by_step["host-elsewhere"] == [w * US for w in WORK]


@pytest.mark.parametrize(
    ("said", "found"), [("CommonPjRtBuffer::Await", 3), ("CommonPjRtBuffer::Delete", 0)]
)
def test_where_xla_says_that_it_waits_once_is_enough(said, found):
    """Of silences after it, in the last of which the thread waits for a core, too."""
    b = TraceBuilder(devices=())
    pool = b.thread("tf_XLAEigen")
    for at, late in ((0, 50), (10_000, 60), (20_000, 3_000)):
        at, lasts = at * US, (1_000 + late) * US
        b.python("train.py(10): step", at, DISPATCH + lasts + US)
        b.annotation("PjitFunction(step)", at, DISPATCH - US)
        b.annotation(said, at + DISPATCH - US, US)
        b.op("fusion.1", at + DISPATCH + 900 * US, 100 * US, thread=pool)
        b.python("time perf_counter", at + DISPATCH + lasts, US)
    lasts = [end - start for start, end in waits(told(b))]
    assert lasts == [1_050 * US, 1_060 * US, 4_000 * US][:found]


def test_it_may_say_so_afterwards_and_in_a_function_of_c():
    b = TraceBuilder(devices=())
    pool = b.thread("tf_XLAEigen")
    for at in (0, 10_000 * US):
        b.annotation("PjitFunction(step)", at, DISPATCH)
        b.python("numpy asarray", at + DISPATCH, 1_100 * US)
        b.op("fusion.1", at + DISPATCH + 900 * US, 100 * US, thread=pool)
        b.annotation("CommonPjRtBuffer::Await", at + DISPATCH + 1_080 * US, US)
    assert [end - start for start, end in waits(told(b))] == [1_080 * US] * 2


def test_python_that_computes_beside_them_is_none():
    silent = [1020] * 6
    assert waits(on_cpu(silent)) == []
    assert breakdown(on_cpu(silent)).of_part("host-python") >= 1020 * US


# ------------------------------------------------------------------------------------------------
# What they make of a step whose answer is known.


LONG = (10_000, 10_400, 10_200, 10_600, 10_100, 10_300)


@pytest.mark.parametrize("factor", [0.1, 0.25, 0.5, 1.0])
def test_a_tenth_of_the_work_is_waited_for_a_tenth_of_the_time(factor):
    """Of a step of 200 µs of dispatch, 10.3 ms of work and 100 µs of waking up."""
    trace = program(until_done(100, work=LONG), work=LONG)
    rows = np.arange(len(trace.device_ops))
    after = what_if(trace, (ScaleDeviceOps(rows, factor, factor, factor),))
    left = 201 * US + np.mean(LONG) * US * factor + 100 * US
    assert after.step_ns == pytest.approx(left, rel=0.03)
    low, high = after.range_ns
    assert low <= left <= high * 1.01
    assert after.bound_ns <= left


def test_a_host_that_computes_for_as_long_stays():
    trace = program([11_000] * 6, work=LONG)
    rows = np.arange(len(trace.device_ops))
    after = what_if(trace, (ScaleDeviceOps(rows, 0.1, 0.1, 0.1),))
    assert after.step_ns == pytest.approx(11_201 * US, rel=0.01)


def test_idle_time_is_that_of_a_wait_and_not_of_python():
    waited = breakdown(program(until_done(100, work=LONG), work=LONG))
    computed = breakdown(program([11_000] * 6, work=LONG))
    assert waited.of_part("idle-python") <= 2 * US
    sync = waited.of_part("idle-sync") + waited.of_part("idle-after-sync")
    assert sync == pytest.approx(300 * US, rel=0.05)
    assert computed.of_part("idle-python") == pytest.approx(900 * US, rel=0.05)  # with dispatch
    assert waited.ns_per_step.sum() == waited.typical_ns
