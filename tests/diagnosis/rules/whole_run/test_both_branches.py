"""A condition under vmap, of a program of JAX on the CPU."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.tables.compiled_programs import compiled_on_host
from pinchpoint.trace import BothBranches, Device, DeviceKind, RunFacts

US = 1000
BRANCH = BothBranches(("env.py", 39, "step_one"), ("/code/env.py:23", "/code/env.py:25"))


def program(conditions=(BRANCH,), branch_us=60):
    """Steps of 100 µs: a loop whose body is a fusion of a branch, then a product elsewhere."""
    b = TraceBuilder()
    pool = b.thread("tf_XLAEigen")
    for number in range(6):
        at = number * 100 * US
        b.step(number, at, 100 * US)
        ops = (
            ("while.1", "/code/env.py:25", at, branch_us + 10),
            ("fusion.2", "/code/env.py:23, jit(step)/vmap()/mul", at + US, branch_us),
            ("dot.3", "/code/model.py:60", at + 85 * US, 10),
        )
        for name, source, start, took_us in ops:
            b.op(name, start, took_us * US, thread=pool)
            b.add("compiled_ops", start_ns=start, duration_ns=took_us * US, op=name, source=source)
    b.devices = []
    trace = b.trace(api_calls=None, device_ops=None)
    return replace(trace, run=RunFacts(both_branches=tuple(conditions)))


def test_a_line_has_its_own_operations_without_those_inside():
    found = {place.source: place for place in compiled_on_host(program())}
    assert found["/code/env.py:23"].ns_per_step == 60 * US
    assert found["/code/env.py:25"].ns_per_step == 10 * US
    assert found["/code/model.py:60"].ops == ("dot.3",)


def test_what_branches_take_that_are_computed_for_every_row(outcome):
    (found,) = outcome("both-branches", program()).findings
    assert found.summary.startswith("The condition in step_one (env.py:39) is under vmap")
    assert found.cost_ns_per_step == 70 * US
    assert (found.location.line, found.location.function) == (39, "step_one")


@pytest.mark.parametrize(
    "trace",
    [
        program(conditions=()),
        program(conditions=[BothBranches(("env.py", 39, "step_one"), ("/code/other.py:1",))]),
    ],
    ids=["no condition", "small branches"],
)
def test_conditions_that_cost_nothing_are_no_cause(outcome, trace):
    assert outcome("both-branches", trace).findings == ()


def test_on_a_device_all_of_the_branches_may_go_and_nothing_else(outcome):
    built = TraceBuilder(devices=(Device(0, "NVIDIA H200"),))
    for number in range(6):
        at = number * 100 * US
        built.step(number, at, 100 * US)
        for op, source, start, took_us in (
            ("fusion.2", "/code/env.py:23", at, 70),
            ("dot.3", "/code/model.py:60", at + 70 * US, 20),
        ):
            row = {"start_ns": start, "duration_ns": took_us * US, "device": 0}
            built.add("compiled_ops", op=op, source=f"{source}, jit(step)/mul", **row)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    trace = replace(built.trace(), run=RunFacts(both_branches=(BRANCH,)))
    (found,) = outcome("both-branches", trace).findings
    assert found.saving_ns_per_step == (7 * US, 70 * US)
    assert found.leaves_ns_per_step == 20 * US


def test_what_the_compiled_program_tells_needs_no_run(outcome):
    """60 µs of each step are read by one side alone, 10 by the other; the product by both."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H200"),))
    for number in range(6):
        at = number * 100 * US
        built.step(number, at, 100 * US)
        for op, side, start, took_us in (
            ("fft", 2, at, 60),
            ("keep", 1, at + 60 * US, 10),
            ("dot", None, at + 70 * US, 20),
        ):
            row = {"start_ns": start, "duration_ns": took_us * US, "device": 0}
            told = {} if side is None else {"chosen_at": "/code/env.py:40", "chosen_side": side}
            built.add("compiled_ops", op=op, **told, **row)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    (found,) = outcome("both-branches", built.trace()).findings
    assert (found.location.file, found.location.line) == ("/code/env.py", 40)
    assert found.saving_ns_per_step == (6 * US, 60 * US)
    assert found.leaves_ns_per_step == 30 * US
    assert "in every other turn" in found.summary  # the other side is work of its own
    assert found.likely_saving_ns == 30 * US


def rollout(turns=4, keeps=(), **select):
    """Steps of a loop: two operations of a branch with a copy between that no program tells, the
    choice itself, and a product; in turns of 25 µs."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H200"),))
    side = {"chosen_at": "/code/env.py:40", "chosen_side": 1}
    loop = {"loop": "/code/env.py:60", "iterations": turns}
    for number in range(6):
        built.step(number, number * 100 * US, 100 * US)
        for turn in range(4):
            at = (number * 100 + turn * 25) * US
            for op, start, took_us, told in (
                ("grow.1", 0, 5, side | {"source": "/code/env.py:23", "bytes": 9}),
                ("command_buffer_7", 6, 3, {}),
                ("grow.2", 10, 5, side | {"source": "/code/env.py:23", "bytes": 9}),
                *keeps,
                ("select.3", 18, 1, {"source": "/code/env.py:40, jit(f)", **loop, **select}),
                ("command_buffer_8", 19, 1, {}),
                ("dot.4", 20, 4, {"source": "/code/net.py:5", **loop}),
            ):
                row = {"start_ns": at + start * US, "duration_ns": took_us * US, "device": 0}
                built.add("compiled_ops", op=op, **told, **row)
                built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


def test_what_lies_between_goes_with_a_side_and_each_row_needs_it_once_in_the_loop(outcome):
    """In each of 4 turns 13 µs of work, and 2 of pauses; what follows the side is not of it."""
    (found,) = outcome("both-branches", rollout()).findings
    assert found.cost_ns_per_step == 4 * 15 * US
    assert found.leaves_ns_per_step == 4 * (13 + 1 + 1 + 4) * US - 4 * 13 * US
    assert found.likely_saving_ns == 45 * US
    assert "once in the 4 turns of the loop around it" in found.summary


def test_without_a_loop_that_is_known_the_side_that_is_work_is_the_exception(outcome):
    (found,) = outcome("both-branches", rollout(turns=None)).findings
    assert found.likely_saving_ns == 54 * US
    assert "in one turn of ten" in found.summary


def test_where_the_other_side_is_work_too_nothing_says_which_is_rare(outcome):
    keep = ("keep", 15, 3, {"chosen_at": "/code/env.py:40", "chosen_side": 2, "bytes": 9})
    (found,) = outcome("both-branches", rollout(keeps=(keep,))).findings
    assert found.likely_saving_ns == 30 * US


def test_the_line_that_jax_told_has_its_function(outcome):
    told = BothBranches(("env.py", 40, "step_one"), ("/code/other.py:1",))
    trace = replace(rollout(), run=RunFacts(both_branches=(told,)))
    (found,) = outcome("both-branches", trace).findings
    assert found.location.function == "step_one"


def test_of_a_program_on_a_cpu_pauses_within_a_side_are_its_own(outcome):
    """Four turns of 25 µs in a step: 10 µs for one side with a pause of 1 µs, 5 for others."""
    b = TraceBuilder()
    pool, b.devices = b.thread("tf_XLAEigen"), []
    side = {"chosen_at": "/code/env.py:40", "chosen_side": 1, "source": "/code/env.py:23"}
    loop = {"loop": "/code/env.py:60", "iterations": 4}
    ops = (
        ("while.5", 0, 19, {"source": "/code/env.py:60"}),  # holds the others
        ("grow.1", 0, 5, side),
        ("grow.2", 6, 5, side),
        ("select.3", 12, 1, {"source": "/code/env.py:40, jit(f)", **loop}),
        ("dot.4", 14, 4, {"source": "/code/net.py:5", **loop}),
    )
    for number in range(6):
        b.step(number, number * 100 * US, 100 * US)
        for turn in range(4):
            for op, start, took_us, told in ops:
                row = {"start_ns": ((4 * number + turn) * 25 + start) * US}
                b.op(op, row["start_ns"], took_us * US, thread=pool)
                b.add("compiled_ops", op=op, duration_ns=took_us * US, **row, **told)
    (found,) = outcome("both-branches", b.trace(api_calls=None, device_ops=None)).findings
    assert found.cost_ns_per_step == 44 * US
    assert found.likely_saving_ns == 33 * US  # once in four turns
    # Of five steps all pauses take 193 µs, all operations 300.
    assert found.saving_ns_per_step == (4_400, round(40 * US * (1 + 193 / 300)))
