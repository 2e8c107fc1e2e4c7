import pytest

from pinchpoint.trace import HostKind, MemoryKind
from program import Program

BATCH, VOCABULARY = 8, 50_257
NUMPY_US = 3_000
CHOICE = "numpy/random/mtrand.py(1): choice"


def generating(
    *, shape=(BATCH, VOCABULARY), tokens=VOCABULARY, trains=False, on_host=True, work=CHOICE
):
    """Each step looks tokens up, computes 1 ms and chooses the next ones from copied logits."""
    p = Program()
    for _ in p.steps(6):
        if tokens:
            with p.row("aten::embedding", shapes=[(tokens, 768), (BATCH, 1)]):
                p.kernel("lookup", 1)
        p.kernel("forward", 1_000)
        with p.frame("generate.py(60): sample"):
            if on_host:
                with p.row("aten::to"), p.row("aten::copy_", shapes=shape and [shape] * 2):
                    size = 4 * BATCH * VOCABULARY
                    p.copy(size, 100, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
                if work:
                    kind = HostKind.OPERATOR if work.startswith("aten::") else HostKind.PYTHON
                    p.host(work, NUMPY_US, kind=kind)
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
    [
        generating(trains=True),
        generating(shape=(8192, 4096)),
        generating(shape=(3600, 20_000), tokens=None),
        generating(work=None),
        generating(on_host=False),
    ],
    ids=[
        "a metric of training",
        "wide as no embedding is long",
        "boxes of a detector",
        "copied and not worked on",
        "on the device",
    ],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("sampling-on-cpu", trace).answer == "clear"


def test_operators_on_cpu_tensors_sample_too(ranked):
    assert ranked(generating(work="aten::sort")) == ["sampling-on-cpu"]


def test_without_shapes_logits_cannot_be_told(outcome):
    assert outcome("sampling-on-cpu", generating(shape=None)).answer == "not checked"


def test_the_model_that_the_function_calls_goes_on_working(predicted):
    p = Program()
    for _ in p.steps(6):
        with p.frame("generate.py(60): next_token"):
            with p.frame("model.py(5): forward"):
                with p.row("aten::embedding", shapes=[(VOCABULARY, 768), (BATCH, 1)]):
                    p.kernel("lookup", 1)
                for _ in range(4):
                    p.kernel("gemv", 300)
            with p.row("aten::to"), p.row("aten::copy_", shapes=[(BATCH, VOCABULARY)] * 2):
                p.copy(1 << 20, 100, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
            p.host("numpy/random/mtrand.py(1): choice", NUMPY_US)
    assert predicted(p.trace(), "sampling-on-cpu") == pytest.approx(1_200e3, rel=0.05)
