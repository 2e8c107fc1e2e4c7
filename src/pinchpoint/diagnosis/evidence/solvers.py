"""Operators that factor matrices or solve with them, which lose digits of what they are given."""

from pinchpoint.regex import regex

SOLVERS = regex(
    r"^aten::(_?linalg_(cholesky|eig|inv|ldl|lstsq|lu|pinv|qr|solve|svd)|_?cholesky|_?lu_|geqrf"
    r"|inverse|orgqr|ormqr|triangular_solve)"
)
