import pytest

from pinchpoint.hardware.dtypes import bytes_of, format_of
from pinchpoint.hardware.specs import all_specs


@pytest.mark.parametrize(
    ("spellings", "bits", "kind", "peak"),
    [
        (["double", "torch.float64", "Double", "f64", "np.float64"], 64, "float", "fp64"),
        (["float", "torch.float32", "Float", "f32", "float32"], 32, "float", "fp32"),
        (["cutlass::tfloat32_t", "tf32"], 32, "float", "tf32"),
        (
            ["c10::Half", "Half", "torch.float16", "at::Half", "__half", "half_t"],
            16,
            "float",
            "fp16",
        ),
        (
            ["c10::BFloat16", "BFloat16", "bf16", "__nv_bfloat16", "jnp.bfloat16"],
            16,
            "float",
            "bf16",
        ),
        (["c10::Float8_e4m3fn", "torch.float8_e4m3fn", "f8e4m3fn"], 8, "float", "fp8"),
        (["Float8_e4m3fnuz", "f8e4m3fnuz"], 8, "float", "fp8"),
        (["torch.float8_e5m2", "f8e5m2", "__nv_fp8_e5m2", "float_e5m2_t"], 8, "float", "fp8"),
        (["float8_e8m0fnu", "f8e8m0fnu"], 8, "float", None),
        (["float4_e2m1fn", "f4e2m1fn"], 4, "float", "fp4"),
        (["torch.float4_e2m1fn_x2"], 8, "float", "fp4"),
        (["c10::complex<c10::Half>", "torch.complex32"], 32, "complex", "fp16"),
        (["c10::complex<float>", "complex64", "ComplexFloat", "c64"], 64, "complex", "fp32"),
        (["c10::complex<double>", "complex128", "c128"], 128, "complex", "fp64"),
        (["long int", "Long", "torch.int64", "s64", "long long"], 64, "integer", None),
        (["int", "Int", "int32", "int32_t", "s32"], 32, "integer", None),
        (["short", "short int", "Short", "s16"], 16, "integer", None),
        (["signed char", "Char", "torch.int8", "int8_t", "s8", "c10::qint8"], 8, "integer", "int8"),
        (["c10::quint8"], 8, "integer", "int8"),
        (["unsigned char", "Byte", "torch.uint8", "u8"], 8, "integer", None),
        (["bool", "Bool", "torch.bool", "pred"], 8, "boolean", None),
        (["int4", "s4"], 4, "integer", None),
        (["uint4", "u4", "c10::quint4x2"], 4, "integer", None),
    ],
)
def test_every_spelling_of_a_type_is_the_same_format(spellings, bits, kind, peak):
    found = {format_of(spelling) for spelling in spellings}
    assert len(found) == 1
    (known,) = found
    assert (known.bits, known.kind, known.peak) == (bits, kind, peak)


@pytest.mark.parametrize(
    "text", ["", "Scalar", "TensorList", "i4", "f8", "float128", "c10::", "tensor", "floaty", "<f4"]
)
def test_what_is_no_known_type_is_none(text):
    assert format_of(text) is None
    assert bytes_of(text) is None


def test_less_than_a_byte_has_no_bytes_an_element():
    assert bytes_of("int4") is None
    assert bytes_of("bool") == 1


def test_peaks_are_keys_of_data_sheets():
    keys = {key for spec in all_specs() for key in spec.peaks_flop_per_s}
    named = {"double", "float", "tf32", "half", "bf16", "f8e4m3fn", "f4e2m1fn", "int8"}
    assert {format_of(name).peak for name in named} <= keys
