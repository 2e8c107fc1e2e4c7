import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay.predict import what_if
from pinchpoint.trace import Device
from program import Program

REQUESTS, HOST_US = 8, 100


def serving(*, requests=REQUESTS, batch=1, shapes=True, trains=False):
    """Each step answers requests one after the other: two layers each, HOST_US a layer."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(requests):
            with p.frame("serve.py(30): answer"):
                for width in (768, 3072):
                    more = {"shapes": [[batch, width], [width, width]]} if shapes else {}
                    with p.row("aten::linear", **more):
                        p.busy(HOST_US - 5)
                        p.kernel("gemv", 10)
        if trains:
            p.host("autograd::engine::evaluate_function: AddmmBackward0", 20)
    return p.trace()


def test_counts_passes_alike(outcome):
    (finding,) = outcome("no-batching", serving()).findings
    assert finding.evidence[0].value == REQUESTS
    assert finding.location.function == "answer"


def test_one_batch_takes_what_one_request_takes(predicted):
    assert predicted(serving(), "no-batching") == pytest.approx(2 * HOST_US * 1e3, rel=0.2)


@pytest.mark.parametrize(
    "trace",
    [serving(batch=32), serving(requests=1), serving(requests=3), serving(trains=True)],
    ids=["micro-batches", "one request", "few", "training"],
)
def test_other_steps_are_not_meant(outcome, trace):
    assert outcome("no-batching", trace).answer == "clear"


def test_without_shapes_it_cannot_be_told(outcome):
    assert outcome("no-batching", serving(shapes=False)).answer == "not checked"


@pytest.mark.parametrize(
    ("name", "query", "answer"),
    [
        ("aten::scaled_dot_product_attention", 1, "not checked"),
        ("aten::scaled_dot_product_attention", 64, "found"),
        ("aten::_thnn_fused_gru_cell", 64, "not checked"),
    ],
    ids=["tokens", "prompts", "time steps"],
)
def test_passes_that_may_need_the_one_before(outcome, name, query, answer):
    p, keys = Program(), [1, 8, 500, 64]
    for _ in p.steps(6):
        for _ in range(REQUESTS):
            with p.row("aten::linear", shapes=[[1, query, 512], [512, 512]]):
                p.busy(HOST_US)
                p.kernel("gemv", 10)
            with p.row(name, shapes=[[1, 8, query, 64], keys, keys]):
                p.busy(HOST_US)
                p.kernel("attention", 10)
    assert outcome("no-batching", p.trace()).answer == answer


def test_requests_that_fill_the_device_take_as_long_together(outcome):
    p = Program()
    p.builder.devices[:] = [Device(0, "NVIDIA H100 80GB HBM3", multiprocessors=132)]
    for _ in p.steps(6):
        for _ in range(REQUESTS):
            for width in (4096, 2048):
                shapes = [[1, 512, width], [width, width]]
                with p.row("aten::linear", shapes=shapes, dtypes=["c10::BFloat16"] * 2):
                    p.kernel("gemm", 500, grid="[264, 1, 1]")
    trace = p.trace()
    (finding,) = outcome("no-batching", trace).findings
    found = what_if(trace, finding.changes)
    assert found.step_ns == found.raw_ns == pytest.approx(REQUESTS * 2 * 500e3, rel=0.01)


@pytest.mark.parametrize(
    ("first", "width", "answer"),
    [
        pytest.param(1, 96, "not checked", id="one request of small tensors"),
        pytest.param(32, 96, "clear", id="a batch"),
        pytest.param(1, 96_000, "clear", id="one request that is work enough"),
    ],
)
def test_of_a_program_on_cpus_it_is_undecided(outcome, first, width, answer):
    b = TraceBuilder()
    b.devices = []
    for step in range(5):
        b.step(step, step * 1_000_000, 1_000_000)
        shapes = f"[[{first}, 16, {width}], [{width}, {width}]]"
        b.op("aten::linear", step * 1_000_000 + 1_000, 400_000, shapes=shapes)
    said = outcome("no-batching", b.trace())
    assert said.answer == answer
    if answer == "not checked":
        assert "each pass has a batch of one, and 100 % of its time" in said.why
