"""Products in a costly order, where shapes and strides are all that is known."""

from dataclasses import replace

import pytest

from device_steps import Work, device_bound
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues

TALL, WIDE = 4_096, 1_024
BF16 = "c10::BFloat16"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, Functor<float> >(int)"
X, XT, S = [TALL, WIDE], [WIDE, TALL], [TALL, TALL]
ROW, TURNED = [WIDE, 1], [1, WIDE]


def product(name, takes_us, *shapes, strides=None):
    return Work(GEMM, takes_us, name, list(shapes), [BF16] * len(shapes), strides)


def pointwise(name, *shapes):
    return Work(POINTWISE, 50, name, list(shapes), [BF16] * len(shapes))


GRAM = product("aten::mm", 400, X, XT, strides=[ROW, TURNED])
POWER = product("aten::addmm", 1_600, S, S, S)
DOWN = product("aten::addmm", 400, X, S, X, strides=[ROW, [TALL, 1], ROW])
REST = product("aten::mm", 3_000, [8_192, 8_192], [8_192, 8_192])


def test_a_polynomial_of_a_gram_matrix_belongs_on_the_short_side(outcome):
    trace = device_bound([GRAM, POWER, DOWN, REST])
    (found,) = outcome("costly-product-order", trace).findings
    assert "3 products a step make matrices of up to 4096 × 4096" in found.summary
    assert "by one like it, transposed" in found.summary
    assert [(c.factor, len(c.device_ops)) for c in found.changes] == [(1 / 64, 5), (1 / 4, 10)]
    assert found.location.line == 40
    assert found.confidence == "medium"


def test_its_powers_may_be_scaled_and_added(outcome):
    between = [pointwise("aten::mul", S, []), pointwise("aten::add", S, S)]
    trace = device_bound([GRAM, product("aten::mm", 1_600, S, S), *between, DOWN, REST])
    (found,) = outcome("costly-product-order", trace).findings
    assert "3 products" in found.summary


def test_a_run_that_was_not_followed_is_judged_by_shapes_where_these_tell(outcome):
    values = RunValues(30, 1, True, (), (), 0, work_not_seen="it ended before")
    told, untold = (
        replace(device_bound(work), run=RunFacts(values=values))
        for work in ([GRAM, POWER, DOWN, REST], [REST])
    )
    assert len(outcome("costly-product-order", told).findings) == 1
    assert outcome("costly-product-order", untold).answer == "not checked"


TOKENS, WIDTH = 8_192, 64
QK = product("aten::bmm", 900, [8, TOKENS, WIDTH], [8, WIDTH, TOKENS])
QKV = product("aten::bmm", 900, [8, TOKENS, TOKENS], [8, TOKENS, WIDTH])


@pytest.mark.parametrize(
    "work",
    [
        pytest.param([QK, QKV], id="a chain: the gradient of a layer and its input look like it"),
        pytest.param([GRAM, POWER], id="nothing multiplies it down"),
        pytest.param(
            [
                product("aten::mm", 400, X, XT, strides=[[1, TALL], [TALL, 1]]),
                product("aten::mm", 400, XT, S, strides=[[TALL, 1], [TALL, 1]]),
            ],
            id="the gradient of a weight, and that of the layer's input",
        ),
        pytest.param(
            [
                GRAM,  # with a weight of as many rows as there are tokens
                product("aten::mm", 400, S, X, strides=[[TALL, 1], [1, TALL]]),
            ],
            id="a layer and the next one, whose weight lies otherwise",
        ),
        pytest.param(
            [GRAM, pointwise("aten::_softmax", [1, *S], [], []), DOWN], id="a softmax, of a view"
        ),
        pytest.param([GRAM, pointwise("aten::mul", S, S), DOWN], id="a mask"),
        pytest.param(
            [product("aten::mm", 400, X, XT, strides=[ROW, [TALL, 1]]), POWER, DOWN],
            id="another matrix, of the transpose's shape",
        ),
        pytest.param(
            [
                product("aten::mm", 400, XT, X, strides=[TURNED, ROW]),
                product("aten::mm", 400, [WIDE, WIDE], XT),
            ],
            id="on the short side already",
        ),
    ],
)
def test_orders_that_are_needed_or_good(outcome, work):
    assert not outcome("costly-product-order", device_bound([*work, REST])).findings
