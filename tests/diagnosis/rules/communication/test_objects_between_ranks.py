import pytest

from builders import TraceBuilder, with_what_goes
from pinchpoint.trace import HostKind

MS = 1_000_000
C10D = "torch/distributed/distributed_c10d.py(3438): "
WAIT = "<built-in method wait of Work object at 0x7f00>"


def scoring(call="all_gather_object", *, every=1, around_ms=40):
    """Steps of 100 ms: a function of 40 makes lists, exchanges them for 20, 8 of which are a wait,
    and counts them."""
    b = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 100 * MS
        b.step(step, at, 100 * MS)
        b.op("aten::mm", at + MS, 3 * MS)
        if step % every == 0:
            b.python("train.py(45): update", at + 5 * MS, around_ms * MS)
            b.python(C10D + call, at + 10 * MS, 20 * MS)
            b.op(WAIT, at + 15 * MS, 8 * MS, kind=HostKind.PYTHON)
    return b.trace()


def test_what_exchanging_takes_without_waits_and_the_function_around_it(outcome, predicted):
    (found,) = outcome("objects-between-ranks", scoring()).findings
    assert found.summary == (
        "Ranks exchange Python objects in update (train.py:45), 1 × a step: packing, unpacking and"
        " copying take 12.0 ms of each recorded step"
    )
    assert found.location.function == "update"
    # 12 ms alone leave 88, all of the function but its wait leaves 68.
    alone, whole = with_what_goes(100, 88), with_what_goes(100, 68)
    left_ns = predicted(scoring(), "objects-between-ranks")
    assert left_ns == pytest.approx((alone * whole) ** 0.5 * MS, rel=0.01)


def test_a_training_step_is_not_made_for_the_objects(outcome):
    """A function of 90 ms of which 12 exchange objects wins those alone."""
    (found,) = outcome("objects-between-ranks", scoring(around_ms=90)).findings
    assert found.cost_ns_per_step == 12 * MS


@pytest.mark.parametrize(
    "trace",
    [scoring("all_gather"), scoring(every=3), scoring("object_list_of_mine")],
    ids=["tensors", "an evaluation now and then", "another function"],
)
def test_it_stays_quiet(outcome, trace):
    assert outcome("objects-between-ranks", trace).answer == "clear"
