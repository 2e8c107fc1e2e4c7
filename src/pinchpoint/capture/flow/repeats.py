"""Which operations give what was there, and which give what nobody reads."""

from collections import defaultdict
from collections.abc import Sequence

from pinchpoint.capture.flow.numbers import Numbered
from pinchpoint.capture.flow.operations import OVERWRITES, Operation
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.frozen import dataclass

MAKES_NOTHING = ("aten::empty", "aten::new_empty", "aten::_efficientzerotensor")
_MARKS = ("escape", "profiler::")  # no operations of the program
CONSTANTS = ("aten::zeros", "aten::ones", "aten::full", "aten::arange", "aten::scalar_tensor")
# Of a step that gives nothing but what the one before gave, all is the same batch: a measurement. A
# table that is prepared anew for each small question is most of the bytes as well, yet three
# operations of thirty; what draws from the same answers is fewer than what gave them.
SAME_RATIO, SAME_COUNT_RATIO = 0.9, 0.5


def idle(one: Operation) -> bool:
    """Whether it computes nothing: another look at a tensor, or room for one."""
    return one.view or one.kind.name.startswith((*MAKES_NOTHING, *_MARKS))


def repeated(
    step: int, steps: Sequence[Sequence[Operation]], numbers: Numbered, *, came: bool
) -> list[str]:
    """For each operation of a step: ``step`` if the step before had the same, ``within`` if this
    one had, ``first`` if it will have, empty for others. ``came``: it had something new to do."""
    before = set(numbers.number[step - 1]) if step else set()
    mine, seen = numbers.number[step], set[int]()
    only_weights = not came or _mostly_the_same(step, steps, numbers, before)
    found = []
    for at, one in enumerate(steps[step]):
        number = mine[at]
        could = not (one.random or one.backward or idle(one))
        across = number in before and not (only_weights and numbers.from_inputs[step][at])
        again = "step" if across else "within" if number in seen else ""
        seen.add(number)
        found.append(again if could else "")
    _leave_what_changes(step, steps, found)
    later = {mine[at] for at, how in enumerate(found) if how == "within"}
    for at, number in enumerate(mine):
        if not found[at] and number in later and not idle(steps[step][at]):
            later.discard(number)
            found[at] = "first"
    return found


def _mostly_the_same(
    step: int, steps: Sequence[Sequence[Operation]], numbers: Numbered, before: set[int]
) -> bool:
    work = [(at, one) for at, one in enumerate(steps[step]) if not idle(one)]
    same = [one for at, one in work if numbers.number[step][at] in before]
    if len(same) < SAME_COUNT_RATIO * len(work):
        return False
    return sum(weight(one) for one in same) > SAME_RATIO * sum(weight(one) for _, one in work)


def weight(one: Operation) -> int:
    """Bytes that it gives, for its time."""
    return one.bytes + 4096  # a small operation takes time, too


def _leave_what_changes(
    step: int,
    steps: Sequence[Sequence[Operation]],
    found: list[str],
) -> None:
    """What is changed afterwards is no answer to keep, nor is what lies where it lay before."""
    operations = steps[step]
    writers: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(operations):
        for number in (*one.makes, *(n for n, _ in one.writes)):
            writers[number].append(at)
    made = {number for one in operations for number in one.makes}
    later = {number for one in steps[step + 1 :] for op in one for number, _ in op.writes}
    spoilt = [number for number in writers if number not in made or number in later]
    spoilt += [
        number
        for number, ats in writers.items()
        if any(not found[at] and not idle(operations[at]) for at in ats)
    ]
    done: set[int] = set()
    while spoilt:
        number = spoilt.pop()
        if number in done:
            continue
        done.add(number)
        for at in writers[number]:
            if found[at] in ("step", "within"):
                found[at] = ""
                one = operations[at]
                spoilt += [*one.makes, *(n for n, _ in one.writes)]


@dataclass(frozen=True)
class Use:
    """What becomes of what one operation gives."""

    dead: bool  # nobody reads any of it
    unread: frozenset[int]  # storages of it that nobody reads; known where gradients are dropped


def unused(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage], *, dropped: bool = False
) -> list[list[Use]]:
    """For each operation what nobody reads of what it gives, all steps in one look back.

    ``dropped``: gradients of parameters are read by operations alone, or when the watch is over.
    """
    live = {n for n, one in enumerate(storages) if _is_kept(one, dropped=dropped)}
    found: list[list[Use]] = []
    for step in reversed(steps):
        uses = []
        for one in reversed(step):
            written = [number for number, _ in one.writes]
            unread: frozenset[int] = frozenset()
            if dropped:
                unread = frozenset((*one.makes, *written, *(one.gradient or ())[:1])) - live
            mine = [n for n in written if dropped and storages[n].gradient]
            outside = any(not storages[n].made for n in written if n not in mine)
            needed = one.root or outside or any(n in live for n in (*one.makes, *written))
            again: list[int] = []
            if one.kind.name in OVERWRITES:
                again = [n for n, whole in one.writes if whole and n in mine]
            live.difference_update(one.makes, again)
            # A backward pass begins with ones of the size of the loss, whatever that is.
            if needed and (not one.kind.sizes_only or one.kind.name == "aten::ones_like"):
                live.update(number for number, _ in one.reads if number not in again)
            by_intent = one.backward and one.checkpoint  # to its end
            dead = not needed and not idle(one) and not by_intent and _gives(one)
            uses.append(Use(dead, unread))
        found.append(uses[::-1])
    return found[::-1]


def _is_kept(one: Storage, *, dropped: bool) -> bool:
    stored = one.after_backward and not (dropped and one.gradient)
    return one.alive or one.escaped or stored


def _gives(one: Operation) -> bool:
    return bool(one.makes or one.writes)
