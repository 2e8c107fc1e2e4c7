import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.registry import ask, rules
from pinchpoint.diagnosis.rules.on_cpu.cpu_argument_copies import check

MS, MB = 1_000_000, 1_000_000


def _steps(*, argument="store.obs", donated=False, took=30, every=1, devices=(), calls=()):
    """Four steps of 100 ms, in each or every so many of which 40 MB are copied."""
    built = TraceBuilder(devices=devices)
    for number in range(4):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        rest = {"source": "/code/model.py:9", "module": "jit_put(17)", "bytes": 10 * MB}
        built.add("compiled_ops", op="dot.1", start_ns=at, duration_ns=20 * MS, **rest)
        begin = at + 35 * MS
        for function, ms in calls:
            built.op(f"PjitFunction({function})", begin, ms * MS)
            built.op(f"PjitFunction({function})", begin + 1_000, ms * MS - 2_000)  # JAX has two
            begin += ms * MS
        if number % every == 0:
            copy = {"source": "/code/replay.py:93", "module": "jit_put(17)", "bytes": 80 * MB}
            told = {} if argument is None else {"argument": argument, "donated": donated}
            begin = {"start_ns": at + 30 * MS, "duration_ns": took * MS}
            built.add("compiled_ops", op="copy.5", **begin, **copy, **told)
    return built.trace()


def test_an_argument_that_is_copied_before_it_is_changed():
    (found,) = check(_steps())
    assert found.summary == (
        "1 copies a step of arguments, 40 MB of store.obs, keep them as they were at replay.py:93,"
        " for the compiled function put: 30.0 ms of each recorded step"
    )
    assert found.fix.startswith("Donate store to put (donate_argnums of jax.jit)")
    assert found.saving_ns_per_step == (15 * MS, 30 * MS)
    assert (found.location.file, found.location.line) == ("/code/replay.py", 93)


def test_the_calls_that_get_new_memory_may_go_with_the_copies():
    """They take 25 ms, those of two other functions 5: 20 more than 30 of copies at most."""
    built = _steps(calls=(("put", 25), ("act", 5), ("update", 5)))
    (found,) = check(built)
    assert found.saving_ns_per_step == pytest.approx((15 * MS, 50 * MS), rel=1e-3)
    assert found.cost_ns_per_step == pytest.approx(50 * MS, rel=1e-3)


def test_what_else_is_computed_stays():
    """The calls take all of the step and more; 20 ms of it compute something else."""
    (found,) = check(_steps(calls=(("put", 95), ("act", 1), ("update", 1))))
    assert found.saving_ns_per_step == (15 * MS, 80 * MS)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(donated=True), id="donated, and read afterwards"),
        pytest.param(_steps(argument=None), id="of a result"),
        pytest.param(_steps(every=4), id="a snapshot now and then"),
        pytest.param(_steps(devices=TraceBuilder().trace().devices), id="on a device"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("cpu-argument-copies", _steps(took=3))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 3.0 %")


def _waited_for(*, copies=30, gap=0, thread=2):
    """As above, in executions of 40 ms on a thread, which then wait 20 ms for their completion."""
    built = TraceBuilder(devices=())
    for number in range(4):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        told = {"argument": "store.obs", "donated": False, "module": "jit_put(17)"}
        copy = {"start_ns": at + MS, "duration_ns": copies * MS, "bytes": 80 * MB}
        built.add("compiled_ops", op="copy.5", **copy, **told)
        built.op("ThunkExecutor::Execute", at + MS, 40 * MS, thread=2)
        waits = "ThunkExecutor::Execute (wait for completion)"
        built.op(waits, at + 41 * MS + gap * MS, 20 * MS, thread=thread)
    return built.trace()


def test_what_an_execution_of_copies_waits_for_its_completion_is_theirs():
    (found,) = check(_waited_for())
    assert found.summary.endswith("50.0 ms with waits for their completion")
    assert found.likely_saving_ns == 50 * MS
    assert found.saving_ns_per_step == (15 * MS, 50 * MS)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_waited_for(copies=15), id="mostly something else"),
        pytest.param(_waited_for(gap=5), id="later, of another execution"),
        pytest.param(_waited_for(thread=3), id="on another thread"),
    ],
)
def test_other_waits_are_not(trace):
    (found,) = check(trace)
    assert found.likely_saving_ns is None
    assert "wait" not in found.summary


def test_causes_on_devices_are_none_of_a_program_compiled_for_the_cpu():
    assert ask(rules()["device-copies"], _steps()).answer == "not applicable"
