"""What compiled programs compute for one side of a choice that is made row by row.

``jax.vmap`` of a condition is a ``select`` among the results of its branches. What nobody but one
side of it reads is computed for all rows, and thrown away for those that take the other side.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pinchpoint.importers.xplane.flow import Flow
from pinchpoint.importers.xplane.hlo import NO_WORK, Instruction, Program
from pinchpoint.regex import regex


class Chosen(NamedTuple):
    """The choice that alone reads an instruction."""

    at: str  # its line
    side: int  # 1 where the predicate holds, 2 where it does not


# Of a condition the select lies in ``vmap`` itself; ``jnp.where`` has a function of its own around.
_OF_A_CONDITION = regex(r"(?:^|/)[^\n]{0,4000}vmap\([^\n]{0,4000}/select_n$")
_OF_A_FUNCTION = regex(r"jit\(\w{1,200}\)\)*/select_n$")
_LARGEST_PROGRAM = 200_000  # instructions: more take a second to go through


def chosen(program: Program) -> dict[str, Chosen]:
    """By name, what is launched for one side of such a choice alone."""
    if len(program.by_id) > _LARGEST_PROGRAM:
        return {}
    conditions = _conditions(program)
    if not conditions:
        return {}
    flow = _Sides(program)
    found: dict[str, Chosen] = {}
    for line, selects in conditions.items():
        for side in (1, 2):
            found |= dict.fromkeys(flow.launched_for(selects, side), Chosen(line, side))
    return found


def _conditions(program: Program) -> dict[str, set[int]]:
    """By line, the selects of conditions under ``vmap``."""
    by_line: dict[str, set[int]] = defaultdict(set)
    by_row: set[str] = set()
    for one in program.by_id.values():
        if one.opcode != "select" or not _OF_A_CONDITION.search(one.scope):
            continue
        if _OF_A_FUNCTION.search(one.scope) or (line := program.place_of(one)) is None:
            continue
        by_line[line].add(one.id)
        predicate = program.operands(one)[:1]
        if predicate and predicate[0].opcode == "broadcast" and _of_rows(program, predicate[0]):
            by_row.add(line)
    return {line: selects for line, selects in by_line.items() if line in by_row}


def _of_rows(program: Program, spread: Instruction) -> bool:
    """Whether one value a row is spread over what the row has."""
    of = program.operands(spread)[:1]
    return bool(of) and 0 < len(of[0].shape.dimensions) < len(spread.shape.dimensions)


class _Sides(Flow):
    """What rests on one side of a choice alone."""

    def launched_for(self, selects: set[int], side: int) -> list[str]:
        """What only this side of the selects reads: names of what is launched."""
        first = [s for i in selects for s, at in self.sources[i] if at == side]
        rests_on, waiting = set(first), list(first)
        while waiting:
            for source, _ in self.sources[waiting.pop()]:
                if source not in rests_on:
                    rests_on.add(source)
                    waiting.append(source)
        entry = self.program.roots.get(self.program.entry, -1)
        needed = {entry, *self.made(entry)}
        for one in rests_on:
            if not self._only(self.readers[one], rests_on, selects, side):
                needed.add(one)
        waiting = list(needed)
        while waiting:
            reader = waiting.pop()
            for source, at in self.sources[reader]:
                if source not in needed and not (reader in selects and at == side):
                    needed.add(source)
                    waiting.append(source)
        return self._launched(rests_on - needed)

    def _only(
        self,
        readers: Sequence[tuple[int, int]],
        rests_on: set[int],
        selects: set[int],
        side: int,
    ) -> bool:
        return bool(readers) and all(
            reader in rests_on or (reader in selects and at == side) for reader, at in readers
        )

    def _launched(self, alone: set[int]) -> list[str]:
        """Of these what is launched by itself, and fusions all of whose results are among them."""
        return [one.name for one in self.program.by_id.values() if self._is_one(one, alone)]

    def _is_one(self, one: Instruction, alone: set[int]) -> bool:
        if one.opcode == "fusion":
            made = self.made(one.id)
            return bool(made) and alone.issuperset(made)
        launched = one.opcode not in NO_WORK and self.inside[one.id] not in self.fused
        return launched and one.id in alone
