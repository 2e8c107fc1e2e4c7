"""The bytes and FLOPs that operators really need where their tables are larger than their work.

An operator that takes rows out of a table, or adds to some of its rows, needs those rows and not
the table. Sizes are those of inputs, each moved once: values are read, and a row that something is
added to is read and written. Formulas follow from what the operators are defined to do.
"""

from collections.abc import Callable, Mapping

from pinchpoint.analysis.costs import Cost, OperatorCall, cost_of
from pinchpoint.analysis.host.input_arguments import Shape, elements

Model = Callable[[OperatorCall], Cost | None]

# Small factorisations in a batch: one block of a kernel can hold such a matrix, and there are
# enough of them to fill a device with. Of larger or fewer ones no attainable rate is known.
MOST_SMALL_MATRIX_ROWS = 64
FEWEST_SMALL_MATRICES = 64  # half a matrix for each multiprocessor of a large device
# FLOPs of a factorisation in n³: QR with its Q takes 8/3, an SVD or eigenvectors about 20 (Golub
# and Van Loan, Matrix Computations, tables of chapters 5 and 8). The largest serves for all.
FACTORISATION_FLOPS = 20


def needed(call: OperatorCall) -> Cost | None:
    """What a call needs at least; None where no model knows."""
    model = _MODELS.get(call.name)
    if model is None:
        return cost_of(call)
    return None if call.has_unknown_type() else model(call)


def _taken(call: OperatorCall) -> Cost | None:
    """``index(table, [i, …])``: the rows that the indices name are read and written."""
    table, places = call.shape(0), call.shape_list(1)
    if table is None or not places:
        return None
    rows = _together(places)
    left = [size for place, size in zip(places, table, strict=False) if not place]
    left += table[len(places) :]
    if rows is None:
        return None
    moved = 2 * rows * elements(tuple(left)) * call.element_bytes(0)
    return Cost(0, moved + 8 * sum(elements(place) for place in places if place))


def _together(places: tuple[Shape, ...]) -> int | None:
    """How many places indices name that are broadcast against each other."""
    shapes = [place for place in places if place]
    if not shapes:
        return None
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return elements(tuple(max(sizes) for sizes in zip(*padded, strict=True)))


def _put(values_at: int) -> Model:
    """Values put into, or added to, rows of a table: they are read, the rows read and written."""

    def model(call: OperatorCall) -> Cost | None:
        values, table = call.shape(values_at), call.shape(0)
        if values is None or table is None:
            return None
        size = call.element_bytes(0) * min(elements(values), elements(table))
        return Cost(elements(values), call.bytes(values_at) + 2 * size)

    return model


def _factorised(call: OperatorCall) -> Cost | None:
    """A batch of small factorisations: the matrices are read, and two results are written."""
    matrices = call.shape(0)
    if matrices is None or len(matrices) < 3 or matrices[-1] > MOST_SMALL_MATRIX_ROWS:
        return None
    count, (rows, columns) = elements(matrices[:-2]), matrices[-2:]
    if count < FEWEST_SMALL_MATRICES or rows > MOST_SMALL_MATRIX_ROWS:
        return None
    flops = FACTORISATION_FLOPS * count * rows * columns * min(rows, columns)
    return Cost(flops, 3 * call.bytes(0))


def _sampled(call: OperatorCall) -> Cost | None:
    """``grid_sampler(image, grid)``: the image and the grid are read, a sample a place written."""
    image, grid = call.shape(0), call.shape(1)
    if image is None or grid is None or len(image) < 3:
        return None
    out = elements(grid[:-1]) * image[1] * call.element_bytes(0)
    return Cost(0, call.bytes(0) + call.bytes(1) + out)


def _sampled_backward(call: OperatorCall) -> Cost | None:
    """The gradient, image and grid are read; gradients of image and grid are written."""
    if call.shape(0) is None or call.shape(1) is None:
        return None
    return Cost(0, call.bytes(0) + 2 * (call.bytes(1) + call.bytes(2)))


# A line of the cache has 128 bytes: of narrower rows at random places more is fetched than used;
# how many such fetches a device's memory serves in a second is not known here.
NARROW_ROW_BYTES = 128
CACHED_TABLE_BYTES = 50_000_000  # L2 of H100 and H200: a table that it holds is fetched once
_ROWS_TAKEN = tuple(
    f"aten::{name}" for name in ["index_select", "gather", "embedding", "index", "take"]
)


# Rows that are put somewhere, and the input that says whether they are added there instead.
_ROWS_PUT = {
    "aten::_index_put_impl_": 3, "aten::index_put_": 3, "aten::index_put": 3, "aten::put_": 3,
    "aten::index_copy_": None, "aten::scatter_": None, "aten::scatter": None,
}  # fmt: skip


def takes_narrow_rows(call: OperatorCall) -> bool:
    """Whether rows of less than a line are taken out of a large table, or put there, however they
    lie. What is added is bound by the additions."""
    table = call.shape(0)
    if not table or call.bytes(0) <= CACHED_TABLE_BYTES:
        return False
    if call.name in _ROWS_PUT:
        adds_at = _ROWS_PUT[call.name]
        return len(table) == 1 and not (adds_at is not None and call.flag(adds_at))
    if call.name not in _ROWS_TAKEN:
        return False
    return call.element_bytes(0) * _row_elements(call, table) < NARROW_ROW_BYTES


def _row_elements(call: OperatorCall, table: Shape) -> int:
    """Elements that one index stands for; of ``gather``, at most."""
    if call.name == "aten::take":
        return 1
    if call.name == "aten::index":
        places = call.shape_list(1) or ()
        named = [size for place, size in zip(places, table, strict=False) if place]
        return elements(table) // max(elements(tuple(named)), 1)
    along = call.integers(1) if call.name != "aten::embedding" else None
    return elements(table) // max(table[along[0] if along else 0], 1)


_MODELS: Mapping[str, Model] = {
    "aten::index": _taken,
    "aten::_index_put_impl_": _put(2),
    "aten::index_put_": _put(2),
    "aten::index_put": _put(2),
    "aten::index_add_": _put(3),
    "aten::index_copy_": _put(3),
    "aten::index_reduce_": _put(3),
    "aten::scatter_": _put(3),
    "aten::scatter_add_": _put(3),
    "aten::scatter_reduce_": _put(3),
    "aten::put_": _put(2),
    "aten::masked_scatter_": _put(2),
    "aten::grid_sampler_2d": _sampled,
    "aten::grid_sampler_3d": _sampled,
    "aten::cudnn_grid_sampler": _sampled,
    "aten::grid_sampler_2d_backward": _sampled_backward,
    "aten::grid_sampler_3d_backward": _sampled_backward,
} | dict.fromkeys(
    (
        "aten::linalg_qr", "aten::linalg_cholesky_ex", "aten::linalg_inv_ex", "aten::_linalg_svd",
        "aten::_linalg_eigh", "aten::linalg_eig", "aten::linalg_lu_factor_ex", "aten::_linalg_det",
        "aten::_linalg_slogdet", "aten::linalg_householder_product", "aten::geqrf",
        "aten::linalg_ldl_factor_ex",
    ),
    _factorised,
)  # fmt: skip
