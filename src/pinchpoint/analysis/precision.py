"""In which number format device operations compute, and whether on matrix units.

Vendor libraries spell both in their kernels' names. Where a name leaves the format open, the types
of the launching operator's inputs tell it, except that float32 inputs say nothing about TF32.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.attribution import launching_operators
from pinchpoint.analysis.categories import Category, by_distinct, category_of_device_ops
from pinchpoint.analysis.kernel_precision import (
    MatrixUnits,
    Precision,
    alignment_of_kernel_name,
    matrix_units_of_kernel_name,
    precision_of_dtype,
    precision_of_kernel_name,
)
from pinchpoint.analysis.shapes import input_dtypes
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Mask

__all__ = [
    "UNKNOWN",
    "DevicePrecision",
    "MatrixUnits",
    "Precision",
    "alignment_of_kernel_name",
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
    by_row = by_distinct(trace.names, host["dtypes"], _first_input)
    by_row[~host.known("dtypes")] = UNKNOWN
    code = np.append(by_row, UNKNOWN).astype(np.uint8)[launching_operators(trace)]
    code[products & (code == Precision.FP32)] = UNKNOWN
    return code


def _first_input(dtypes: str) -> Precision | None:
    first = next((d for d in input_dtypes(dtypes) or () if d), "")
    return precision_of_dtype(first) if first else None
