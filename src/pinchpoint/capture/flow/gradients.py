"""Gradients of parameters that are stored, and dropped before anything reads them.

Autograd stores what a backward pass gives for a parameter as it is, or adds it to what is there. It
is used where an operation reads it afterwards, an optimizer's say, in whichever step; not where it
is dropped or overwritten with zeros before. What is there at the end counts as used: who reads it
then is not seen.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pinchpoint.capture.flow.operations import OVERWRITES, Operation
from pinchpoint.capture.flow.places import Chain, sites
from pinchpoint.capture.flow.repeats import Use, idle, unused
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.frozen import dataclass

_CONVOLUTION = "aten::convolution_backward"
# The gradients of its input and of its weight take as many products each.
HALF_RATIO = 0.5


@dataclass(frozen=True)
class ThrownAway:
    """Of one step; lists have one element an operation."""

    whole: list[bool]  # all that it gives ends in gradients that nobody reads
    half: list[bool]  # of a convolution's backward pass either the input's gradient or the weight's
    stored: list[bool]  # a gradient that nobody reads


def thrown_away(
    steps: Sequence[Sequence[Operation]],
    storages: Sequence[Storage],
    kept: Sequence[Sequence[Use]],
) -> list[ThrownAway]:
    """What each step computes for gradients that nobody reads, but for what is ``kept`` by nobody
    at all. Nothing where no gradient is seen to be read: then its readers are not seen."""
    if not _some_are_read(steps, storages):
        return [ThrownAway(*([False] * len(step) for _ in range(3))) for step in steps]
    dropped = unused(steps, storages, dropped=True)
    return [
        ThrownAway(
            [use.dead and not one.dead for use, one in zip(uses, before, strict=True)],
            [_is_half(one, use) for one, use in zip(step, uses, strict=True)],
            [
                one.gradient is not None and one.gradient[0] in use.unread
                for one, use in zip(step, uses, strict=True)
            ],
        )
        for step, uses, before in zip(steps, dropped, kept, strict=True)
    ]


def _some_are_read(steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]) -> bool:
    return any(
        storages[number].gradient
        for step in steps
        for one in step
        if not (one.backward or one.view) and one.kind.name not in OVERWRITES
        for number, _ in one.reads
    )


def _is_half(one: Operation, use: Use) -> bool:
    """Whether just one of both large parts is read; the arguments end with which of them are."""
    if one.kind.name != _CONVOLUTION or use.dead:
        return False
    wanted = one.plain[0][-1][:2]
    large = one.makes[:2]
    return wanted == ("True", "True") and len({number in use.unread for number in large}) == 2


def asked_for(step: Sequence[Operation], stored: Sequence[bool]) -> tuple[list[int], list[bool]]:
    """Operations of the forward pass that read parameters whose gradients are stored afterwards;
    and of each whether nobody reads those."""
    readers: dict[int, list[int]] = defaultdict(list)
    found: dict[int, bool] = {}
    for at, one in enumerate(step):
        if one.gradient is not None:
            for reader in readers.pop(one.gradient[1], ()):
                found[reader] = found.get(reader, True) and stored[at]
        elif not (one.backward or one.writes or idle(one)):
            for number, _ in one.reads:
                readers[number].append(at)
    mine = sorted(found)
    return mine, [found[at] for at in mine]


def lines_of(
    step: Sequence[Operation], stored: Sequence[bool], lines: Sequence[Chain]
) -> Iterator[tuple[Chain, int]]:
    """The outermost lines of the forward pass all of whose gradients nobody reads, by bytes."""
    places, unread = asked_for(step, stored)
    some = [step[at] for at in places]
    for at, chain in sites(some, unread, lines).items():
        yield chain, some[at].bytes
