"""Tables of embeddings whose gradient is dense although a step reads few of their rows."""

from collections.abc import Sequence

from pinchpoint.analysis.costs import OperatorCall, cost_of
from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass

# Of the rows, as many as a step reads at most; near a third nothing would be won, see below.
FEW_ROWS_RATIO = 0.1
# A sparse update moves each of its rows as many times as often as a dense one: it sorts and adds up
# equal rows, gathers and scatters the moments.
SPARSE_PASSES = 3.0
# Operators that write a dense gradient, and which argument is the number of the table's rows (ATen
# native_functions.yaml). The first input is the gradient of what was read, the second the indices.
ROWS_ARGUMENT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_READS = ("aten::embedding", "aten::index_select", "aten::embedding_bag", "aten::_embedding_bag")


@dataclass(frozen=True)
class Table:
    """One table, by its size."""

    shape: tuple[int, int]
    indices: int  # in a step's call
    element_bytes: int

    @property
    def left_ratio(self) -> float:
        """Of a pass over the table, what a sparse one moves at most."""
        return min(1.0, SPARSE_PASSES * self.indices / self.shape[0])

    @property
    def bytes(self) -> int:
        """Of its gradient."""
        return self.shape[0] * self.shape[1] * self.element_bytes


def sparsely_read(calls: Sequence[OperatorCall]) -> list[Table]:
    """Tables with dense gradients, few of whose rows a step reads, and that no product uses.

    ``calls`` are the distinct ones of the judged steps. Raises NotChecked where they do not say how
    large a table is.
    """
    backward = [c for c in calls if c.name in ROWS_ARGUMENT]
    sizes = {_rows_of(c) for c in backward}
    if None in sizes:
        raise NotChecked("the recording does not say how many rows the tables have")
    found = []
    for rows in sorted(r for r in sizes if r is not None):
        mine = [c for c in backward if _rows_of(c) == rows]
        widths = {shape[-1] for c in mine if (shape := c.shape(0))}
        indices = sum(c.size(1) for c in mine)
        if len(widths) == 1 and indices <= FEW_ROWS_RATIO * rows and not _multiplied(calls, rows):
            found.append(Table((rows, widths.pop()), indices, mine[0].element_bytes(0)))
    return found


def _rows_of(call: OperatorCall) -> int | None:
    value = call.integers(ROWS_ARGUMENT[call.name])
    return value[0] if value else None


def _multiplied(calls: Sequence[OperatorCall], rows: int) -> bool:
    """Whether a product has a dimension of that length, as one with tied weights does."""
    products = (c for c in calls if (cost := cost_of(c)) is not None and cost.matrix)
    return any(rows in (c.shape(i) or ()) for c in products for i in range(len(c.shapes)))


def share_of(call: OperatorCall, shape: tuple[int, int]) -> float | None:
    """Of what a call passes over, the part that is a tensor of this shape; None without any."""
    if call.shape(0) == shape:
        return None if call.name in _READS else 1.0
    tensors = call.shape_list(0) or ()
    whole = sum(elements(s) for s in tensors)
    own = sum(elements(s) for s in tensors if s == shape)
    return own / whole if own else None
