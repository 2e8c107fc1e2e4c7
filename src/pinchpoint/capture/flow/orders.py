"""Matrix products in an order that takes many more operations than another one.

Products are taken as they come and put off: what a product of A and B gives stays the pair of both,
with a small matrix between them where products of such pairs met, until something that is no
product reads it. Then, or in the product after it, it is computed in the order that takes fewest.
What the steps' products took less what these would have taken is what the order costs. Sums of
pairs with the same outer matrices stay such a pair; factors and types change nothing. Associative
laws hold for real numbers: the last digits differ.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from pinchpoint.capture.flow.operations import Operation, Tensor
from pinchpoint.capture.flow.put_off import (
    Matrix,
    Pair,
    Value,
    dense,
    shape_of,
    turned_sizes,
)
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.frozen import dataclass

# Of the FLOPs that are there: a chain that is cut by what is computed otherwise wins little, and
# smaller products run at a lower rate.
MOST_LEFT_RATIO = 0.7
# Of one chain. What a kernel's start takes, at a tenth of the lowest rate of a CPU's core.
LEAST_FLOPS = 1 << 20
PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}
PRODUCTS |= {"aten::mv": 0, "aten::addmv": 1}
_FACTORS = ("aten::mul", "aten::div", "aten::neg", "aten::_to_copy", "aten::clone")
_SUMS = ("aten::add", "aten::sub")


@dataclass(frozen=True)
class Chain:
    """Products that belong together; ``operations`` are places in the step, ``carried`` those of
    factors and sums that would be applied to a small matrix."""

    operations: tuple[int, ...]
    carried: tuple[int, ...]
    flops: int
    flops_left: int
    products_left: int
    elements_left: int  # that these read and write, each by itself
    needed_too: bool = False  # something else reads a value in between, too


@dataclass
class _Costs:
    """Of an operation: what it takes, and what the products that it gave rise to would."""

    flops: int = 0
    left: int = 0
    products: int = 0
    elements: int = 0


def chains_of_products(
    step: Sequence[Operation], storages: Sequence[Storage], elsewhere: frozenset[int]
) -> list[Chain]:
    """Chains of one step that another order would make much cheaper; ``elsewhere``: storages that
    other steps read."""
    walk = _Walk(storages)
    for at, one in enumerate(step):
        walk.operation(at, one)
    walk.ends(elsewhere)
    return list(walk.found())


def forward_products(step: Sequence[Operation]) -> dict[int, list[int]]:
    """Products of the forward pass, by the storages that they read."""
    found: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(step):
        if one.kind.name in PRODUCTS and not one.backward:
            for number, _ in one.reads:
                found[number].append(at)
    return found


def asked_by(chain: Chain, step: Sequence[Operation], readers: dict[int, list[int]]) -> int:
    """The operation that stands for a chain: of one in the backward pass, the product of the
    forward pass that has most of its matrices, and so asks for the gradients of their product."""
    first = chain.operations[0]
    if not step[first].backward:
        return first
    numbers = {number for at in chain.operations for number, _ in step[at].reads}
    shared = Counter(at for number in sorted(numbers) for at in readers.get(number, ()))
    return shared.most_common(1)[0][0] if shared else first


class _Walk:
    def __init__(self, storages: Sequence[Storage]) -> None:
        self.storages = storages
        self.values: dict[int, tuple[Value, tuple[int, ...]]] = {}  # by storage; shape
        self.rests_on: dict[int, dict[int, int]] = {}  # by storage of a pair: others, as they were
        self.read: set[int] = set()  # storages; what nobody reads is another cause
        self.version: dict[int, int] = defaultdict(int)
        self.keys: dict[Any, int] = {}
        self.computed: set[int] = set()  # keys of products that are there
        self.costs: dict[int, _Costs] = {}
        self.parent: dict[int, int] = {}
        self.carried: list[tuple[int, int, int]] = []  # operation, what gave the pair, its key
        self.multiplied: set[int] = set()  # keys of pairs that products read
        self.needed_too: set[int] = set()  # products whose result something else reads as well

    # What flows

    def operation(self, at: int, one: Operation) -> None:
        name = one.kind.name
        if one.view or one.kind.sizes_only:
            return
        first = PRODUCTS.get(name)
        if first is not None and len(one.reads) == first + 2 and len(one.makes) == 1:
            self._product(at, one, first)
        elif name in _FACTORS and len(one.makes) == 1:
            self._factor(at, one)
        elif name in _SUMS and len(one.reads) == 2 and len(one.makes) == 1:
            self._sum(at, one)
        elif not idle(one):
            self._all_needed(one)
        for number, _ in one.writes:
            self._needed(number)
            self.version[number] += 1

    def _product(self, at: int, one: Operation, first: int) -> None:
        a, b = (self._read(tensor) for tensor in one.reads[first : first + 2])
        if a is None or b is None or a.columns != b.rows:  # a batch that is spread over others
            self._all_needed(one)
            return
        batch = prod(shape_of(one.reads[first])[:-2])
        self.costs[at] = _Costs(flops=2 * batch * a.rows * a.columns * b.columns)
        self.parent[at] = at
        for value in (a, b):
            if isinstance(value, Pair):
                self._join(at, value.by)
                self.multiplied.add(value.key)
        answer: Value = self._times(at, batch, a, b)
        if first:
            answer = self._plus(at, answer, one.reads[0])
        if len(shape_of(one.reads[-1])) < 2:
            self._compute(answer)
        else:
            self._gives(one, answer, (*shape_of(one.reads[first])[:-1], b.columns))

    def _factor(self, at: int, one: Operation) -> None:
        matrices = [tensor for tensor in one.reads if shape_of(tensor)]
        value = self._read(matrices[0]) if len(matrices) == 1 else None
        if isinstance(value, Pair):
            self._gives(one, value, shape_of(matrices[0]))
            self.carried.append((at, value.by, value.key))
        else:
            self._all_needed(one)

    def _sum(self, at: int, one: Operation) -> None:
        shapes = [shape_of(tensor) for tensor in one.reads]
        a = self._read(one.reads[0])
        if shapes[0] == shapes[1] and isinstance(a, Pair):
            answer = self._plus(a.by, a, one.reads[1])
            self._gives(one, answer, shapes[0])
            if isinstance(answer, Pair):
                self.carried.append((at, answer.by, answer.key))
        else:
            self._all_needed(one)

    def _gives(self, one: Operation, value: Value, shape: tuple[int, ...]) -> None:
        made = one.makes[0]
        self.values[made] = (value, shape)
        self.rests_on[made] = {number: self.version[number] for number, _ in one.reads}
        for number, _ in one.reads:
            self.rests_on[made] |= self.rests_on.get(number, {})

    def _plus(self, at: int, value: Value, other: Tensor) -> Value:
        """The sum of both: a pair if both have the same outer matrices."""
        more = self._read(other)
        if isinstance(value, Pair) and isinstance(more, Pair):
            outer = (value.left, value.right, value.batch)
            if outer == (more.left, more.right, more.batch):
                self._join(value.by, more.by)
                cores, size = (value.core, more.core), value.left.columns
                between = None
                if cores != (None, None):
                    between = Matrix(self._key("sum", *cores), size, size)
                key = self._key("sum", value.key, value.turned, more.key, more.turned)
                return Pair(value.left, between, value.right, value.batch, at, key)
        self._needed(other[0])
        return self._compute(value)

    # What is computed

    def _times(self, at: int, batch: int, a: Value, b: Value) -> Pair:
        """The product of both, put off, after what must be there for it to take fewest."""
        best: Callable[[], Pair] = min(self._ways(at, batch, a, b), key=lambda way: way[0])[1]
        return best()

    def _ways(
        self, at: int, batch: int, a: Value, b: Value
    ) -> Iterator[tuple[int, Callable[[], Pair]]]:
        """Multiplications until all of it is there, and how that begins."""
        key = self._product_key(a, b)

        def plainly() -> Pair:
            return Pair(self._compute(a), None, self._compute(b), batch, at, key)

        yield self._cost(a) + self._cost(b) + batch * a.rows * a.columns * b.columns, plainly
        if isinstance(a, Pair) and isinstance(b, Pair):
            yield self._in_the_middle(at, batch, a, b, key)
        elif isinstance(a, Pair) and isinstance(b, Matrix):
            yield self._from_the_right(at, batch, a, b, key)
        elif isinstance(b, Pair) and isinstance(a, Matrix):

            def from_the_left() -> Pair:
                return begin().turned_round

            cost, begin = self._from_the_right(at, batch, b.turned_round, a.turned_round, key)
            yield cost, from_the_left

    def _from_the_right(
        self, at: int, batch: int, a: Pair, b: Matrix, key: int
    ) -> tuple[int, Callable[[], Pair]]:
        cost = self._to_do(batch, a.right, b) + batch * a.rows * a.left.columns * b.columns
        if a.core is not None:
            cost += batch * a.core.rows * a.core.columns * b.columns

        def begin() -> Pair:
            right = self._do(at, batch, a.right, b)
            if a.core is not None:
                right = self._do(at, batch, a.core, right)
            return Pair(a.left, None, right, batch, at, key)

        return cost, begin

    def _in_the_middle(
        self, at: int, batch: int, a: Pair, b: Pair, key: int
    ) -> tuple[int, Callable[[], Pair]]:
        inner, outer = a.right.rows, b.left.columns
        cost = self._to_do(batch, a.right, b.left)
        cost += batch * inner * outer * sum(core.rows for core in (a.core, b.core) if core)
        ends = (inner * outer * min(a.rows, b.columns), a.rows * b.columns * min(inner, outer))
        cost += batch * sum(ends)

        def begin() -> Pair:
            core = self._do(at, batch, a.right, b.left)
            core = self._do(at, batch, a.core, core) if a.core else core
            core = self._do(at, batch, core, b.core) if b.core else core
            return Pair(a.left, core, b.right, batch, at, key)

        return cost, begin

    def _cost(self, value: Value) -> int:
        """Multiplications until it is there."""
        if isinstance(value, Matrix) or value.key in self.computed:
            return 0
        cost, ends = 0, (value.left.columns, value.right.rows)
        if value.core is not None:
            cost = min(value.rows, value.columns) * ends[0] * ends[1]
        return value.batch * (cost + value.rows * min(ends) * value.columns)

    def _compute(self, value: Value) -> Matrix:
        """It is there from now on, at the cost of the operation that gave it."""
        if isinstance(value, Pair):
            if value.key not in self.computed:
                left, right = value.left, value.right
                if value.core is not None and left.rows <= right.columns:
                    left = self._do(value.by, value.batch, left, value.core)
                elif value.core is not None:
                    right = self._do(value.by, value.batch, value.core, right)
                self._count(value.by, value.batch, left, right)
                self.computed.add(value.key)
            return Matrix(value.key, value.rows, value.columns, value.turned)
        return value

    def _to_do(self, batch: int, a: Matrix, b: Matrix) -> int:
        there = self._product_key(a, b) in self.computed
        return 0 if there else batch * a.rows * a.columns * b.columns

    def _do(self, at: int, batch: int, a: Matrix, b: Matrix) -> Matrix:
        key = self._product_key(a, b)
        if key not in self.computed:
            self._count(at, batch, a, b)
            self.computed.add(key)
        return Matrix(key, a.rows, b.columns)

    def _count(self, at: int, batch: int, a: Matrix, b: Matrix) -> None:
        cost = self.costs[at]
        cost.left += 2 * batch * a.rows * a.columns * b.columns
        cost.products += 1
        cost.elements += batch * (a.rows * a.columns + b.rows * b.columns + a.rows * b.columns)

    def _key(self, *what: Any) -> int:
        return self.keys.setdefault(what, len(self.keys))

    def _product_key(self, a: Value, b: Value) -> int:
        return self._key("product", a.key, a.turned, b.key, b.turned)

    # What is read

    def _read(self, tensor: Tensor) -> Value | None:
        """A matrix, or a batch of them; None for what is no such thing."""
        number, lies = tensor
        dtype, shape, stride, offset = lies[:4]
        self.read.add(number)
        if number in self.values:
            value, made = self.values[number]
            rests_on = self.rests_on[number].items()
            stays = all(self.version[below] == version for below, version in rests_on)
            if stays and offset == 0 and (shape, stride) == (made, dense(made)):
                return value
            if (
                stays
                and offset == 0
                and (turned_sizes(shape), turned_sizes(stride)) == (made, dense(made))
            ):
                return value.turned_round
            self._needed(number)
        if not shape:
            return None
        if len(shape) == 1:
            shape, stride = (*shape, 1), (*stride, 0)
        (a, s), (b, t) = zip(shape[-2:], stride[-2:], strict=True)
        straight = s >= t  # in one of its two directions
        ends = ((a, s), (b, t)) if straight else ((b, t), (a, s))
        version = self.version[number]
        key = self._key("there", number, version, dtype, shape[:-2], stride[:-2], offset, ends)
        return Matrix(key, a, b, not straight)

    def _all_needed(self, one: Operation) -> None:
        for number, _ in one.reads:
            self._needed(number)

    def _needed(self, number: int) -> None:
        known = self.values.pop(number, None)
        if known is not None:
            value = known[0]
            there = value.key in self.computed
            if isinstance(value, Pair) and not there and value.key in self.multiplied:
                self.needed_too.add(value.by)
            self._compute(value)

    def ends(self, elsewhere: frozenset[int]) -> None:
        """What is kept is computed."""
        for number, (value, _) in self.values.items():
            one = self.storages[number]
            kept = one.alive or one.escaped or one.after_backward
            if kept or number in elsewhere or number not in self.read:
                self._compute(value)

    # What belongs together

    def _join(self, one: int, other: int) -> None:
        self.parent[self._top(one)] = self._top(other)

    def _top(self, at: int) -> int:
        while self.parent[at] != at:
            self.parent[at] = at = self.parent[self.parent[at]]
        return at

    def found(self) -> Iterator[Chain]:
        """Chains that another order makes much cheaper."""
        groups: dict[int, list[int]] = defaultdict(list)
        carried: dict[int, list[int]] = defaultdict(list)
        for at in self.costs:
            groups[self._top(at)].append(at)
        for at, by, key in self.carried:
            if key not in self.computed:
                carried[self._top(by)].append(at)
        for group, members in groups.items():
            mine = [self.costs[at] for at in members]
            flops, left = sum(one.flops for one in mine), sum(one.left for one in mine)
            if len(members) > 1 and left <= MOST_LEFT_RATIO * flops and flops >= LEAST_FLOPS:
                products, moved = sum(o.products for o in mine), sum(o.elements for o in mine)
                more = tuple(carried[group])
                too = not self.needed_too.isdisjoint(members)
                yield Chain(tuple(sorted(members)), more, flops, left, products, moved, too)
