import pytest

from program import Program

CALLS, HOST_US = 40, 60


def reducing(*, calls=CALLS, elements=2_048, us=20):
    """A backward pass of 1 ms, then one all-reduce for each parameter, HOST_US each."""
    p = Program()
    args = {"In msg nelems": elements, "dtype": "Float"}
    for _ in p.steps(6):
        p.kernel("backward", 1_000)
        with p.frame("train.py(70): reduce_gradients"):
            for _ in range(calls):
                with p.row("c10d::allreduce_"):
                    p.busy(HOST_US - 5)
                    p.collective(us, args | {"Group size": 2})
    return p.trace()


def test_shows_the_message_and_the_host_time(outcome):
    (finding,) = outcome("small-collectives", reducing()).findings
    assert finding.summary == "40 collectives a step move 8 KiB each"
    assert finding.cost_ns_per_step == pytest.approx(CALLS * HOST_US * 1e3, rel=0.02)
    assert finding.location.function == "reduce_gradients"


def test_as_one_flat_buffer_one_call_is_left(predicted):
    after_ns = 1e6 + 20e3 + HOST_US * 1e3
    assert predicted(reducing(), "small-collectives") == pytest.approx(after_ns, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [reducing(calls=8), reducing(elements=1 << 22), reducing(calls=0)],
    ids=["few", "buckets", "none"],
)
def test_other_collectives_are_not_meant(outcome, trace):
    assert outcome("small-collectives", trace).answer == "clear"


def test_packing_many_tensors_takes_the_host_time_too(predicted):
    many = reducing(calls=600, us=2)
    packing_ns = 600 * 5e3
    assert predicted(many, "small-collectives") > 0.8 * packing_ns


def generating(between_us, *, sizes=True):
    """Each layer of a split model adds up its halves, and the next one computes with them."""
    p = Program()
    args = {"In msg nelems": 2_048, "dtype": "Float", "Group size": 2} if sizes else {}
    for _ in p.steps(6):
        for _ in range(CALLS):
            p.collective(20, args)
            if between_us:
                p.kernel("layer", between_us)
        p.sync()
    return p.trace()


def test_what_the_next_layer_needs_cannot_be_merged(outcome):
    assert outcome("small-collectives", generating(30)).answer == "clear"
    assert outcome("small-collectives", generating(0)).answer == "found"


def test_cannot_judge_without_sizes(outcome):
    assert outcome("small-collectives", generating(0, sizes=False)).answer == "not checked"
