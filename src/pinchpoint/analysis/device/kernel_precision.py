"""What a kernel's name spells about number format, matrix units and alignment.

Each vendor library has its own spelling; one row of ``_NAMES`` reads one of them.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

import numpy as np

from pinchpoint.analysis.device.categories import Category, by_distinct, category_of_device_ops
from pinchpoint.analysis.host.graph_replays import of_operators
from pinchpoint.analysis.host.input_arguments import input_dtypes
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import format_of
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Mask


class Precision(IntEnum):
    """The format of the numbers that go into the arithmetic."""

    FP64 = 1
    FP32 = 2
    TF32 = 3
    FP16 = 4
    BF16 = 5
    FP8 = 6
    FP4 = 7
    INT8 = 8
    INTEGER = 9  # indices, masks, counters

    @property
    def label(self) -> str:
        """Name for people."""
        return "integer" if self is Precision.INTEGER else self.name


class MatrixUnits(IntEnum):
    """Whether a kernel computes on tensor cores, or matrix cores as AMD calls them."""

    NO = 1
    YES = 2


def precision_of_kernel_name(name: str) -> Precision | None:
    """The format that a kernel's name spells, or None."""
    return _reading(name)[0]


def matrix_units_of_kernel_name(name: str) -> MatrixUnits | None:
    """Whether a kernel's name tells that it computes on matrix units, or None."""
    units = _reading(name)[1]
    return None if units is None else MatrixUnits.YES if units else MatrixUnits.NO


def alignment_of_kernel_name(name: str) -> int | None:
    """By how many elements a product kernel's operands must be aligned, if its name tells.

    A vendor falls back to a kernel of small alignment where the sizes forbid wide loads.
    """
    match = re.search(r"_align[ac]?(\d+)", name)
    return int(match[1]) if match else None


def is_beside_product(name: str) -> bool:
    """Whether it scales or sums what a library's products leave, and multiplies no matrices itself.

    Categories count such kernels with their products, whose call launches them.
    """
    return _BESIDE_PRODUCT.search(name) is not None


def precision_of_dtype(dtype: str) -> Precision | None:
    """The format of a type as frameworks spell it: ``c10::BFloat16``, ``float``, ``long int``."""
    known = format_of(dtype)
    if known is None:
        return None
    if known.peak is not None:
        return Precision[known.peak.upper()]
    return None if known.kind == "float" else Precision.INTEGER


_Reading = tuple[Precision | None, bool | None]

_SPELT = {
    "f64": Precision.FP64,
    "f32": Precision.FP32,
    "tf32": Precision.TF32,
    "f16": Precision.FP16,
    "fp16": Precision.FP16,
    "bf16": Precision.BF16,
    "fp32": Precision.FP32,
    "e4m3": Precision.FP8,
    "e5m2": Precision.FP8,
    "i8": Precision.INT8,
    "s8": Precision.INT8,
    "int8": Precision.INT8,
}
_NVJET_LETTER = {  # of the first operand: cuBLASLt's nvjet_tst is bf16 x bf16 -> bf16
    "t": Precision.BF16,
    "h": Precision.FP16,
    "q": Precision.FP8,
    "r": Precision.FP8,
    "o": Precision.FP4,
    "s": Precision.TF32,
    "d": Precision.FP64,
    "i": Precision.INT8,
}
_MANGLED = {
    "tfloat32_t": Precision.TF32,
    "bfloat16": Precision.BF16,
    "DF16b": Precision.BF16,
    "DF16_": Precision.FP16,
    "half": Precision.FP16,
}
_SIMT_LETTER = {"s": Precision.FP32, "c": Precision.FP32, "d": Precision.FP64, "h": Precision.FP16}
_TENSILE = (  # Tensile's letters of the operands
    ("F8", Precision.FP8),
    ("B8", Precision.FP8),
    ("I8", Precision.INT8),
    ("4xi8", Precision.INT8),
    ("B", Precision.BF16),
    ("H", Precision.FP16),
    ("X", Precision.TF32),
    ("S", Precision.FP32),
    ("D", Precision.FP64),
)
_FP32_ATTENTION_ON_MATRIX_UNITS_SM = 80  # from this compute capability on


def _nvjet(m: re.Match[str]) -> _Reading:
    return _NVJET_LETTER.get(m[1][0]), True


def _xmma(m: re.Match[str]) -> _Reading:
    precision = _SPELT[m[1]]
    on_matrix_units = precision is not Precision.FP32
    if precision is Precision.FP64:
        on_matrix_units = "_tensor" in m.string
    return precision, on_matrix_units


def _cutlass_tensorop(m: re.Match[str]) -> _Reading:
    spelt = m["before"] or m["after"]
    if spelt:
        return _SPELT[spelt], True
    letter, instruction = m["letter"], m["instruction"]
    if letter == "d":
        return Precision.FP64, True
    if letter == "i":
        return Precision.INT8, True
    if letter == "h":
        return Precision.FP16, True
    # s1688 without a type is the TF32 instruction; 16-bit kernels always spell theirs.
    return (Precision.TF32 if instruction == "1688" else None), True


def _simt(m: re.Match[str]) -> _Reading:
    return _SIMT_LETTER.get(m[1]), False


def _volta_style(m: re.Match[str]) -> _Reading:
    if m["letter"] == "i":
        return Precision.INT8, True
    return (_SPELT[m["spelt"]] if m["spelt"] else Precision.FP16), True


def _tensile(m: re.Match[str]) -> _Reading:
    precision = next((p for letters, p in _TENSILE if m[1].startswith(letters)), None)
    return precision, re.search(r"_MI\d+x\d+", m.string) is not None


def _miopen_igemm(m: re.Match[str]) -> _Reading:
    return _SPELT[m[2]], m[1] == "x"


def _efficient_attention(m: re.Match[str]) -> _Reading:
    # torch's kernels multiply float32 as three TF32 products on sm_80 and later.
    precision, capability = _SPELT[m[1]], int(m[2])
    return (
        precision,
        precision is not Precision.FP32 or capability >= _FP32_ATTENTION_ON_MATRIX_UNITS_SM,
    )


def _trtllm_bmm(m: re.Match[str]) -> _Reading:
    operands = m[1].lower()
    return _of_token(operands), True


def _mangled(m: re.Match[str]) -> _Reading:
    """C++ names as compilers write them; DF16b and DF16_ are the 16-bit types of the ABI."""
    units = True if re.search(r"TensorOp|_xdl_|mfma|wmma", m.string) else None
    operand = re.search(r"tfloat32_t|bfloat16|DF16b|DF16_|half", m.string)
    if operand is None:
        return None, units
    return _MANGLED[operand[0]], units


def _typed(matrix_units: bool | None) -> Callable[[re.Match[str]], _Reading]:
    """Read the format from the template arguments."""
    return lambda m: (_template_type(m.string), matrix_units)


def _template_type(name: str) -> Precision | None:
    """The first type of non-integral numbers in a C++ name.

    Operands come before accumulators, and template arguments before parameters. Integers are
    passed over: they are indices and sizes more often than data.
    """
    token = _TYPE_TOKEN.search(name, name.find("<"))
    return _of_token(token[0].lower()) if token else None


def _of_token(token: str) -> Precision | None:
    """Kernels add to the names of types (``hip_bfloat16``, ``float_e2m1_unpacksmem_t``) and join
    them (``mxe2m1e4m3``: multiplied as the wider one)."""
    if "bfloat16" in token:
        return Precision.BF16
    if "e4m3" in token or "e5m2" in token or "float8" in token:
        return Precision.FP8
    return Precision.FP4 if "e2m1" in token else precision_of_dtype(token)


_TYPE_TOKEN = regex(
    r"\w*[bB][fF]loat16\w*|__half\b|\bhalf_t\b|\bHalf\b|\bdouble\b|\bfloat\b|float_e\dm\d\w*"
    r"|Float8_\w+|Float4_\w+|\bint8_t\b|\bsigned char\b"
)
# cuBLAS: the beta of a product, partial sums of one cut along its inner dimension, and bias.
_BESIDE_PRODUCT = regex(r"split_?[kK]_?reduce|epilogue::impl|scal_kernel")
_XMMA_TYPE = r"tf32|bf16|f16|f32|f64|e4m3|e5m2|i8"
_NAMES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Reading]], ...] = tuple(
    (regex(pattern), read)
    for pattern, read in (
        (r"nvjet_(?:sm\d+_)?([a-z]+)_", _nvjet),
        # cuBLAS and cuDNN: …_{A}{B}_{multiplied as}{accumulated in}_{result}_…
        (
            rf"xmma_\w*?_(?:{_XMMA_TYPE}){{2}}_({_XMMA_TYPE})(?:f32|f16|f64|bf16|i32)_",
            _xmma,
        ),
        (
            r"tensorop_(?:(?P<before>bf16|f16|tf32|s8)_)?(?P<letter>[sdhi])(?P<instruction>\d+)"
            r"(?:gemm|fprop|dgrad|wgrad)(?:_(?:\w+_)?(?P<after>bf16|f16|tf32)_)?",
            _cutlass_tensorop,
        ),
        (
            r"(?:volta|turing|ampere|hopper)_(?:(?P<spelt>fp16|bf16|tf32|int8)_)?"
            r"(?P<letter>[shi])(?:884|1688|16816|8816|16832)(?:gemm|cudnn)",
            _volta_style,
        ),
        (r"(?:simt|volta|ampere|turing|maxwell|hopper|magma)_g?([sdch])gemm", _simt),
        (r"(?:^|[\s:_])([sdch])gemm", _simt),
        (r"()scudnn", lambda m: (Precision.FP32, False)),
        (r"Cijk_A\w+?_B\w+?_([A-Z0-9]+?)(?:_|$)", _tensile),
        (r"igemm_(?:fwd|bwd|wrw)_gtc(x?)\d*_\w+?_(bf16|fp16|fp32|int8)_", _miopen_igemm),
        (r"fmha_cutlass[FB]_(f32|f16|bf16)_\w*_sm(\d+)", _efficient_attention),
        (r"fmha\w*Kernel_Qkv(?:E4m3|E5m2)", lambda m: (Precision.FP8, True)),
        (r"fmha\w*Kernel_Qkv(?:Bfloat16)", lambda m: (Precision.BF16, True)),
        (r"fmha\w*Kernel_Qkv(?:Fp16)", lambda m: (Precision.FP16, True)),
        (r"^bmm_[A-Za-z0-9]+_((?:Mx)?E\dm\d(?:(?:Mx)?E\dm\d)?|Bfloat16|Fp16)\w*_Fp32", _trtllm_bmm),
        (r"matmul_ogs_[NT]+_(bf16|fp16)", lambda m: (_SPELT[m[1]], True)),
        # cuDNN's attention says f16 for both 16-bit formats.
        (r"sdpa\w*(?:wgmma|wmma)_f16", lambda m: (None, True)),
        (r"flash_(?:fwd|bwd)_\w*kernel", _typed(True)),
        (r"^_Z", _mangled),
        (
            rf"gemmSN|gemv|gemmk1|{_BESIDE_PRODUCT.pattern}|dot_kernel",
            _typed(False),
        ),
        (r"convolve_|(?:dgrad|wgrad)_\w*engine|winograd|fft2d|im2col", _typed(False)),
        (r"<", _typed(None)),
    )
)


@lru_cache(maxsize=1 << 16)
def _reading(name: str) -> _Reading:
    for pattern, read in _NAMES:
        match = pattern.search(name)
        if match:
            return read(match)
    return None, None


# ------------------------------------------------------------------------------------------------
# In which number format device operations compute, and whether on matrix units.
#
# Vendor libraries spell both in their kernels' names. Where a name leaves the format open, the
# types of the launching operator's inputs tell it, except that float32 inputs say nothing about
# TF32.


__all__ = [
    "UNKNOWN",
    "DevicePrecision",
    "MatrixUnits",
    "Precision",
    "alignment_of_kernel_name",
    "is_beside_product",
    "matrix_units_of_kernel_name",
    "precision_of_device_ops",
    "precision_of_dtype",
    "precision_of_kernel_name",
]


UNKNOWN = 0  # no member of Precision or MatrixUnits has it


@dataclass(frozen=True)
class DevicePrecision:
    """One code a row of ``device_ops``; UNKNOWN where neither name nor operator tells."""

    precision: Codes
    matrix_units: Codes


@once_per_trace
def precision_of_device_ops(trace: Trace) -> DevicePrecision:
    """Number format and matrix units of every row of ``device_ops``; shape ``(rows,)``.

    Copies and memsets have neither.
    """
    ops = trace.device_ops
    if ops is None:
        return DevicePrecision(np.zeros(0, np.uint8), np.zeros(0, np.uint8))
    precision = by_distinct(trace.names, ops["name"], precision_of_kernel_name)
    units = by_distinct(trace.names, ops["name"], matrix_units_of_kernel_name)
    category = category_of_device_ops(trace)
    products = np.isin(category, _PRODUCTS)
    units[~products] = MatrixUnits.NO
    precision = np.where(precision == UNKNOWN, _from_operator(trace, products), precision)
    moves = np.isin(ops["kind"], (DeviceKind.COPY, DeviceKind.MEMSET))
    precision[moves], units[moves] = UNKNOWN, UNKNOWN
    return DevicePrecision(precision, units)


_PRODUCTS = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)


def _from_operator(trace: Trace, products: Mask) -> Codes:
    """The format of the first typed input of the operator that launched each device operation."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    if host is None or not len(host):
        return np.zeros(len(ops), np.uint8)

    def first_inputs(rows: Table) -> Codes:
        by_row = by_distinct(trace.names, rows["dtypes"], _first_input)
        by_row[~rows.known("dtypes")] = UNKNOWN
        return by_row

    code = of_operators(trace, first_inputs, UNKNOWN).astype(np.uint8)
    code[products & (code == Precision.FP32)] = UNKNOWN
    return code


def _first_input(dtypes: str) -> Precision | None:
    first = next((d for d in input_dtypes(dtypes) or () if d), "")
    return precision_of_dtype(first) if first else None
