import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind
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


MS, US = 1_000_000, 1_000


def on_cpus(
    *, calls=40, between="aten::div_", elements=2_000, shapes=True, in_hooks=False, large_us=None
):
    """Steps of 50 ms: 10 ms of a product, then every 0.9 ms 100 us of an operator and an all-reduce
    of 600 us, for which the thread waits. ``large_us``: every second one takes so long and is of
    240 kB, the others take 20 us."""
    b = TraceBuilder()
    b.devices = []
    gloo = b.thread("gloo")
    size = {"shapes": f"[[{elements}]]", "dtypes": '["float"]'} if shapes else {}
    for step in range(5):
        b.step(step, step * 50 * MS, 50 * MS)
        b.op("aten::mm", step * 50 * MS + 100 * US, 10 * MS)
        for call in range(calls):
            at = step * 50 * MS + 11 * MS + call * 900 * US
            b.op(between, at, 100 * US)
            if in_hooks:
                b.op(HOOK, at + 110 * US, 60 * US)
            b.op("c10d::allreduce_", at + 120 * US, 20 * US)
            b.add(
                "host_ops",
                name="gloo:all_reduce",
                start_ns=at + 150 * US,
                duration_ns=(600 if large_us is None else large_us if call % 2 else 20) * US,
                thread=gloo,
                kind=HostKind.ANNOTATION,
                **(size if large_us is None or not call % 2 else size | LARGE),
            )
    return b.trace()


LARGE = {"shapes": "[[60000]]"}
HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_of_a_program_on_cpus_what_the_thread_waits_for_in_the_backend(outcome, predicted):
    (finding,) = outcome("small-collectives", on_cpus()).findings
    assert finding.summary == (
        "40 collectives a step move 7.81 KiB each, and the program waits 24.0 ms a step for them"
    )
    assert finding.cost_ns_per_step == 40 * 600 * US


def test_what_moves_bytes_for_most_of_its_time_would_do_so_in_one_call(outcome):
    assert outcome("small-collectives", on_cpus(large_us=600)).answer == "clear"
    assert outcome("small-collectives", on_cpus(large_us=50)).answer == "found"


@pytest.mark.parametrize("between", ["aten::addmm", "aten::_local_scalar_dense"])
def test_of_a_program_on_cpus_calls_that_layers_or_values_lie_between_stay(outcome, between):
    assert outcome("small-collectives", on_cpus(between=between)).answer == "clear"


def test_gradients_that_hooks_reduce_as_they_come_are_meant(outcome):
    trace = on_cpus(between="aten::addmm", in_hooks=True)
    assert outcome("small-collectives", trace).answer == "found"


def test_of_a_program_on_cpus_without_sizes(outcome):
    assert outcome("small-collectives", on_cpus(shapes=False)).answer == "not checked"
    assert outcome("small-collectives", on_cpus(calls=8, shapes=False)).answer == "clear"
