"""Which gradients are zeros in all rows but some, forwards through the backward passes of a step.

What is not read of a result has no gradient: a slice, a selection or a gather gives zeros back
there. Work that is linear in its gradient keeps them: element by element, row by row, and through
products, whose sums leave out what is multiplied by them. Of what was kept of the forward pass such
work needs no more than the same rows.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.rows import is_of_rows, sums_rows
from pinchpoint.frozen import dataclass

Look = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides of a tensor in its storage
_OF_THE_FIRST = ("neg", "div", "_to_copy", "clone", "masked_fill")  # zero where their first is
_OF_ANY = ("mul",)  # zero where one of theirs is
_OF_ALL = ("add", "sub")
_PUTS_BACK = ("slice_backward", "select_backward")
_ADDS_TO = ("scatter_add", "index_put", "_index_put_impl", "index_add", "scatter", "index_copy")
_ZEROS = ("new_zeros", "zeros", "zeros_like")


@dataclass(frozen=True)
class Share:
    """Shares of elements, and of rows of the last dimension."""

    elements: float = 1.0
    rows: float = 1.0
    name: int | None = None  # what first put the rest to zero: the same name, the same rows


ALL, NOTHING = Share(), Share(0.0, 0.0)


def needed_in_backward(step: Sequence[Operation]) -> dict[tuple[int, int], Share]:
    """What operations of backward passes need of what they read: by the operation's place and the
    order of the tensor among what it reads; all of it where nothing is said."""
    walk = _Walk(step)
    needed: dict[tuple[int, int], Share] = {}
    for place, one in enumerate(step):
        if one.backward and not one.view:
            for order, share in walk.goes_through(one).items():
                if share.rows < 1 or share.elements < 1:
                    needed[place, order] = share
    return needed


class _Walk:
    def __init__(self, step: Sequence[Operation]) -> None:
        self.shape = {number: one.shape for one in step for number in one.makes[:1]}
        self.filled: dict[int, Share] = {}  # what of each storage is no zero, by number

    def goes_through(self, one: Operation) -> dict[int, Share]:
        """Note what an operation gives; what it needs, by order."""
        name = one.kind.name.removeprefix("aten::").rstrip("_")
        needs: dict[int, Share] = {}
        if name in _ZEROS:
            given = NOTHING
        elif name in _PUTS_BACK:
            given = self._put_back(one)
        elif name in _ADDS_TO:
            given = self._added(one, name)
        elif name == "mm":
            given, needs = self._product(one)
        elif name in ("sum", "mean"):
            given = self._summed(one)
        else:
            given = self._element_by_element(one, name)
            if given != ALL:
                needs = self._same_rows(one, given)
        for number, _ in one.writes:
            self.filled.pop(number, None)
        target = one.makes[:1] or tuple(number for number, _ in one.writes[:1])
        for number in target if given != ALL else ():
            self.filled[number] = given
        return needs

    def seen(self, one: Operation, order: int) -> Share:
        """Of what an operation reads: what is no zero."""
        number, lies = one.reads[order]
        filled, made = self.filled.get(number), self.shape.get(number)
        if filled is None or made is None:
            return ALL
        shape, stride = lies[1:3]
        return _looked_at(filled, made, (shape, stride))

    def _element_by_element(self, one: Operation, name: str) -> Share:
        """Of work that gives an element, or a row, for each that it reads."""
        looks = [lies[1] for _, lies in one.reads]
        same = [self.seen(one, n) for n, shape in enumerate(looks) if shape == one.shape]
        if not same:
            return ALL
        if is_of_rows(one):
            rows = self.seen(one, 0).rows
            return Share(rows, rows, self.seen(one, 0).name)
        if name in _OF_ANY:
            of_rows = [n for n, shape in enumerate(looks) if shape == (*one.shape[:-1], 1)]
            numbers = [self.seen(one, n) for n in of_rows]  # one for each row
            same += [Share(seen.elements, seen.elements, seen.name) for seen in numbers]
            return min(same, key=lambda share: (share.rows, share.elements))
        if name in _OF_ALL and len(same) == len(one.reads) > 1:
            return _together(same)
        # The derivative of what works element by element, times the gradient.
        linear = name in _OF_THE_FIRST or (one.kind.pointwise and name.endswith("_backward"))
        if linear and (name != "masked_fill" or "'0'" in str(one.plain)):
            return same[0] if looks[0] == one.shape else ALL
        return ALL

    def _same_rows(self, one: Operation, given: Share) -> dict[int, Share]:
        """What is read there is needed as far as the result is no zero."""
        needs = {}
        for order, (_, lies) in enumerate(one.reads):
            if lies[1] == one.shape:
                needs[order] = given
            elif prod(lies[1]) == prod(one.shape[:-1]):  # a number for each row
                needs[order] = Share(given.rows, given.rows)
        return needs

    def _put_back(self, one: Operation) -> Share:
        """The gradient of a part, in zeros of the size of the whole."""
        here, shape, made = self.seen(one, 0), one.reads[0][1][1], one.shape
        elements = here.elements * prod(shape) / max(prod(made), 1)
        whole_rows = int(one.plain[0][2]) not in (-1, len(made) - 1)
        rows = here.rows * prod(shape[:-1]) / max(prod(made[:-1]), 1) if whole_rows else 1.0
        return _bounded(elements, rows, made, one.makes[0])

    def _added(self, one: Operation, name: str) -> Share:
        """Values that are put, or added, to places of what is there."""
        before, made = self.seen(one, 0), one.reads[0][1][1]
        last = len(one.reads) - 1
        here, shape = self.seen(one, last), one.reads[last][1][1]
        whole_rows = name not in ("scatter_add", "scatter") and shape[-1:] == made[-1:]
        elements = before.elements + here.elements * prod(shape) / max(prod(made), 1)
        rows = here.rows * prod(shape[:-1]) / max(prod(made[:-1]), 1) if whole_rows else 1.0
        in_its_row = name == "scatter_add" and one.plain[0][1] in ("-1", str(len(made) - 1))
        same_rows = in_its_row and before == NOTHING and shape[:-1] == made[:-1]
        named = here.name if same_rows else one.reads[last][0]
        return _bounded(min(elements, 1.0), min(before.rows + rows, 1.0), made, named)

    def _summed(self, one: Operation) -> Share:
        """Sums of rows are zero where these are."""
        if not sums_rows(one):
            return ALL
        seen = self.seen(one, 0)
        return Share(seen.rows, seen.rows, seen.name)

    def _product(self, one: Operation) -> tuple[Share, dict[int, Share]]:
        """Of a product of two matrices: rows of the first, and terms of its sums.

        Rows of a storage are columns of a factor that lies transposed in it.
        """
        needs: dict[int, Share] = {}
        across = [_is_transposed(lies) for _, lies in one.reads]
        rows = [self._rows_of_storage(one, order) for order in (0, 1)]
        terms = (rows[0] if across[0] else 1.0, 1.0 if across[1] else rows[1])
        for order in (0, 1):
            share = terms[1 - order]  # of the sums' terms: what the other factor leaves of this one
            if share < 1:
                whole_rows = across[order] == (order == 0)
                needs[order] = Share(share, share if whole_rows else 1.0)
        if across[0]:
            return ALL, needs
        return Share(rows[0], rows[0], self.seen(one, 0).name), needs

    def _rows_of_storage(self, one: Operation, order: int) -> float:
        number, lies = one.reads[order]
        filled, made = self.filled.get(number), self.shape.get(number)
        if filled is None or made is None:
            return 1.0
        shape, stride = lies[1:3]
        look = (shape[::-1], stride[::-1]) if _is_transposed(lies) else (shape, stride)
        return _looked_at(filled, made, look).rows


def _together(some: Sequence[Share]) -> Share:
    """Of a sum: the rows of all, those of one name once."""
    if len({(share.rows, share.name) for share in some}) == 1 and some[0].name is not None:
        return Share(some[0].rows, some[0].rows, some[0].name)
    elements, rows = sum(s.elements for s in some), sum(s.rows for s in some)
    return Share(min(elements, 1.0), min(rows, 1.0))


def _is_transposed(lies: tuple[Any, ...]) -> bool:
    shape, stride = lies[1:3]
    return bool(stride[0] == 1 and stride[1] >= shape[0] > 1)


def _looked_at(filled: Share, made: tuple[int, ...], look: Look) -> Share:
    shape, stride = look
    once = tuple(size if step else 1 for size, step in zip(shape, stride, strict=True))
    count = filled.elements * prod(made)
    elements = min(count / max(prod(once), 1), 1.0)
    if shape and not stride[-1] and shape[-1] > 1:  # a row for each number
        return Share(elements, elements, filled.name)
    rows = 1.0
    if shape and made and shape[-1] == made[-1] and stride[-1] == 1:
        rows = filled.rows * prod(made[:-1]) / max(prod(once[:-1]), 1)
    return _bounded(elements, min(rows, 1.0), once, filled.name)


def _bounded(elements: float, rows: float, shape: tuple[int, ...], name: int | None) -> Share:
    """No more rows than elements are no zeros."""
    count = elements * prod(shape)
    return Share(elements, min(rows, count / max(prod(shape[:-1]), 1)), name)
