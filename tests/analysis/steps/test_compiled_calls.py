"""Steps of JAX's programs by the calls of the one function that they compiled."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.candidates import candidates, repeated_work
from pinchpoint.analysis.steps.repetition import infer_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import HostKind, RunFacts

MS = 1_000_000


def program(*calls, devices=2):
    """Calls as (name, start, length) in ms; each is launched from XLA's threads, a device each."""
    builder = TraceBuilder()
    others = [builder.thread(f"py_xla_execute/{n}") for n in range(devices)]
    for name, at, takes in calls:
        for inner in (0, 1):  # as JAX writes them
            builder.op(
                f"PjitFunction({name})",
                at * MS + inner,
                takes * MS - inner,
                kind=HostKind.ANNOTATION,
            )
        for n, thread in enumerate(others):
            # the first call compiles, and launches more
            for k in range(2 + 3 * (at == calls[0][1])):
                builder.launch(
                    at=(at + takes) * MS + k * 1000,
                    takes=500,
                    kernel=f"fusion_{k}",
                    runs_at=(at + takes) * MS + 2000 + k * 10_000,
                    for_ns=5000,
                    thread=thread,
                    device=n,
                )
    return builder.trace()


def test_each_call_of_the_only_function_is_a_step():
    found = steps(program(*(("train", 10 * n, 4) for n in range(5))))
    assert (found.how, len(found), found.confidence) == ("inferred", 5, 0.8)
    assert "the compiled 'train', 5 times" in found.basis
    assert found.host_start_ns.tolist() == [10 * n * MS for n in range(5)]
    assert found.host_end_ns.tolist() == [*(10 * n * MS for n in range(1, 5)), 44 * MS]


def test_small_functions_beside_it_are_part_of_the_step():
    calls = [c for n in range(4) for c in (("train", 100 * n, 40), ("add", 100 * n + 50, 1))]
    assert "the compiled 'train', 4 times" in steps(program(*calls)).basis


def test_several_in_turn_are_one_step():
    """From where the program pauses longest: before ``forward``."""
    calls = [("update", 0, 4)]
    calls += [
        c for n in range(6) for c in (("forward", 30 * n + 15, 4), ("update", 30 * n + 25, 4))
    ]
    found = steps(program(*calls))
    assert found.basis == "no markers; 2 calls of compiled functions in turn, 6 times"
    assert found.host_start_ns.tolist() == [(30 * n + 15) * MS for n in range(6)]
    assert int(found.host_end_ns[-1]) == (30 * 5 + 29) * MS


@pytest.mark.parametrize(
    "calls",
    [
        [("train", 10 * n, 4) for n in range(2)],
        [(name, 20 * n + at, 4) for n in range(3) for name, at in (("forward", 0), ("update", 10))],
        [(f"add_{n}", 10 * n, 4) for n in range(6)],
    ],
    ids=["two calls", "two functions in turn, too few times", "always another"],
)
def test_what_is_no_step_by_its_calls(calls):
    assert "compiled" not in steps(program(*calls)).basis


@pytest.mark.parametrize(
    ("file", "is_one"), [("jax/_src/array_creation.py", False), ("mine.py", True)]
)
def test_functions_of_jax_itself_are_no_steps(file, is_one):
    b = TraceBuilder()
    for number in range(6):
        b.python(f"{file}(98): ones", number * 1_000, 900)
        b.op("compute", number * 1_000 + 100, 700)
    trace = b.trace()
    found = candidates(trace, repeated_work(trace))
    assert any(one.kind == "function" for one in found) is is_one


@pytest.mark.parametrize("run", [RunFacts(), None], ids=["a run", "a file"])
def test_of_a_run_that_recorded_less_than_two_steps_a_longer_one_is_asked_for(run):
    b = TraceBuilder()
    b.devices = []
    b.op("call", 0, MS)
    b.op("call", 2 * MS, MS)
    b.add("compiled_ops", op="call", start_ns=0, duration_ns=MS)
    trace = replace(b.trace(api_calls=None, device_ops=None), run=run)
    assert ("pinchpoint run --seconds 20" in infer_steps(trace).reason) is (run is not None)
