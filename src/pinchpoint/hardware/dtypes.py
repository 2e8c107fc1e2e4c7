"""Number formats: how frameworks and compilers spell each, its size, and the peak it runs against.

Spellings are those of torch (``torch.float16``), Kineto (``c10::Half``, ``long int``), c10d
(``Half``, ``Long``), numpy and JAX (``float16``, ``float8_e4m3fn``), XLA (``f16``, ``pred``,
``s8``) and CUDA C++ (``__half``, ``cutlass::half_t``, ``__nv_bfloat16``). What is spelled two ways
by two of them is left out: ``i4`` has 4 bits in MLIR and 4 bytes in numpy, ``f8`` likewise.
"""

from functools import lru_cache
from typing import Literal

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex

Kind = Literal["float", "complex", "integer", "boolean"]

_REMEMBERED = 1 << 10  # recordings repeat a few types; text from a file must not fill memory


@dataclass(frozen=True)
class NumberFormat:
    """A type of array elements.

    ``peak`` is its key among the peaks of a data sheet (``DeviceSpec.peaks_flop_per_s``). None:
    data sheets give no rate for it. That of complex numbers is that of their parts.
    """

    name: str  # as numpy and JAX spell it
    bits: int  # of one element as the framework counts elements
    kind: Kind
    peak: str | None

    @property
    def bytes(self) -> int | None:
        """Bytes an element; None for less than a byte, where packing decides."""
        return self.bits // 8 if self.bits >= 8 else None


def format_of(dtype: str) -> NumberFormat | None:
    """The format of a type by any of its spellings; None for what is no known type."""
    return _formats().get(_bare(dtype))


@lru_cache(maxsize=_REMEMBERED)
def bytes_of(dtype: str) -> int | None:
    """Bytes an element of a type; None where the type is not known or smaller than a byte."""
    known = format_of(dtype)
    return None if known is None else known.bytes


_EIGHT_BIT_FLOATS = (  # the letter b is a bias of 11; OCP and vendors' variants
    "e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e4m3b11_fnuz", "e4m3", "e5m2", "e5m2fnuz", "e3m4",
)  # fmt: skip

# name, bits, kind, peak, other spellings without namespace, "__nv_" and the C++ suffix "_t"
_TABLE: tuple[tuple[str, int, Kind, str | None, str], ...] = (
    ("float64", 64, "float", "fp64", "double, f64, fp64"),
    ("float32", 32, "float", "fp32", "float, f32, fp32"),
    ("tfloat32", 32, "float", "tf32", "tf32"),
    ("float16", 16, "float", "fp16", "half, f16, fp16, __half"),
    ("bfloat16", 16, "float", "bf16", "bf16"),
    *(
        (f"float8_{variant}", 8, "float", "fp8", f"f8{variant}, fp8_{variant}, float_{variant}")
        for variant in _EIGHT_BIT_FLOATS
    ),
    # Powers of two that scale blocks of smaller numbers: nothing is multiplied in them.
    ("float8_e8m0fnu", 8, "float", None, "f8e8m0fnu, float8_e8m0, float_ue8m0"),
    ("float4_e2m1fn", 4, "float", "fp4", "f4e2m1fn, float4_e2m1, fp4_e2m1, float_e2m1"),
    ("float4_e2m1fn_x2", 8, "float", "fp4", ""),  # torch: one element holds two numbers
    ("complex32", 32, "complex", "fp16", "complexhalf, complex<half>"),
    ("complex64", 64, "complex", "fp32", "complexfloat, complex<float>, c64"),
    ("complex128", 128, "complex", "fp64", "complexdouble, complex<double>, c128"),
    ("int64", 64, "integer", None, "long, long int, long long, long long int, s64"),
    ("int32", 32, "integer", None, "int, s32, qint32"),
    ("int16", 16, "integer", None, "short, short int, s16"),
    ("int8", 8, "integer", "int8", "char, signed char, s8, qint8"),
    ("quint8", 8, "integer", "int8", ""),
    ("int4", 4, "integer", None, "s4"),
    ("int2", 2, "integer", None, "s2"),
    ("uint64", 64, "integer", None, "unsigned long, unsigned long int, unsigned long long, u64"),
    ("uint32", 32, "integer", None, "unsigned int, unsigned, u32"),
    ("uint16", 16, "integer", None, "unsigned short, unsigned short int, u16"),
    # Pictures and masks: quantised products are made of int8 and quint8.
    ("uint8", 8, "integer", None, "byte, unsigned char, u8, bits8"),
    ("uint4", 4, "integer", None, "u4, quint4x2"),
    ("uint2", 2, "integer", None, "u2, quint2x4"),
    ("bool", 8, "boolean", None, "bool_, pred"),
)

_NAMESPACES = regex(
    r"(?:(?:c10|at|cutlass|ck|std|cuda)::|(?:torch|jnp|jax\.numpy|np|numpy)\.)|__nv_"
)


@lru_cache(maxsize=1)
def _formats() -> dict[str, NumberFormat]:
    found: dict[str, NumberFormat] = {}
    for name, bits, kind, peak, spellings in _TABLE:
        known = NumberFormat(name, bits, kind, peak)
        found |= dict.fromkeys((name, *filter(None, spellings.split(", "))), known)
    return found


@lru_cache(maxsize=_REMEMBERED)
def _bare(dtype: str) -> str:
    """The spelling without namespaces and case."""
    return _NAMESPACES.sub("", dtype.strip().lower()).removesuffix("_t")
