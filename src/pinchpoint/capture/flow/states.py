"""Work that a step does several times with the same parameters, but for a state of its own.

A power iteration moves an estimate on at each call and divides a weight by a norm: the weight that
is used differs in its last digits, and its parameter not at all. Such work reads nothing but what
modules hold, changes nothing but that, and is used with an input each time.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.repeats import idle
from pinchpoint.capture.flow.storages import Storage


def made_again(
    step: Sequence[Operation], storages: Sequence[Storage], exact: Sequence[int]
) -> list[bool]:
    """For each operation whether it makes again what is used with an input earlier in its step;
    ``exact`` are numbers of what operations give, the same for the same to the last bit."""
    trained = {one.gradient[1] for one in step if one.gradient is not None}
    found = [False] * len(step)
    if not trained:
        return found
    numbers, given = _with_states_that_stay(step, storages)
    for uses in _used_with_inputs(step, numbers, given):
        if len({exact[at] for at in uses}) == len(uses):  # else it is another cause
            for at in _makers(step, numbers, given, uses, trained):
                found[at] = True
    return found


def _with_states_that_stay(
    step: Sequence[Operation], storages: Sequence[Storage]
) -> tuple[list[int], list[bool]]:
    """Numbers as if what modules hold stayed what it is where they move it on from nothing but
    that; and whether an input came into what each operation gives."""
    current: dict[int, Any] = {}
    inputs: dict[int, bool] = {}
    numbers, given = [], []
    for at, one in enumerate(step):
        read = tuple((current.get(n, ("there", n)), lies) for n, lies in one.reads)
        came = one.random or any(inputs.get(n, not storages[n].parameter) for n, _ in one.reads)
        told = hash((one.kind.name, one.plain, ("input", at) if came else read))
        for order, number in enumerate(one.makes):
            current[number], inputs[number] = (told, order), came
        for order, (number, _) in enumerate(one.writes):
            if came or not storages[number].parameter:
                current[number], inputs[number] = (told, "written", order), came
        numbers.append(told)
        given.append(came)
    return numbers, given


def _used_with_inputs(
    step: Sequence[Operation], numbers: Sequence[int], given: Sequence[bool]
) -> list[list[int]]:
    """Operations of the forward pass on what modules hold, whose answers others read with an input:
    those with one number together, where there are several."""
    makers: dict[int, int] = {}
    uses: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(step):
        if one.backward or one.view:
            continue
        if not given[at]:
            makers.update(dict.fromkeys(one.makes, at))
        elif not one.writes:
            for number, _ in one.reads:
                if (maker := makers.pop(number, None)) is not None:
                    uses[numbers[maker]].append(maker)
    return [ats for ats in uses.values() if len(ats) > 1]


def _makers(
    step: Sequence[Operation],
    numbers: Sequence[int],
    given: Sequence[bool],
    uses: Sequence[int],
    trained: set[int],
) -> list[int]:
    """What leads to the second of these and those that follow, after the first; nothing where no
    parameter that is trained does."""
    before, wanted = set(numbers[: uses[0] + 1]), set(uses[1:])
    found: list[int] = []
    needed: set[int] = set()
    of_a_weight = False
    for at in range(uses[-1], uses[0], -1):
        one = step[at]
        gives = {*one.makes, *(number for number, _ in one.writes)}
        leads = at in wanted or not needed.isdisjoint(gives)
        if leads and not (one.backward or one.view or given[at]):
            needed.difference_update(one.makes)
            needed.update(number for number, _ in one.reads)
            if not idle(one) and numbers[at] in before:
                found.append(at)
                of_a_weight |= any(number in trained for number, _ in one.reads)
    return found if of_a_weight else []
