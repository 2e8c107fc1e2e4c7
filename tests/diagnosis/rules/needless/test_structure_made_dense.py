"""Diagonals and class numbers that are made matrices, and computed with as such."""

import pytest

from program import Program

MS = 1_000_000
ROWS, N = 4096, 22
FULL = [ROWS, N, N]
VECTOR = [ROWS, N]
DIAGONAL = ("aten::diag_embed", [VECTOR, [], [], []], 100)
CHOLESKY = ("aten::linalg_cholesky", [FULL, []], 2_000)
SOLVE = ("aten::linalg_solve_triangular", [FULL, [ROWS, N, 1], [], []], 1_000)
CHECKED = ("aten::isclose", [FULL, FULL, [], []], 400)
SEEN = ("aten::expand", [FULL, [], []], None)
OTHER = ("aten::mul", [[ROWS, 64], [ROWS, 64]], 3_000)


def policy(*operators, later=(), stacks=True, shapes=True, backward=False):
    """Each step makes a distribution in one function, and does something else after it."""
    p = Program()
    for number in p.steps(5):
        begun = p.at
        for name, calls in (("train.py(20): policy", operators), ("train.py(30): loss", later)):
            frame = p.frame(name) if stacks else p.row(name)
            with frame:
                for operator in calls:
                    run(p, operator, shapes=shapes, sequence=number + 1 if backward else None)
        if backward:
            with p.row("LinalgCholeskyBackward0", sequence=number + 1):
                p.kernel("trsm", 500)
        p.sync()
        p.busy(max(10_000 - (p.at - begun) / 1000, 0))
    return p.trace()


def run(p, operator, *, shapes=True, sequence=None):
    name, of, kernel_us, *inside = operator
    more = {"shapes": of} if shapes else {}
    if sequence is not None and name == CHOLESKY[0]:
        more["sequence"] = sequence
    with p.row(name, **more):
        for one in inside:
            run(p, one, shapes=shapes)
        if kernel_us:
            p.kernel(name, kernel_us)


def test_a_covariance_that_is_diagonal_is_told_with_what_its_zeros_take(outcome, ranked):
    trace = policy(DIAGONAL, SEEN, CHECKED, OTHER, CHOLESKY, later=(SOLVE,))
    (finding,) = outcome("structure-made-dense", trace).findings
    assert finding.summary == (
        "aten::diag_embed makes a diagonal a full matrix of 4096 × 22 × 22, and"
        " aten::linalg_cholesky, aten::linalg_solve_triangular compute with its zeros: 3.50 ms of"
        " each recorded step, in policy (train.py:20)"
    )
    assert "Independent(Normal" in finding.hint
    scaled, fewer = finding.changes
    assert scaled.factor == pytest.approx(3 / (N + 2))  # one column is solved for
    assert len(scaled.device_ops) == 4 * 4  # of four judged steps: the other operator is not its
    assert fewer.factor == 1.0  # each has one launch already
    assert "structure-made-dense" in ranked(trace)


def test_the_backward_pass_through_it_counts(outcome):
    without, with_it = (
        outcome("structure-made-dense", policy(DIAGONAL, CHOLESKY, backward=backward)).findings[0]
        for backward in (False, True)
    )
    assert with_it.cost_ns_per_step - without.cost_ns_per_step == pytest.approx(500_000, rel=0.01)


SUMMED = ("aten::add", [FULL, FULL, []], 400)
MADE = ("aten::bmm", [[ROWS, N, 8], [ROWS, 8, N]], 400)
OUTER = ("aten::mul", [[ROWS, N, 1], [ROWS, 1, N]], 400)
DRAWN = ("aten::randn", [[], []], 100, ("aten::normal_", [FULL, [], []], 100))
TURNED = ("aten::bmm", [FULL, FULL], 400)
STACKED = ("aten::stack", [[VECTOR] * N, []], 400)
SCALED = ("aten::bmm", [FULL, [ROWS, N, 64]], 2_000)


@pytest.mark.parametrize(
    "between",
    [SUMMED, MADE, OUTER, DRAWN, TURNED, STACKED],
    ids=["sum", "A At", "outer", "drawn", "both", "stacked"],
)
def test_nothing_is_said_where_it_may_be_another_matrix(outcome, between):
    trace = policy(DIAGONAL, between, CHOLESKY)
    assert outcome("structure-made-dense", trace).answer == "clear"


@pytest.mark.parametrize(
    "trace",
    [
        policy(CHOLESKY, SOLVE),
        policy(DIAGONAL, SEEN, CHECKED),
        policy(DIAGONAL, later=(CHOLESKY,)),
        policy(("aten::diag", [[N, N], []], 50), ("aten::linalg_cholesky", [[N, N], []], 2_000)),
        policy(DIAGONAL, ("aten::linalg_cholesky", [[ROWS, 8, 8], []], 2_000)),
        policy(DIAGONAL, CHOLESKY, stacks=False),
    ],
    ids=["full", "only looked at", "elsewhere", "taken out of one", "another size", "no functions"],
)
def test_look_alikes(outcome, trace):
    assert outcome("structure-made-dense", trace).answer == "clear"


def test_a_product_by_a_diagonal_is_one_and_what_follows_is_no_diagonal(outcome):
    (finding,) = outcome("structure-made-dense", policy(DIAGONAL, SCALED, OTHER)).findings
    assert "aten::bmm compute with its zeros" in finding.summary


ONE_HOT = (
    "aten::one_hot",
    [[8192], []],
    None,
    ("aten::zeros", [[], [], [], [], []], 200),
    ("aten::scatter_", [[8192, 4096], [], [8192, 1], []], 200),
)
CAST = ("aten::to", [[8192, 4096], [], [], []], 400)
TABLE = ("aten::matmul", [[8192, 4096], [4096, 64]], 2_000)


def test_a_product_with_one_hot_rows_takes_rows_of_a_table(outcome):
    (finding,) = outcome("structure-made-dense", policy(ONE_HOT, CAST, TABLE)).findings
    assert finding.summary.startswith(
        "aten::one_hot makes class numbers a full matrix of 8192 × 4096, and aten::matmul"
    )
    assert "F.embedding" in finding.hint
    assert finding.changes[0].factor == pytest.approx(129 / (4096 + 128))


def test_one_hot_rows_on_the_right_add_up_and_are_left_alone(outcome):
    added = ("aten::matmul", [[64, 8192], [8192, 4096]], 2_000)
    assert outcome("structure-made-dense", policy(ONE_HOT, CAST, added)).answer == "clear"


def test_without_shapes_it_is_not_checked(outcome):
    said = outcome("structure-made-dense", policy(DIAGONAL, CHOLESKY, shapes=False))
    assert said.answer == "not checked"
