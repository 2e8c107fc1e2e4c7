"""Which instruction of its program a kernel of a graph is.

A run of a compiled program that XLA launches as one graph (a command buffer) is recorded as one
operation; only its kernels tell what runs. A fusion's kernel is named after it or after an equal
one, a library's has a name of its own.
"""

from collections.abc import Collection, Sequence
from typing import Any

Order = Sequence[tuple[str, bool]]  # instructions as they are launched; whether it is a fusion
Row = dict[str, Any]  # of ``compiled_ops``, with its kernel


def name_kernels_of_graphs(order: Order, known: Collection[str], rows: Sequence[Row]) -> None:
    """Put the instruction into ``op`` of each row of one program that has none of the ``known``.

    By the program's order, if all kernels of a run fit it; else of those whose names tell.
    """
    nameless = [row for row in rows if row["op"] not in known and row.get("kernel")]
    if not order or not nameless:
        return
    spelt = {_spelt(name) for name in known}
    nameless.sort(key=lambda row: (row["device"] or 0, row["start_ns"]))
    each = len(nameless) if len(nameless) % len(order) else len(order)
    for at in range(0, len(nameless), each):
        run = nameless[at : at + each]
        pairs = list(zip(run, order, strict=False))
        fits = all((_spelt(row["kernel"]) in spelt) == fusion for row, (_, fusion) in pairs)
        if len(run) == len(order) and fits:
            for row, (name, _) in pairs:
                row["op"] = name
        else:
            _name_by_kernels(order, run)


def _name_by_kernels(order: Order, rows: Sequence[Row]) -> None:
    """Kernels named after a fusion; and those of libraries between two of these, where the program
    has as many other instructions there."""
    places = {_spelt(name): at for at, (name, fusion) in enumerate(order) if fusion}
    row_before, place_before = -1, -1
    for number, row in enumerate(rows):
        place = places.get(_spelt(row["kernel"]))
        if place is None:
            continue
        row["op"] = order[place][0]
        between = order[place_before + 1 : place]
        if row_before >= 0 and len(between) == number - row_before - 1:
            for other, (name, fusion) in zip(rows[row_before + 1 : number], between, strict=True):
                if not fusion:
                    other["op"] = name
        row_before, place_before = number, place


def _spelt(name: str) -> str:
    """Kernels are named after instructions, without dots; on AMD with an ending."""
    return name.removesuffix(".kd").replace(".", "_").replace("-", "_")
