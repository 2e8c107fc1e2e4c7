"""Who reads what in a compiled program, through its fusions."""

from collections import defaultdict
from collections.abc import Iterable

from pinchpoint.importers.xplane.hlo import Instruction, Program

_NOT_FOLLOWED = -1  # as a position of an operand: what a computation gives its caller


class Flow:
    """Who reads what, through fusions: parameters and results of these are those around them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.fused = {
            number: one
            for one in program.by_id.values()
            if one.opcode == "fusion"
            for number in one.called
        }
        self.inside = {
            one.id: number for number, inside in program.computations.items() for one in inside
        }
        self.readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.sources: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for one in program.by_id.values():
            self._read(one)

    def _read(self, one: Instruction) -> None:
        hands_on = (
            one.opcode == "fusion"
            or (one.opcode == "get-tuple-element" and self._is_fusion(one.operands[0]))
            or (one.opcode == "tuple" and self.inside[one.id] in self.fused)
        )
        if hands_on:
            return
        for at, operand in enumerate(one.operands):
            self._edges(self.made(operand), one.id, at)
        for number in one.called:
            root = self.program.roots.get(number, -1)
            self._edges(self.made(root), one.id, _NOT_FOLLOWED)

    def _edges(self, made: Iterable[int], reader: int, at: int) -> None:
        for source in made:
            self.readers[source].append((reader, at))
            self.sources[reader].append((source, at))

    def made(
        self, number: int, part: int | None = None, seen: set[tuple[int, int | None]] | None = None
    ) -> list[int]:
        """The instructions that make a value: of a fusion, its root; of its parameter, what it is
        given. Nothing for a value that is made of itself, in a file that is damaged."""
        seen = set() if seen is None else seen
        one = self.program.by_id.get(number)
        while one is not None and (number, part) not in seen:
            seen.add((number, part))
            around = self.fused.get(self.inside[one.id])
            if one.opcode == "parameter" and around is not None:
                number = around.operands[one.parameter]
            elif one.opcode == "fusion":
                number = self.program.roots.get(one.called[0], -1)
            elif one.opcode == "get-tuple-element" and self._is_fusion(one.operands[0]):
                number, part = one.operands[0], one.tuple_index
            elif one.opcode == "tuple" and around is not None:
                if part is None or part >= len(one.operands):
                    return [made for i in one.operands for made in self.made(i, None, seen)]
                number, part = one.operands[part], None
            else:
                return [one.id]
            one = self.program.by_id.get(number)
        return []

    def _is_fusion(self, number: int) -> bool:
        one = self.program.by_id.get(number)
        return one is not None and one.opcode == "fusion"
