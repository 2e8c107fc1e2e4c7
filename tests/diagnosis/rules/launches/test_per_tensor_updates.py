import pytest

from pinchpoint.trace import HostKind
from program import Program

TENSORS, HOST_US = 100, 60
SHAPES = [[64, 64], [64], [128, 64], [128], [256, 128]]


def averaging(
    *, names=("aten::mul_", "aten::add_"), shapes=SHAPES, tensors=TENSORS, around="Averager"
):
    """Each step updates an average of every parameter, 60 µs of the host and 1 µs of the device."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("train.py(40): update"):
            for i in range(tensors):
                for name in names:
                    kind = HostKind.OPERATOR if "autograd" in around else HostKind.ANNOTATION
                    with p.row(around, kind=kind):
                        update(p, name, shapes[i % len(shapes)])
        p.kernel("gemm", 500)
    return p.trace()


def update(p, name, shape):
    with p.row(name, shapes=[shape, shape], dtypes=["float", "float"]):
        p.busy(HOST_US)
        p.kernel("elementwise", 1)


def test_counts_launches_of_one_function(outcome):
    (finding,) = outcome("per-tensor-updates", averaging()).findings
    assert finding.summary.startswith("aten::add_ and aten::mul_ run for one tensor at a time")
    assert finding.evidence[0].value == 2 * TENSORS
    assert finding.evidence[1].value == len(SHAPES)
    assert finding.location.function == "update"


def test_grouped_they_cost_next_to_nothing(predicted):
    assert predicted(averaging(), "per-tensor-updates") < 0.15 * 2 * TENSORS * HOST_US * 1_000


@pytest.mark.parametrize(
    "trace",
    [
        averaging(shapes=[[64, 64]]),
        averaging(tensors=10),
        averaging(names=("aten::mul", "aten::add")),
        averaging(around="Optimizer.step#AdamW.step"),
        averaging(around="autograd::engine::evaluate_function: MulBackward0"),
    ],
    ids=["one shape", "few", "no updates", "an optimizer", "backward"],
)
def test_other_launches_are_not_meant(outcome, trace):
    assert outcome("per-tensor-updates", trace).answer == "clear"
