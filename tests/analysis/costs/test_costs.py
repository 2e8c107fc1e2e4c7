"""Costs that can be worked out by hand."""

import pytest

from pinchpoint.analysis.costs import OperatorCall, cost_of
from pinchpoint.analysis.costs.convolution import of_few_channels
from pinchpoint.analysis.costs.pointwise import result_elements

BF16, F32, LONG = "c10::BFloat16", "float", "long int"


def cost(name, shapes, dtypes=(), values=()):
    return cost_of(OperatorCall(name, tuple(shapes), tuple(dtypes), tuple(values)))


def test_the_large_product_of_the_textbooks():
    n = 4096
    found = cost("aten::mm", [(n, n), (n, n)], [BF16, BF16])
    assert found.flops == 2 * n**3 == 137_438_953_472
    assert found.bytes == 3 * n * n * 2
    assert found.flops / found.bytes == pytest.approx(1365.3, abs=0.1)


def test_intensity_of_elementwise_work_and_reductions():
    scale = cost("aten::mul", [(1000,), ()], [F32, "double"], ["", "2.0"])
    assert scale.flops / scale.bytes == 0.125
    total = cost("aten::sum", [(1000, 1000), ()], [F32, ""], ["", "[]"])
    assert total.flops / total.bytes == pytest.approx(0.25, rel=1e-5)
    softmax = cost("aten::_softmax", [(64, 1000), (), ()], [F32, "Scalar", "Scalar"])
    assert softmax.flops / softmax.bytes == 0.625
    norm = cost("aten::native_layer_norm", [(64, 1000), ()], [F32, ""])
    assert norm.flops / norm.bytes == 1.0


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "flops", "size"),
    [
        ("aten::add", [(8, 1024, 768), (1024, 768)], [F32, F32], 6291456,
         4 * (2 * 6291456 + 786432)),
        ("aten::sub", [(16, 1, 64), (1, 4, 64), ()], [F32, F32, "Scalar"], 4096,  # all pairs
         4 * (16 * 64 + 4 * 64 + 16 * 4 * 64)),
        ("aten::add_", [(100,), (100,)], [F32, F32], 100, 1200),
        ("aten::add", [(100,), (100,), (), (100,)], [F32, F32, "Scalar", F32], 100, 1200),  # out=
        ("aten::relu", [(10, 10)], [BF16], 100, 400),
        ("aten::eq", [(100,), ()], [F32, "Scalar"], 100, 500),
        ("aten::copy_", [(100,), (100,)], [F32, BF16], 0, 600),
        ("aten::fill_", [(100,), ()], [F32, "Scalar"], 0, 400),
        ("aten::add", [(), ()], [F32, F32], 1, 12),
        ("aten::native_layer_norm_backward", [(4, 8), (4, 8)], [F32, F32], 14 * 32, 3 * 128),
        ("aten::gather", [(50257, 768), (), (8192, 768)], [F32, "Scalar", LONG], 0,
         8192 * 768 * (4 + 4 + 8)),
        ("aten::index_select", [(50257, 768), (), (64,)], [F32, "Scalar", LONG], 0,
         2 * 64 * 768 * 4 + 64 * 8),
        ("aten::nll_loss_backward", [(), (4096, 50257), (4096,)], [F32, BF16, LONG], 4096,
         4096 * (2 + 8)),
        ("aten::embedding_dense_backward", [(8, 16, 4), (8, 16)], [F32, LONG], 512,
         3 * 512 * 4 + 128 * 8),
        ("aten::kthvalue", [(1000,)], [F32], 1000, 4000),
        ("aten::topk", [(2, 10_000)], [BF16], 20_000, 3 * 40_000),  # two digits, and gathered
        ("aten::sort", [(100, 1000)], [F32], 100_000, 100_000 * (4 + 4 + 8)),  # in a block
        ("aten::sort", [(100_000,)], [F32], 100_000, 100_000 * (4 + 4 * 2 * (4 + 8))),
        ("aten::_unique2", [(100_000,)], [LONG], 100_000, 100_000 * 8 * (1 + 8 * 2 + 1)),
        ("aten::searchsorted", [(10,), (1000,)], [F32, F32], 1000, 4040 + 8000),
        ("aten::glu", [(10, 20)], [F32], 200, 1200),
        ("aten::mse_loss_backward", [(), (100,), (100,)], [F32] * 3, 100, 4 * 300),
        ("aten::_weight_norm_interface", [(8, 4), (8, 1)], [F32, F32], 32, 4 * (32 + 8 + 32)),
        ("aten::_embedding_bag", [(1000, 4), (64,), (8,)], [F32, LONG, LONG], 256,
         4 * (64 + 8) * 4 + 64 * 8),
        ("aten::_cdist_forward", [(10, 3), (20, 3)], [F32, F32], 3 * 200 * 3,
         4 * (30 + 60 + 200)),
        ("aten::max_pool2d_with_indices_backward", [(1, 2, 4, 4), (1, 2, 8, 8)], [F32, F32], 32,
         4 * (32 + 128)),
    ],
)  # fmt: skip
def test_memory_bound_work(name, shapes, dtypes, flops, size):
    found = cost(name, shapes, dtypes)
    assert (found.flops, found.bytes, found.matrix) == (flops, size, False)


def test_the_dimension_that_is_sorted_says_how_long_a_row_is():
    by_column = cost("aten::sort", [(8192, 2), (), ()], [F32], ["", "0", "False"])
    assert by_column.bytes == 16_384 * (4 + 4 * 2 * 12)
    stable = cost("aten::sort", [(8192, 2), (), (), ()], [F32], ["", "True", "1", "False"])
    assert stable.bytes == 16_384 * 16


def test_more_samples_than_weights_search_for_a_time_that_nobody_knows():
    assert cost("aten::multinomial", [(8, 100), ()], [F32], ["", "1"]).bytes == 3200 + 8 * 8
    assert cost("aten::multinomial", [(100,), ()], [F32], ["", "1000"]) is None


@pytest.mark.parametrize(
    ("x", "weight", "few"),
    [
        ((8, 3, 224, 224), (64, 3, 7, 7), True),
        ((8, 64, 224, 224), (3, 64, 3, 3), True),
        ((8, 64, 56, 56), (64, 64, 3, 3), False),
        ((8, 3, 224, 224), (64, 3, 1, 1), False),  # a product
        ((8, 64, 56, 56), (64, 1, 3, 3), False),  # depthwise
    ],
)
def test_windows_over_few_channels_do_not_fill_matrix_units(x, weight, few):
    assert of_few_channels(OperatorCall("aten::cudnn_convolution", (x, weight))) is few
    grad = (x[0], weight[0], *x[2:])
    assert of_few_channels(OperatorCall("aten::convolution_backward", (grad, x, weight))) is few


def test_sums_keep_the_dimensions_that_are_not_summed():
    found = cost("aten::sum", [(64, 10), ()], [F32, ""], ["", "[0]"])
    assert found.bytes == 4 * (640 + 10)
    assert cost("aten::sum", [(64, 10), ()], [F32, ""], ["", "[7]"]).bytes == 4 * 641


def test_a_causal_decode_step_sees_every_key():
    shapes = [(2, 4, 1, 64), (2, 4, 99, 64), (2, 4, 99, 64), (), (), (), (), (), (), (), ()]
    values = [""] * 10 + ["True"]
    found = cost("aten::_cudnn_attention_forward", shapes, [BF16] * 3, values)
    assert found.flops == found.unmasked_flops == 2 * 2 * 4 * 99 * 128


def test_packed_sequences_hide_their_lengths_and_count_as_equal_ones():
    """Fewest pairs: 500 tokens in 8 sequences of 62.5 are 500 · 62.5 pairs of 4 heads of 64."""
    shapes = [(500, 4, 64)] * 3 + [(9,), (9,)]
    found = cost("aten::_flash_attention_forward", shapes, [BF16] * 3)
    assert found.flops == 4 * 4 * 64 * 500 * 500 // 8
    assert (
        cost("aten::_flash_attention_forward", [(5, 4, 64), (9, 4, 64), (9, 4, 64), (9,)]) is None
    )


def test_a_template_of_a_compiler_is_the_product_that_its_arguments_show():
    name = "triton_tem_fused_mm_relu_0"
    shapes = [(8, 16), (32, 16), (32,), (8, 32)]  # the weight as it is stored
    assert cost(name, shapes, [BF16] * 4).flops == 2 * 8 * 16 * 32
    assert cost(name, [(8, 16), (8, 16), (8, 16)], [BF16] * 3) is None


def test_optimizers_need_the_shapes_in_the_lists():
    weights = ((1000, 10), (10,))
    found = cost("aten::_fused_adamw_", [weights] * 4 + [()])
    assert (found.flops, found.bytes) == (14 * 10010, 7 * 4 * 10010)
    assert cost("aten::_fused_adamw_", [(), (), (), ()]) is None
    assert cost("aten::_foreach_add_", [((), ()), ()]) is None
    assert cost("aten::_foreach_add_", [weights, weights]).bytes == 3 * 4 * 10010


def test_compiled_kernels_move_their_arguments_and_keep_their_arithmetic():
    found = cost("triton_poi_fused_gelu_view_8", [(8192, 3072), (8, 1024, 3072), ()],
                 [BF16, BF16, "Scalar"], ["", "", "25165824"])  # fmt: skip
    assert (found.flops, found.bytes) == (None, 2 * 2 * 25165824)
    assert cost("triton_tem_fused_mm_3", [(10, 10)], [BF16]) is None


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", [(4, 5), (6, 7)]),
        ("aten::mm", []),
        ("aten::mm", [(), ()]),
        ("aten::mm", [((4, 5), (5, 6)), None]),
        ("aten::bmm", [(2, 4, 5), (3, 5, 6)]),
        ("aten::convolution", [(2, 8, 20, 22), (16, 8, 3, 3)]),
        ("aten::cudnn_convolution", [(2, 8, 2, 2), (16, 8, 9, 9)]),
        ("aten::_scaled_dot_product_flash_attention", [(1, 2, 3), (1, 2, 3), (1, 2, 3)]),
        ("aten::add", [(), ()]),
        ("aten::sum", [()]),
        ("nccl::all_reduce", [(4, 4)]),
    ],
)
def test_what_cannot_be_known_is_none(name, shapes):
    assert cost(name, shapes) is None


def test_a_type_of_unknown_size_leaves_the_bytes_open():
    known = OperatorCall("aten::add", ((8,), (8,)), ("c10::Half", "c10::Half"))
    unheard_of = OperatorCall("aten::add", ((8,), (8,)), ("c10::Half", "c10::Posit16"))
    assert cost_of(known).bytes == 48
    assert cost_of(unheard_of).bytes is None
    assert cost_of(unheard_of).flops == 8


@pytest.mark.parametrize(
    ("name", "shapes", "values", "elements"),
    [
        ("aten::sub", [(16, 1, 64), (1, 4, 64), ()], ["", "", "1"], 4096),
        ("aten::sum", [(16, 4, 64), ()], ["", "[-1]"], 64),
        ("aten::sum", [(16, 4, 64), ()], ["", ""], 1),
        ("aten::max", [(16, 4), (16, 1)], ["", ""], 64),
        ("aten::linalg_vector_norm", [(16, 4), (), ()], ["", "2", "[1]"], 16),
        ("aten::add_", [(), ()], ["", "1"], 1),
        ("aten::_softmax", [(16, 4), (), ()], ["", "-1", "False"], 64),
        ("aten::mm", [(16, 4), (4, 8)], ["", ""], None),
        ("aten::index", [(16, 4), (8,)], ["", ""], None),
    ],
)
def test_elements_of_results(name, shapes, values, elements):
    call = OperatorCall(name, tuple(shapes), (F32,) * len(shapes), tuple(values))
    assert result_elements(call) == elements


@pytest.mark.parametrize(
    ("name", "shape", "values", "flops", "size"),
    [
        ("r2c", (8, 1024), ["", "[1]", "0", "True"], 2.5 * 8192 * 10, 2 * 8192 * 4),
        ("c2r", (8, 513), ["", "[-1]", "2", "1024"], 2.5 * 8192 * 10, 2 * 8192 * 4),
        ("c2c", (4, 2**16), ["", "[1]", "0", "True"], 5 * 2**18 * 16, 2 * 2 * 2**18 * 8),
        ("r2c", (4, 2**16), ["", "[1]", "0", "True"], 2.5 * 2**18 * 16, 3 * 2 * 2**18 * 4),
    ],
)
def test_transforms_pass_over_memory_once_or_more_often(name, shape, values, flops, size):
    dtype = F32 if name == "r2c" else "c10::complex<float>"
    found = cost(f"aten::_fft_{name}", [shape, (), (), ()], [dtype, "", "", ""], values)
    assert (found.flops, found.bytes) == (flops, size)


def test_a_transform_without_its_dimensions_has_no_cost():
    assert cost("aten::_fft_r2c", [(8, 1024), (), (), ()], [F32]) is None
