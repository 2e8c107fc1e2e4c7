from dataclasses import replace

import pytest

from pinchpoint.trace import HostKind, RunFacts
from program import Program

NODES = 10
NODE = "autograd::engine::evaluate_function: MulBackward0"


def backward(*, nodes=NODES, checks=True, reads=False):
    """Backward nodes with a kernel of 50 us each, perhaps followed by a NaN check."""
    p, waits = Program(), []
    for _ in p.steps(6):
        for _ in range(nodes):
            with p.row(NODE, kind=HostKind.OPERATOR):
                p.kernel("mul_backward", 50)
                if checks:
                    p.host("aten::isnan", 20, kind=HostKind.OPERATOR)
                    p.host("aten::any", 20, kind=HostKind.OPERATOR)
                if checks or reads:
                    with p.row("aten::is_nonzero"):
                        waits.append(p.read())
    return p.trace(), sum(waits) // 6


def test_counts_checks_and_nodes(outcome):
    trace, waited_ns = backward()
    (finding,) = outcome("debug-mode-left-on", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["NaN checks in backward"] == NODES
    assert evidence["backward nodes"] == NODES
    assert finding.cost_ns_per_step == pytest.approx(waited_ns, rel=0.01)


def test_takes_the_place_of_reads_in_a_loop(predicted):
    assert predicted(backward()[0], "debug-mode-left-on") == pytest.approx(NODES * 50e3, rel=0.1)


@pytest.mark.parametrize(
    ("checks", "reads"), [(False, False), (False, True)], ids=["plain", "hooks that read"]
)
def test_a_backward_pass_without_checks_is_fine(outcome, checks, reads):
    trace, _ = backward(checks=checks, reads=reads)
    assert outcome("debug-mode-left-on", trace).answer == "clear"


@pytest.mark.parametrize("tracer", ["lines.LineMap.on_line", None])
def test_a_tracer_of_lines_takes_between_a_third_and_all_of_pythons_time(outcome, tracer):
    """Of 900 us of Python a step."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("mul", 50)
        p.host("data.py(3): mask", 900)
        p.kernel("mul", 50)
    trace = replace(p.trace(), run=RunFacts(line_tracer=tracer))
    said = outcome("debug-mode-left-on", trace)
    assert said.answer == ("found" if tracer else "clear")
    for finding in said.findings:
        assert tracer in finding.summary
        (least,), (most,) = finding.changes, finding.at_best
        took = [int((c.end_ns - c.start_ns).sum()) / 6 for c in (least, most)]
        assert took[0] == pytest.approx(took[1] / 3, rel=0.01)
        assert 700_000 < took[1] < 950_000  # less what dispatching takes
    (spot,) = outcome("host-hotspot", trace).findings
    assert spot.fix.startswith(f"Run without {tracer}" if tracer else "Do it")


TORCH = "torch/distributions/"
CHECK_US, FACTOR_US, BACKWARD_US, MODEL_US = 900, 400, 1_500, 5_000


PRODUCT_US = 700


def distribution(*, checks=True, factors=True, product=None):
    """Each step: a model, a distribution of what it says, and the backward pass of both.

    ``product``: strides of the second operand of one that the function computes before.
    """
    p = Program()
    engine = p.builder.thread("autograd")
    for number in p.steps(6):
        with p.row("aten::linear"):
            p.kernel("gemm", MODEL_US)
        with p.frame("model.py(9): forward"):
            if product:
                given = {"shapes": [[64, 32, 32]] * 2, "strides": [[1024, 32, 1], product]}
                with p.row("aten::bmm", dtypes=["float"] * 2, **given):
                    p.kernel("gemm", PRODUCT_US)
            with p.frame(TORCH + "multivariate_normal.py(135): __init__"):
                if checks:
                    with p.frame(TORCH + "constraints.py(646): check"):
                        with p.row("aten::linalg_cholesky_ex" if factors else "aten::all"):
                            p.kernel("potrf", CHECK_US)
                        p.read()
                with p.row("aten::linalg_cholesky_ex", sequence=number):
                    p.kernel("potrf", FACTOR_US)
        p.thread = engine
        with p.row("LinalgCholeskyExBackward0", sequence=number):
            p.kernel("trsm", BACKWARD_US)
        p.thread = 0
        p.sync()
    return p.trace()


def test_a_matrix_is_checked_by_a_factor_and_factored_again(outcome):
    (finding,) = outcome("debug-mode-left-on", distribution()).findings
    assert "a matrix is factored again" in finding.summary
    assert finding.evidence[0].value == pytest.approx(CHECK_US * 1e3, rel=0.01)
    assert "scale_tril" in finding.fix


def test_the_range_is_between_no_check_and_no_factor(predicted):
    """Said is the middle: without the check, and without what the constructor computes."""
    left = MODEL_US + FACTOR_US + BACKWARD_US, MODEL_US
    after = predicted(distribution(), "debug-mode-left-on")
    assert after == pytest.approx(sum(left) / 2 * 1e3, rel=0.05)


@pytest.mark.parametrize(
    ("strides", "kept_us"),
    [([1024, 1, 32], 0), ([1024, 32, 1], PRODUCT_US)],
    ids=["with itself", "with another"],
)
def test_what_a_factor_is_multiplied_out_for_goes_with_it(predicted, strides, kept_us):
    left = MODEL_US + FACTOR_US + BACKWARD_US + PRODUCT_US, MODEL_US + kept_us
    after = predicted(distribution(product=strides), "debug-mode-left-on")
    assert after == pytest.approx(sum(left) / 2 * 1e3, rel=0.05)


def test_a_check_without_a_factor_goes_alone(outcome, predicted):
    trace = distribution(factors=False)
    (finding,) = outcome("debug-mode-left-on", trace).findings
    assert "factored" not in finding.summary
    left = MODEL_US + FACTOR_US + BACKWARD_US
    assert predicted(trace, "debug-mode-left-on") == pytest.approx(left * 1e3, rel=0.05)


def test_a_distribution_that_checks_nothing_is_fine(outcome):
    assert outcome("debug-mode-left-on", distribution(checks=False)).answer == "clear"
