"""When the thread of the steps stands in a collective of the host's backend; microseconds."""

from builders import TraceBuilder
from pinchpoint.analysis.ranks.collective_calls import rank_calls

US = 1_000


def blocked_us(*after, call=(100, 400), python=()):
    """One step of 1000: an operator, a collective issued at 90, and what the thread does after."""
    b = TraceBuilder()
    b.devices = []
    gloo = b.thread("gloo")
    b.step(0, 0, 1_000 * US)
    b.op("aten::mm", 10 * US, 70 * US)
    b.op("c10d::allreduce_", 90 * US, 10 * US)
    for name, start, end in after:
        b.op(name, start * US, (end - start) * US)
    for name, start, end in python:
        b.python(name, start * US, (end - start) * US)
    start, end = call
    b.annotation("gloo:all_reduce", start * US, (end - start) * US, thread=gloo)
    calls = rank_calls(b.trace())
    return int(calls.exposed_ns[0]) / US


def test_a_thread_that_does_nothing_until_its_end_stands_in_it():
    assert blocked_us(("aten::div", 402, 450)) == 300


def test_what_it_computes_meanwhile_is_no_waiting():
    assert blocked_us(("aten::mm", 110, 250), ("aten::div", 402, 450)) == 150


def test_it_may_go_on_before_the_backend_is_done_with_itself():
    assert blocked_us(("aten::div", 390, 450)) == 290


def test_a_thread_at_work_at_its_end_does_not_wait():
    assert blocked_us(("aten::mm", 110, 900)) == 0


def test_python_that_follows_a_wait_is_none_of_it():
    assert blocked_us(("aten::div", 950, 990)) == 300


def test_python_beside_a_collective_that_is_not_awaited():
    """Other work came in between, and the rest lasts far beyond the collective's end."""
    assert blocked_us(("aten::mm", 102, 300), ("aten::div", 950, 990)) == 0


def test_a_function_that_waits_ends_with_it():
    waits = ("torch/distributed/c10d.py(9): wait", 120, 401)
    loop = ("train.py(5): metrics", 101, 980)
    assert blocked_us(("aten::div", 981, 990), python=(loop, waits)) == 280


def test_a_function_of_autograd_waits_in_itself_for_what_it_has_issued():
    """``Exchange`` copies, hands the exchange over and stands in it; after that, a product."""
    around = ("Exchange", 85, 405)
    assert blocked_us(around, ("aten::mm", 406, 900)) == 300
    other = ("Exchange", 105, 405)  # issues nothing: it computes, as far as is known
    assert blocked_us(other, ("aten::mm", 406, 900)) == 0
