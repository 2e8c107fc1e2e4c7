"""Gradients of a product of two narrow matrices, in a recording alone."""

import pytest

from program import Program

ROWS, OUT, IN, RANK = 4096, 2048, 1024, 16
EVALUATE = "autograd::engine::evaluate_function: "
US = 1_000.0


def shapes(*sizes):
    return {"shapes": [list(size) for size in sizes], "dtypes": ["c10::BFloat16"] * len(sizes)}


def operator(p, name, *sizes, ms=0.01, sequence=None):
    more = {} if sequence is None else {"sequence": sequence}
    with p.row(name, **shapes(*sizes), **more):
        p.kernel(name[6:], ms * US)


def node(p, kind, sequence, *operators):
    with p.row(f"{EVALUATE}{kind}Backward0", sequence=sequence):
        for name, sizes, ms in operators:
            operator(p, name, *sizes, ms=ms)


def takes(p, size):
    with (
        p.row(f"{EVALUATE}torch::autograd::AccumulateGrad"),
        p.row("torch::autograd::AccumulateGrad", **shapes(size)),
    ):
        pass


def adapted(p, *, rank=RANK, masked=False, trained="", branch=False):
    """A layer with a weight to which a product is added; its dense gradient takes 4 ms."""
    whole = (OUT, IN)
    with p.frame("adapter.py(9): forward"):
        operator(p, "aten::mm", (OUT, rank), (rank, IN), sequence=1)
        operator(p, "aten::mul", whole, whole if masked else (), sequence=2)
        operator(p, "aten::add", whole, whole, sequence=3)
    operator(p, "aten::mm", (ROWS, IN), (IN, OUT), ms=2, sequence=5)
    node(
        p, "Mm", 5,
        ("aten::mm", ((OUT, ROWS), (ROWS, IN)), 4.0), ("aten::mm", ((ROWS, OUT), (OUT, IN)), 2.0),
    )  # fmt: skip
    node(p, "Add", 3)
    if trained == "before":
        takes(p, whole)
    node(p, "Mul", 2, ("aten::mul", (whole, whole if masked else ()), 0.5))
    node(
        p, "Mm", 1,
        ("aten::mm", ((rank, OUT), (OUT, IN)), 0.25), ("aten::mm", ((OUT, IN), (IN, rank)), 0.25),
    )  # fmt: skip
    takes(p, (OUT, rank))
    if branch:
        node(p, "Mm", 0, ("aten::mm", ((rank, ROWS), (ROWS, IN)), 0.1))
    takes(p, (rank, IN))
    if trained == "after":
        takes(p, whole)


def steps_of(**how):
    p = Program()
    for _ in p.steps(6):
        adapted(p, **how)
        p.sync()
    return p.trace()


def test_the_dense_gradient_is_what_nobody_else_asks_for(outcome):
    (found,) = outcome("costly-product-order", steps_of()).findings
    flops = 2 * OUT * IN * (ROWS + 2 * RANK)
    assert found.evidence[1].value == flops
    assert found.evidence[2].value == 4 * ROWS * RANK * (OUT + IN)
    assert found.summary.startswith("3 matrix products a step for gradients of the product in")
    assert found.summary.endswith("5.00 ms of the device's time as recorded")
    assert found.location.function == "forward"
    assert found.location.file == "adapter.py"
    (change,) = found.changes
    assert len(change.device_ops) == 4 * 5  # with the factor, in five judged steps
    assert change.factor < 0.1


NEEDED = {
    "a mask": {"masked": True},
    "the weight is trained": {"trained": "before"},
    "the weight is computed from one that is": {"trained": "after"},
    "not narrow": {"rank": 1000},
    "beside an activation": {"branch": True},
}


@pytest.mark.parametrize("why", NEEDED)
def test_a_gradient_that_is_needed(outcome, why):
    assert outcome("costly-product-order", steps_of(**NEEDED[why])).findings == ()
