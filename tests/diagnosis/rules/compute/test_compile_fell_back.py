import pytest

from pinchpoint.trace import HostKind
from program import Program

EAGER = "void at::native::vectorized_elementwise_kernel<8, Functor<float> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"


def layer(p, number, *, compiled, products=1, name="GatedLayer"):
    with p.row(f"nn.Module: {name}_{number}", kind=HostKind.PYTHON):
        for _ in range(products):
            with p.row("aten::mm", shapes=[[64, 64], [64, 64]]):
                p.kernel(GEMM, 100)
        if compiled:
            p.kernel("triton_poi_fused_add_mul_0", 50)
        else:
            for _ in range(4):
                with p.row("aten::mul", shapes=[[64, 64]] * 2):
                    p.kernel(EAGER, 50)


def model(compiled, **more):
    p = Program()
    for _ in p.steps(6):
        for i, fused in enumerate(compiled):
            layer(p, i, compiled=fused, **({} if fused else more))
        p.sync()
    return p.trace()


def test_eager_layers_take_what_their_twins_take(outcome):
    (finding,) = outcome("compile-fell-back", model([True, False, False])).findings
    assert finding.changes[0].factor == pytest.approx(50 / 200)
    assert finding.cost_ns_per_step == 2 * 200_000  # the products are as they are


@pytest.mark.parametrize(
    "trace",
    [
        model([True, True]),
        model([False, False]),
        model([True, False], products=2),
        model([True, False], name="Head"),
    ],
    ids=["all compiled", "none compiled", "not the same layer", "another class"],
)
def test_is_quiet_without_twins(outcome, trace):
    assert outcome("compile-fell-back", trace).answer == "clear"


def test_cannot_judge_without_modules(outcome):
    p = Program()
    for _ in p.steps(6):
        p.kernel("triton_poi_fused_add_mul_0", 50)
    assert outcome("compile-fell-back", p.trace()).answer == "not checked"
