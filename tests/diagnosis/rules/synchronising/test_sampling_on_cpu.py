import pytest

from pinchpoint.trace import HostKind, MemoryKind
from program import Program

BATCH, VOCABULARY = 8, 50_257
NUMPY_US = 3_000


def generating(*, shape=(BATCH, VOCABULARY), trains=False, on_host=True):
    """Each step computes 1 ms and chooses the next tokens from copied logits."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("forward", 1_000)
        with p.frame("generate.py(60): sample"):
            if on_host:
                with p.row("aten::to"), p.row("aten::copy_", shapes=[shape, shape]):
                    size = 4 * shape[0] * shape[1]
                    p.copy(size, 100, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
                p.host("numpy/random/mtrand.py(1): choice", NUMPY_US)
            else:
                p.kernel("multinomial", 20)
        if trains:
            p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
    return p.trace()


def test_names_the_function_that_samples(outcome):
    (finding,) = outcome("sampling-on-cpu", generating()).findings
    assert finding.location.function == "sample"
    assert finding.cost_ns_per_step == pytest.approx((1_000 + 100 + NUMPY_US) * 1e3, rel=0.02)


def test_takes_the_place_of_a_metric_on_the_host(ranked, predicted):
    trace = generating()
    assert ranked(trace) == ["sampling-on-cpu"]
    assert predicted(trace, "sampling-on-cpu") == pytest.approx(1e6, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [generating(trains=True), generating(shape=(4096, 1000)), generating(on_host=False)],
    ids=["a metric of training", "no vocabulary", "on the device"],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("sampling-on-cpu", trace).answer == "clear"


def test_the_model_that_the_function_calls_goes_on_working(predicted):
    p = Program()
    for _ in p.steps(6):
        with p.frame("generate.py(60): next_token"):
            with p.frame("model.py(5): forward"):
                for _ in range(4):
                    p.kernel("gemv", 300)
            with p.row("aten::to"), p.row("aten::copy_", shapes=[(BATCH, VOCABULARY)] * 2):
                p.copy(1 << 20, 100, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
            p.host("numpy/random/mtrand.py(1): choice", NUMPY_US)
    assert predicted(p.trace(), "sampling-on-cpu") == pytest.approx(1_200e3, rel=0.05)
