import pytest

from pinchpoint.trace import MemoryKind
from program import Program

SIZE, COPY_US, NUMPY_US = 16_000_000, 2_000, 5_000
ARGMAX = "numpy/core/fromnumeric.py(1140): argmax"


def measuring(
    *, size=SIZE, work=ARGMAX, operator="aten::copy_", shapes=((4096, 1000), (4096, 1000))
):
    """Each step computes 1 ms, copies predictions to the host, and works on them there."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("forward", 1_000)
        with p.frame("train.py(60): accuracy"):
            with p.row("aten::to"), p.row(operator, shapes=list(shapes)):
                p.copy(size, COPY_US, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
            if work:
                p.host(work, NUMPY_US)
    return p.trace()


def test_counts_bytes_and_the_function_that_copies_and_computes(outcome):
    (finding,) = outcome("metric-on-cpu", measuring()).findings
    assert finding.summary.startswith("16 MB a step are copied to the host")
    assert finding.location.function == "accuracy"
    spent_ns = (1_000 + COPY_US + NUMPY_US) * 1e3  # it waits for the forward pass too
    assert finding.cost_ns_per_step == pytest.approx(spent_ns, rel=0.01)


def test_on_the_device_the_step_is_the_forward_pass(predicted):
    assert predicted(measuring(), "metric-on-cpu") == pytest.approx(1e6, rel=0.1)


def test_a_large_copy_alone_costs_its_wait(outcome):
    (finding,) = outcome("metric-on-cpu", measuring(work=None)).findings
    assert finding.cost_ns_per_step == pytest.approx((1_000 + COPY_US) * 1e3, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [measuring(size=4), measuring(work="torch/utils/tensorboard/writer.py(357): add_histogram")],
    ids=["a scalar", "a log"],
)
def test_other_reads_are_not_meant(ranked, trace):
    assert "metric-on-cpu" not in ranked(trace)
