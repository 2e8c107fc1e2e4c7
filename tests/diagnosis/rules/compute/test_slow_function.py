import pytest

from program import Program

KERNEL = "void at::native::vectorized_elementwise_kernel<4, Functor<float> >(int)"
X, ROW = [65_536, 1_024], [65_536, 1]
BYTES = 65_536 * 1_024 * 4


def normalising(*, others_us=500, each_us=200, library=False, backward=False):
    """A norm by hand: square, mean, eps, root, two products."""
    p = Program()
    engine = p.builder.thread("autograd")
    by_hand = (
        ("aten::pow", [X, []], ["", "2"]),
        ("aten::mean", [X, [], [], []], ["", "[-1]", "True", ""]),
        ("aten::add", [ROW, [], []], ["", "0.00001", "1"]),
        ("aten::rsqrt", [ROW], [""]),
        ("aten::mul", [X, ROW], ["", ""]),
        ("aten::mul", [X, [1_024]], ["", ""]),
    )
    whole = (("aten::native_layer_norm", [X, [], [1_024], [1_024], []], [""] * 5),)
    for number in p.steps(5):
        with p.row("aten::mm"):
            p.kernel("gemm", others_us)
        with p.frame("model.py(9): norm"):
            for name, given, values in whole if library else by_hand:
                more = {"shapes": given, "values": values, "dtypes": ["float"] * len(given)}
                with p.row(name, sequence=number, **more):
                    p.kernel(KERNEL, each_us if given[0] == X else 3)
        if backward:
            p.thread = engine
            with p.row("autograd::engine::evaluate_function: MulBackward0", sequence=number):
                for name in ("mul", "mul", "add", "mul", "add"):
                    with p.row(f"aten::{name}", shapes=[X, X], dtypes=["float"] * 2):
                        p.kernel(KERNEL, each_us)
            p.thread = 0
        p.sync()
    return p.trace()


def test_a_norm_by_hand(outcome):
    (finding,) = outcome("slow-function", normalising()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert finding.cost_ns_per_step == (4 * 200 + 2 * 3) * 1_000
    # The input read once, and the weights; the result written once; at 0.8 of 3.35 TB/s.
    assert evidence["one pass each would take"] == pytest.approx(
        2 * BYTES / 2.68e12 * 1e9, rel=0.02
    )
    assert finding.location.function == "norm"


def test_its_backward_pass_is_part_of_it(outcome):
    (finding,) = outcome("slow-function", normalising(backward=True)).findings
    assert finding.cost_ns_per_step == (9 * 200 + 2 * 3) * 1_000


def test_a_pass_is_as_fast_as_the_fastest_kernel_of_its_row(outcome):
    """Kernels that take 400 µs for what the memory could move in 200: so would one pass."""
    (finding,) = outcome("slow-function", normalising(each_us=400)).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["one pass each would take"] == pytest.approx(400_000, rel=0.02)


def history(*, each_us=200, first="aten::cumprod", library=False):
    """A metric over everything that was seen: three operators, each far from its limit."""
    p, size = Program(), 4_000_000
    for _ in p.steps(5):
        with p.row("aten::mm"):
            p.kernel("gemm", 700)
        with p.frame("metric.py(9): value"):
            for name, given in (
                (first, [[size]]),
                ("aten::index_select", [[size, 1], [], [size]]),
                ("aten::cumsum", [[size]]),
            )[: 1 if library else 3]:
                with p.row(name, shapes=given, dtypes=["float"] * len(given)):
                    p.kernel("at::native::kernel", each_us)
        p.sync()
    return p.trace()


def test_operators_that_are_far_from_their_limits_together(outcome):
    (finding,) = outcome("slow-function", history()).findings
    assert finding.location.function == "value"
    assert finding.cost_ns_per_step == 3 * 200_000
    evidence = {e.what: e.value for e in finding.evidence}
    # scans move 8 bytes an element, a row that is taken 12 at a third of the rate
    streams, rows = 4e6 * 16 / 2.948e12, 4e6 * 12 / 1.1725e12
    assert evidence["limit of its operators"] == pytest.approx((streams + rows) * 1e9, rel=0.02)
    assert outcome("slow-function", history(library=True)).answer == "clear"
    assert outcome("slow-function", history(each_us=50)).answer == "clear"  # near their limits


def test_a_sort_is_held_against_its_passes(outcome):
    """4 million keys of 4 bytes and places of 8, read once and moved in 4 passes: 240 µs."""
    assert outcome("slow-function", history(first="aten::sort")).answer == "clear"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(normalising(library=True), id="one kernel"),
        pytest.param(normalising(each_us=120), id="near what it needs"),
    ],
)
def test_is_quiet(outcome, trace):
    assert outcome("slow-function", trace).answer == "clear"


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("slow-function", normalising(others_us=9_000))
    assert said.answer == "smaller"
    assert said.why.startswith("smaller than 20 % of the step: ")


def test_cannot_judge_without_shapes(outcome):
    p = Program()
    for _ in p.steps(4):
        p.kernel(KERNEL, 100)
    assert outcome("slow-function", p.trace()).answer == "not checked"
