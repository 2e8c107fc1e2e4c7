"""Which instruction of its program a kernel of a graph is.

A run of a compiled program that XLA launches as one graph (a command buffer) is recorded as one
operation; only its kernels tell what runs. A fusion's kernel is named after it or after an equal
one, which the program then says; a library's has a name of its own, and may be several.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from pinchpoint.regex import regex

_UNNUMBERED = regex(r"(_\d+)+$")
# Instructions as they are launched, and which one stands for all that are equal to it: the kernel
# of a fusion is named after any of these. None for a library's, whose kernels have other names.
Order = Sequence[tuple[str, str | None]]
Row = dict[str, Any]  # of ``compiled_ops``, with its kernel


def name_kernels_of_graphs(order: Order, known: Collection[str], rows: Sequence[Row]) -> None:
    """Put the instruction into ``op`` of each row of one program that has none of the ``known``.

    By the program's order, if all kernels of a run fit it; else of those whose names tell, as in a
    program that branches or loops, which has no one order.
    """
    nameless = [row for row in rows if row["op"] not in known and row.get("kernel")]
    if not nameless:
        return
    spelt = {_spelt(name): name for name in known}
    if not order:
        for row in nameless:
            row["op"] = spelt.get(_spelt(row["kernel"]), row["op"])
        return
    nameless.sort(key=lambda row: (row["device"] or 0, row["start_ns"]))
    each = len(nameless) if len(nameless) % len(order) else len(order)
    for at in range(0, len(nameless), each):
        run = nameless[at : at + each]
        pairs = list(zip(run, order, strict=False))
        fits = all((_spelt(row["kernel"]) in spelt) == bool(own) for row, (_, own) in pairs)
        if len(run) == len(order) and fits:
            for row, (name, _) in pairs:
                row["op"] = name
        else:
            _name_by_kernels(order, run)


def _name_by_kernels(order: Order, rows: Sequence[Row]) -> None:
    """Kernels named after fusions, in the order of the program; and those of libraries between two
    of these, where the program has as many other instructions there, or one alone."""
    own = [equal for _, equal in order]
    stands = {_spelt(name): equal for name, equal in order if equal}
    stands |= {_spelt(equal): equal for equal in own if equal}
    ran = [stands.get(_spelt(row["kernel"])) for row in rows]
    times, run = Counter(own), set(ran)
    at: int | None = None  # in the order; None: not known
    waiting: list[Row] = []
    for row, equal in zip(rows, ran, strict=True):
        if equal is None:  # of a library
            waiting.append(row)
            continue
        following = next((i for i in range(at or 0, len(own)) if own[i]), None)
        if at is not None and following is not None and _alike(order[following][0], row):
            place: int | None = following
        else:
            place = next((i for i in range(at or 0, len(own)) if own[i] == equal), None)
        again = place is None
        if place is None:
            place = own.index(equal)
        row["op"] = order[place][0]
        passed = [other for other in own[0 if again else at or 0 : place] if other]
        if times[equal] == 1 or run.isdisjoint(passed):
            if at is not None:
                libraries = order[at:] if again else order[at:place]
                _name_libraries([name for name, kernel in libraries if kernel is None], waiting)
            at, waiting = place + 1, []
    if at is not None:
        _name_libraries([name for name, kernel in order[at:] if kernel is None], waiting)


def _alike(name: str, row: Row) -> bool:
    """XLA compiles equal fusions once, under the name of the first, and seldom says so: the next
    one in order with that name but for its number is such a one."""
    return _UNNUMBERED.sub("", _spelt(name)) == _UNNUMBERED.sub("", _spelt(row["kernel"]))


def _name_libraries(names: Sequence[str], rows: Sequence[Row]) -> None:
    """Clearing memory belongs to the kernel that comes after it."""
    kernels = [row for row in rows if not _clears(row)]
    if not kernels or (len(names) != 1 and len(names) != len(kernels)):
        return
    left = list(names)
    for row in rows:
        row["op"] = left[0]
        if len(left) > 1 and not _clears(row):
            left.pop(0)


def _clears(row: Row) -> bool:
    return str(row["kernel"]).lower().startswith("memset")


def _spelt(name: str) -> str:
    """Kernels are named after instructions, without dots; on AMD with an ending."""
    return name.removesuffix(".kd").replace(".", "_").replace("-", "_")
