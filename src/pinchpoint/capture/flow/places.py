"""Where in the program operations belong: the outermost line all of whose work is of one kind."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.stacks import Stack
from pinchpoint.capture.samples.stacks import import_roots, line_of, relative

Line = tuple[CodeType, int]
Chain = tuple[Line, ...]  # outermost first
MOST_PLACES = 4


def chains(stacks: Sequence[Stack]) -> list[Chain]:
    """Codes and lines of stacks of codes and instructions."""
    return [tuple((code, line_of(code, at)) for code, at in stack) for stack in stacks]


def sites(
    operations: Sequence[Operation], members: Sequence[bool], lines: Sequence[Chain]
) -> dict[int, Chain]:
    """For each member the outermost line all of whose work is of members; its own where some is
    not."""
    total: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for one, member in zip(operations, members, strict=True):
        if not idle(one):
            total[one.stack][0] += 1
            total[one.stack][1] += member
    around: dict[Chain, list[int]] = defaultdict(lambda: [0, 0])
    for stack, (all_of_it, mine) in total.items():
        chain = lines[stack]
        for depth in range(1, len(chain) + 1):
            counts = around[chain[:depth]]
            counts[0] += all_of_it
            counts[1] += mine
    whole: dict[int, Chain] = {}
    for stack in total:
        chain = lines[stack]
        depths = (d for d in range(1, len(chain)) if around[chain[:d]][0] == around[chain[:d]][1])
        whole[stack] = chain[: next(depths, len(chain))]
    return {
        at: whole[one.stack]
        for at, one in enumerate(operations)
        if members[at] and one.stack in whole
    }


def together(operations: Sequence[Operation], site: Mapping[int, Chain]) -> list[list[int]]:
    """Members in groups: those of one site, and of sites one of which uses what the other gave."""
    parent: dict[Chain, Chain] = {chain: chain for chain in site.values()}

    def top(chain: Chain) -> Chain:
        while parent[chain] != chain:
            parent[chain] = chain = parent[parent[chain]]
        return chain

    made: dict[int, Chain] = {}
    for at in sorted(site):
        one, mine = operations[at], site[at]
        for number, _ in one.reads:
            if number in made:
                parent[top(made[number])] = top(mine)
        for number in (*one.makes, *(n for n, _ in one.writes)):
            made[number] = mine
    groups: dict[Chain, list[int]] = defaultdict(list)
    for at in sorted(site):
        groups[top(site[at])].append(at)
    return list(groups.values())


def spelt(weighted: Iterable[tuple[Chain, int]]) -> list[tuple[str, int, str]]:
    """File, line and function of the innermost line of each, heaviest first."""
    weight: dict[Line, int] = defaultdict(int)
    for chain, heavy in weighted:
        if chain:
            weight[chain[-1]] += heavy
    roots = import_roots()
    heaviest = sorted(weight, key=lambda line: -weight[line])[:MOST_PLACES]
    return [(relative(c.co_filename, roots), line, c.co_name) for c, line in heaviest]
