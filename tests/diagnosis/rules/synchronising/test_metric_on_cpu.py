import pytest

from pinchpoint.trace import HostKind, MemoryKind
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
                kind = HostKind.OPERATOR if work.startswith("aten::") else HostKind.PYTHON
                p.host(work, NUMPY_US, kind=kind)
    return p.trace()


def test_counts_bytes_and_the_function_that_copies_and_computes(outcome):
    (finding,) = outcome("metric-on-cpu", measuring()).findings
    assert finding.summary.startswith("16 MB a step are copied to the host")
    assert finding.location.function == "accuracy"
    spent_ns = (1_000 + COPY_US + NUMPY_US) * 1e3  # it waits for the forward pass too
    assert finding.cost_ns_per_step == pytest.approx(spent_ns, rel=0.01)


def test_on_the_device_the_step_is_the_forward_pass(predicted):
    assert predicted(measuring(), "metric-on-cpu") == pytest.approx(1e6, rel=0.1)


def test_a_large_copy_alone_is_no_metric(outcome):
    assert outcome("metric-on-cpu", measuring(work=None)).answer == "clear"


def test_operators_on_cpu_tensors_are_work_too(outcome):
    (finding,) = outcome("metric-on-cpu", measuring(work="aten::argmax")).findings
    assert finding.location.function == "accuracy"


def test_work_in_a_function_that_is_called_with_the_copy(outcome):
    p = Program()
    for _ in p.steps(6):
        p.kernel("forward", 1_000)
        with p.frame("train.py(60): accuracy"):
            with p.row("aten::to"), p.row("aten::copy_"):
                p.copy(SIZE, COPY_US, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
            with p.frame("metrics.py(7): confusion"):
                p.host(ARGMAX, NUMPY_US)
            p.host("train.py(99): other", 20_000)
    (finding,) = outcome("metric-on-cpu", p.trace()).findings
    assert finding.location.function == "confusion"


@pytest.mark.parametrize(
    "trace",
    [measuring(size=4), measuring(work="torch/utils/tensorboard/writer.py(357): add_histogram")],
    ids=["a scalar", "a log"],
)
def test_other_reads_are_not_meant(ranked, trace):
    assert "metric-on-cpu" not in ranked(trace)
