"""Factorisations and solvers of matrices that are symmetric, triangular or diagonal."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pinchpoint.capture.ways.other import Other, same
from pinchpoint.capture.ways.structure import (
    LEAST_SIDE,
    MOST_LOOKED_AT,
    is_orthogonal,
    is_positive_definite,
    structure,
)

LEAVES_OUT = "svd-of-all-sides"  # a way that gives less: told where the rest is not read
TALL_RATIO = 4  # rows for a column: below it, products cost as much as they win

Given = Mapping[str, Any]  # arguments of a call, by their names


def _floats(a: Any) -> bool:
    return bool(a.is_floating_point()) and 2 <= a.dim() <= 3 and a.numel() > 0


def of_svd(torch: Any, given: Given) -> Iterator[Other]:
    """Singular values and vectors: of symmetric matrices by eigenvalues, of tall ones by those of
    the columns' products."""
    a = given["A"]
    if not _floats(a):
        return
    linalg, values = torch.linalg, 1
    if structure(torch, a).symmetric:
        yield Other(
            "svd-of-symmetric",
            lambda: linalg.eigh(a),
            lambda answer, it: same(
                torch, answer[values], it[0].abs().sort(dim=-1, descending=True)[0]
            ),
        )
        return
    rows, columns = a.shape[-2:]
    whole = given.get("full_matrices", False) and given.get("compute_uv", True)
    if whole and max(rows, columns) >= TALL_RATIO * min(rows, columns):
        yield Other(
            LEAVES_OUT,
            lambda: linalg.svd(a, full_matrices=False),
            lambda answer, it: same(torch, answer[values], it[1]),
        )


def of_eig(torch: Any, given: Given) -> Iterator[Other]:
    """Eigenvalues of symmetric matrices as such."""
    a = given["self"]
    if not _floats(a) or not structure(torch, a).symmetric:
        return

    def the_same(answer: Any, it: Any) -> bool:
        return same(torch, answer[0].real.sort(dim=-1)[0], it[0])

    yield Other("eig-of-symmetric", lambda: torch.linalg.eigh(a), the_same)


def of_inverse(torch: Any, given: Given) -> Iterator[Other]:
    """The inverse of diagonal, triangular and positive definite matrices."""
    a, linalg = given["A"], torch.linalg
    if not _floats(a):
        return
    seen = structure(torch, a)

    def the_same(answer: Any, it: Any) -> bool:
        return same(torch, answer[0], it)

    if is_orthogonal(torch, a):
        yield Other("inverse-of-rotation", lambda: a.mT.contiguous(), the_same)
    elif seen.diagonal:
        on = a.diagonal(dim1=-2, dim2=-1)
        yield Other("inverse-of-diagonal", lambda: torch.diag_embed(1 / on), the_same)
    elif seen.lower or seen.upper:
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand_as(a)
        run = partial(linalg.solve_triangular, a, one, upper=seen.upper)
        yield Other("inverse-of-triangular", run, the_same)
    elif seen.symmetric and is_positive_definite(torch, a):
        yield Other(
            "inverse-of-definite",
            lambda: torch.cholesky_inverse(linalg.cholesky_ex(a)[0]),
            the_same,
        )


def of_solve(torch: Any, given: Given) -> Iterator[Other]:
    """Solving with diagonal, triangular and positive definite matrices."""
    a, b, linalg = given["A"], given["B"], torch.linalg
    if not _floats(a) or not given.get("left", True) or b.dim() not in (a.dim(), a.dim() - 1):
        return
    flat = b.dim() == a.dim() - 1
    right = b.unsqueeze(-1) if flat else b
    seen = structure(torch, a)

    def the_same(answer: Any, it: Any) -> bool:
        return same(torch, answer[0], it.squeeze(-1) if flat else it)

    if seen.diagonal:
        on = a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        yield Other("solve-with-diagonal", lambda: right / on, the_same)
    elif seen.lower or seen.upper:
        run = partial(linalg.solve_triangular, a, right, upper=seen.upper)
        yield Other("solve-with-triangular", run, the_same)
    elif seen.symmetric and is_positive_definite(torch, a):
        yield Other(
            "solve-with-definite",
            lambda: torch.cholesky_solve(right, linalg.cholesky_ex(a)[0]),
            the_same,
        )


def of_determinant(torch: Any, given: Given) -> Iterator[Other]:
    """Determinants (``_linalg_det`` and ``_linalg_slogdet``) by the diagonal of a factor."""
    a = given["A"]
    if not _floats(a):
        return
    seen = structure(torch, a)
    on = a.diagonal(dim1=-2, dim2=-1)
    logs = torch.linalg.slogdet(a)[1]

    def the_same(_: Any, it: Any) -> bool:
        return same(torch, logs, it)

    if seen.diagonal or seen.lower or seen.upper:
        yield Other("determinant-of-triangular", lambda: on.abs().log().sum(-1), the_same)
    elif seen.symmetric and is_positive_definite(torch, a):

        def by_cholesky() -> Any:
            lower = torch.linalg.cholesky_ex(a)[0]
            return 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)

        yield Other("determinant-of-definite", by_cholesky, the_same)


def of_exponential(torch: Any, given: Given) -> Iterator[Other]:
    """The exponential of symmetric and diagonal matrices."""
    a = given["self"]
    if not _floats(a):
        return
    seen = structure(torch, a)

    def the_same(answer: Any, it: Any) -> bool:
        return same(torch, answer, it)

    if seen.diagonal:
        on = a.diagonal(dim1=-2, dim2=-1)
        yield Other("exponential-of-diagonal", lambda: torch.diag_embed(on.exp()), the_same)
    elif seen.symmetric:

        def by_eigenvalues() -> Any:
            values, vectors = torch.linalg.eigh(a)
            return (vectors * values.exp().unsqueeze(-2)) @ vectors.mT

        yield Other("exponential-of-symmetric", by_eigenvalues, the_same)


def of_pseudo_inverse(torch: Any, given: Given) -> Iterator[Other]:
    """The pseudo-inverse of symmetric matrices as such, and of tall ones by a solver."""
    a, linalg = given["self"], torch.linalg
    if not _floats(a) or given.get("hermitian", False) or a.numel() > MOST_LOOKED_AT:
        return

    def the_same(answer: Any, it: Any) -> bool:
        return same(torch, answer, it)

    rows, columns = a.shape[-2:]
    if structure(torch, a).symmetric:
        yield Other("pinv-of-symmetric", lambda: linalg.pinv(a, hermitian=True), the_same)
    elif min(rows, columns) >= LEAST_SIDE and rows >= columns:

        def by_products() -> Any:
            lower = linalg.cholesky_ex(a.mT @ a)[0]
            return torch.cholesky_solve(a.mT, lower)

        yield Other("pinv-of-full-rank", by_products, the_same)


def of_cholesky(torch: Any, given: Given) -> Iterator[Other]:
    """Cholesky factors of diagonal matrices."""
    a = given["self"]
    if _floats(a) and structure(torch, a).diagonal:
        on = a.diagonal(dim1=-2, dim2=-1)
        yield Other(
            "cholesky-of-diagonal",
            lambda: torch.diag_embed(on.sqrt()),
            lambda answer, it: same(torch, answer[0], it),
        )


def of_least_squares(torch: Any, given: Given) -> Iterator[Other]:
    """Least squares with many rows for a column, by the products of the columns."""
    a, b = given["self"], given["b"]
    if not _floats(a) or a.dim() != b.dim() or a.shape[-2] < TALL_RATIO * a.shape[-1]:
        return

    def by_products() -> Any:
        return torch.cholesky_solve(a.mT @ b, torch.linalg.cholesky_ex(a.mT @ a)[0])

    yield Other("least-squares", by_products, lambda answer, it: same(torch, answer[0], it))
