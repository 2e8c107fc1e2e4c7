"""Notes of solvers of whose results a part is read, and of factorisations that fail first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from pinchpoint.capture.flow.notes import note_of
from pinchpoint.capture.flow.places import Chain, together
from pinchpoint.capture.flow.results import costly_unread
from pinchpoint.capture.flow.tries import in_all, left_ratio, tries_again
from pinchpoint.capture.flow.watch import Watch


def of_solvers(
    watch: Watch,
    lines: Sequence[Chain],
    steps: Sequence[int],
    some_shape: Collection[str],
    in_steps: Callable[[list[list[bool]]], list[bool]],
) -> Iterator[dict[str, Any]]:
    """Of the last of ``steps``; ``in_steps`` says of which operations it is so in all of them."""
    operations = watch.steps[steps[-1]]
    members = in_steps(costly_unread(watch.steps, watch.storages.all))
    mine = {at: lines[operations[at].stack] for at, member in enumerate(members) if member}
    for name in sorted({operations[at].kind.name for at in mine}):
        of_name = {at: chain for at, chain in mine.items() if operations[at].kind.name == name}
        for group in together(operations, of_name):
            yield note_of("results", operations, group, mine, some_shape)
    found = tries_again(watch.steps, watch.storages.all)
    for _, some in in_all([found[step] for step in steps]):
        last = some[-1]
        all_of_them = sorted((*last.tries, *last.others))
        # Where it is tried, whatever else is computed for that.
        site = dict.fromkeys(all_of_them, lines[operations[last.tries[0]].stack])
        yield note_of("tries", operations, all_of_them, site, some_shape) | {
            "times": round(sum(len(one.failed) for one in some) / len(some)),
            "of": round(sum(len(one.tries) for one in some) / len(some)),
            "left_ratio": round(left_ratio(some), 6),
        }
