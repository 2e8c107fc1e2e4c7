"""Numbers for values: what is computed from the same values by the same operation has the same one.

A value that came from elsewhere is told by its bits, by the storage that it stays in, or not at
all; what an operation gives is told by the operation and what it was given, and what it makes for
the next step by its bits (``carried``). In the order in which
operations ran, so that what is written in place gets a new number.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pinchpoint.capture.flow.operations import OVERWRITES, Operation
from pinchpoint.capture.flow.storages import TINY, Storage
from pinchpoint.frozen import dataclass

Content = tuple[int, int]  # sum over the bits; whether all of it is one value
_UNWRITTEN = "unwritten"
_MAKES_ROOM = ("aten::empty", "aten::new_empty")
# Random operations that regularise: no input of the program is made by them.
_DROPS = ("dropout", "bernoulli", "scaled_dot_product", "rrelu")


@dataclass(frozen=True)
class Numbered:
    """The same operations, step by step; lists have one element an operation."""

    number: list[list[int]]  # of what it gives
    from_inputs: list[list[bool]]  # whether any of it comes from elsewhere than from parameters
    news: list[bool]  # of each step: whether something came that was not there in the one before
    unseen_writers: bool  # memory was read that nobody was seen to write


class _State:
    def __init__(self, storages: Sequence[Storage], contents: Mapping[tuple[int, int], Content]):
        self.storages, self.contents = storages, contents
        self.current: dict[int, Any] = {}
        self.from_inputs: dict[int, bool] = {}
        self.unwritten: set[int] = set()
        self.outside: dict[int, int] = {}  # storages from elsewhere, and the step they were read in
        self.unique = 0
        self.came: set[Any] = set()  # values from elsewhere in this step
        self.news = False
        self.unseen_writers = False

    def fresh(self) -> tuple[str, int]:
        self.unique += 1
        return ("unique", self.unique)

    def of(self, number: int, step: int, came_before: set[Any]) -> Any:
        """The value of a storage that is read now."""
        if number in self.unwritten:
            self.unwritten.discard(number)
            self.current[number] = self.fresh()
            self.unseen_writers = True
        seen = number in self.current
        again = seen and self.outside.get(number, step) < step and (step, number) in self.contents
        if not seen or again:
            self.outside[number] = step
            self.current[number] = value = self._told(number, step)
            parameter = self.storages[number].parameter
            self.from_inputs[number] = not parameter
            if not parameter:
                self.came.add(value)
                self.news = self.news or value not in came_before
        elif number in self.outside and self.from_inputs.get(number):
            self.came.add(self.current[number])
        return self.current[number]

    def made(self, number: int, step: int) -> Any:
        """By its bits, what was looked at when it was made; None where it was not, or is nothing
        but one value."""
        bits, alike = self.contents.get((step, number), (0, 1))
        return None if alike else ("content", self.storages[number].bytes, bits)

    def _told(self, number: int, step: int) -> Any:
        """By its bits; what is large, or one value all over, by its storage too."""
        one, content = self.storages[number], self.contents.get((step, number))
        if content is None:
            return ("storage", number)
        bits, alike = content
        if alike and one.bytes > TINY:
            return ("storage", number, bits)
        return ("content", one.bytes, bits) if one.bytes <= _WHOLE else ("storage", number, bits)


_WHOLE = 1 << 22  # bytes that are looked at whole (``storages.MOST_BYTES``)


def numbered(
    steps: Sequence[Sequence[Operation]],
    storages: Sequence[Storage],
    contents: Mapping[tuple[int, int], Content],
) -> Numbered:
    """Numbers for what each operation gives."""
    state = _State(storages, contents)
    numbers, inputs, news = [], [], []
    before: set[Any] = set()
    for at, step in enumerate(steps):
        state.came, state.news = set(), False
        told = [_number(state, one, at, before) for one in step]
        numbers.append([number for number, _ in told])
        inputs.append([from_inputs for _, from_inputs in told])
        news.append(state.news)
        before = state.came
    return Numbered(numbers, inputs, news, state.unseen_writers)


def _number(state: _State, one: Operation, step: int, before: set[Any]) -> tuple[int, bool]:
    kind = one.kind
    changed = {number for number, _ in one.writes}
    overwrites = kind.name in OVERWRITES
    read: list[Any] = []
    from_inputs = False
    for number, lies in one.reads:
        if kind.sizes_only or (number in changed and (overwrites and dict(one.writes)[number])):
            read.append(lies)
        elif number in changed and number in state.unwritten:
            read.append((_UNWRITTEN, lies))
        else:
            read.append((state.of(number, step, before), lies))
            from_inputs = from_inputs or state.from_inputs.get(number, False)
    if one.random:
        value: Any = state.fresh()
        if not kind.opaque and not any(part in kind.name for part in _DROPS):
            state.news = True
            from_inputs = True
    else:
        value = (kind.name, one.plain, tuple(read))
    told = hash(value)
    for order, number in enumerate(one.makes):
        state.current[number] = state.made(number, step) or (told, order)
        state.from_inputs[number] = from_inputs
        if kind.name.startswith(_MAKES_ROOM):
            state.unwritten.add(number)
    for order, number in enumerate(dict(one.writes)):
        state.current[number] = (told, "written", order)
        state.from_inputs[number] = from_inputs or state.from_inputs.get(number, False)
        state.unwritten.discard(number)
        state.outside.pop(number, None)
    return told, from_inputs
