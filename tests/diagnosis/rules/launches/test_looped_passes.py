import pytest

from program import Program

KERNEL = "void at::native::vectorized_elementwise_kernel<4, Functor<long> >(int)"
MAP = [8, 512, 512]
ELEMENTS = 8 * 512 * 512


def counting(turns=20, *, number=True, product=False, kernel_us=10):
    """``for c in range(turns): total[c] = ((pred == c) & (truth == c)).sum()``."""
    p = Program()
    for _ in p.steps(5):
        with p.row("aten::mm"):
            p.kernel("gemm", 2_000)
        with p.frame("model.py(29): update"):
            for c in range(turns):
                label = str(c if number else 1)
                for name, given, values in (
                    ("aten::eq", [MAP, []], ["", label]),
                    ("aten::eq", [MAP, []], ["", label]),
                    ("aten::mm" if product else "aten::bitwise_and", [MAP, MAP], ["", ""]),
                    ("aten::sum", [MAP, []], ["", ""]),
                ):
                    types = ["long int"] * len(given)
                    with p.row(name, shapes=given, values=values, dtypes=types):
                        p.kernel(KERNEL, kernel_us)
        p.sync()
    return p.trace()


def test_turns_and_what_they_do(outcome):
    (finding,) = outcome("looped-passes", counting()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["turns of the loop"] == 20
    assert evidence["operators in each"] == 4
    assert finding.cost_ns_per_step == 20 * 4 * 10_000
    assert finding.location.function == "update"


def test_one_call_for_all_turns_leaves_the_rest(predicted):
    assert predicted(counting(), "looped-passes") == pytest.approx(2.02e6, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(counting(turns=8), id="a few turns"),
        pytest.param(counting(number=False), id="nothing differs: turns may depend on each other"),
        pytest.param(counting(product=True), id="turns with a product"),
    ],
)
def test_other_loops_are_not_meant(outcome, trace):
    assert outcome("looped-passes", trace).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    p = Program()
    for _ in p.steps(4):
        p.kernel(KERNEL, 100)
    assert outcome("looped-passes", p.trace()).answer == "not checked"
