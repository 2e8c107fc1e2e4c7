"""Work on rows that are the same: an encoder that sees each picture eight times, a layer on the
edges of a graph that the nodes would do for.

In one of the watched steps what operations give is looked at: how many of its rows (of its samples,
where it has four dimensions and more) are different. What such rows give is the same again, so that
the work could come before they were repeated. Told is what a repetition in the step is seen for:
rows that were expanded, laid out again or looked up from a table which the step computed.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinchpoint.capture.flow.content import PIECE
from pinchpoint.capture.flow.notes import note_of
from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.places import Chain, spelt, together
from pinchpoint.capture.flow.repeats import idle, weight
from pinchpoint.frozen import dataclass

LEAST_NUMBERS = 1 << 14  # of what an operation gives
MOST_NUMBERS = 1 << 26
LEAST_ROWS, LEAST_SAMPLES = 64, 4
LEAST_WIDTH = 16  # numbers of a row: of fewer, chance makes equal ones
FEW_COLUMNS = 64  # at even distances, before all of a row is looked at
MOST_DISTINCT_RATIO = 0.5  # of the rows: above it, putting them apart costs what it wins
MOST_NS = 700_000_000  # of all looks of a process
_BITS = {2: "int16", 4: "int32", 8: "int64"}
_SAMPLES = ("attention", "bmm", "conv", "pool", "upsample", "group_norm")
_LOOKED_UP = ("aten::index", "aten::index_select", "aten::gather")
_LAID_OUT = ("aten::repeat", "aten::cat", "aten::stack", "aten::clone", "aten::_to_copy")
_TABLES = ("aten::embedding",)
_MOVES = (*_LOOKED_UP, *_LAID_OUT, *_TABLES, "aten::copy_", "aten::fill_", "aten::zeros")


@dataclass(frozen=True)
class Rows:
    """Of what one operation gives."""

    count: int
    distinct: int
    most: int  # times that one row is there

    @property
    def times(self) -> int:
        """Each row is there so often; 0 where that differs."""
        return self.most if self.most * self.distinct == self.count else 0


class SameRows:
    """Looks at what operations of one step give."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.seen: dict[int, Rows] = {}  # by the operation's number in its step
        self._cost_ns = 0

    def look(self, at: int, name: str, tensor: Any) -> None:
        """At the first tensor that an operation gave."""
        if self._cost_ns > MOST_NS or not _is_looked_at(tensor):
            return
        began = time.perf_counter_ns()
        samples = tensor.dim() > 3 or any(part in name for part in _SAMPLES)
        count = tensor.shape[0] if samples else tensor.numel() // tensor.shape[-1]
        if count >= (LEAST_SAMPLES if samples else LEAST_ROWS):
            rows = tensor.detach().reshape(count, -1)
            rows = rows.view(getattr(self._torch, _BITS[rows.element_size()]))
            if rows.shape[1] >= LEAST_WIDTH:
                found = self._counted(rows[:, :: max(rows.shape[1] // FEW_COLUMNS, 1)])
                found = found and self._counted(rows)
                if found is not None:
                    self.seen[at] = found
        self._cost_ns += time.perf_counter_ns() - began

    def _counted(self, rows: Any) -> Rows | None:
        torch, wide = self._torch, rows.shape[1]
        times = torch.arange(1, wide + 1, device=rows.device) * 0x9E3779B1 | 1
        pieces = rows.split(max(PIECE // wide, 1))
        sums = torch.cat([(piece.to(torch.int64) * times).sum(1) for piece in pieces])
        _, counts = torch.unique(sums, return_counts=True)
        distinct = len(counts)
        if distinct > MOST_DISTINCT_RATIO * len(rows):
            return None
        return Rows(len(rows), distinct, int(counts.amax()))


def _is_looked_at(tensor: Any) -> bool:
    lazy = tensor.is_conj() or tensor.is_neg()
    size = LEAST_NUMBERS <= tensor.numel() <= MOST_NUMBERS and tensor.dim() > 1
    return bool(tensor.is_floating_point() and tensor.element_size() in _BITS and size and not lazy)


def on_same_rows(
    step: Sequence[Operation], seen: Mapping[int, Rows], lines: Sequence[Chain]
) -> Iterator[dict[str, Any]]:
    """Notes of work on rows that something in the step repeated."""
    by_kind: dict[object, dict[int, Chain]] = defaultdict(dict)
    for at, rows in sorted(seen.items()):
        if at < len(step) and not step[at].backward:
            by_kind[rows.times or rows][at] = lines[step[at].stack]
    makers = {number: at for at, one in enumerate(step) for number in one.makes}
    for site in by_kind.values():
        for group in together(step, site):
            told = [_repeater(step, at, makers, seen[at]) for at in group]
            first = next((at for at in told if at is not None), len(step))
            work = [at for at in group if at >= first and _is_work(step[at])]
            if work:
                chain = lines[step[first].stack]
                yield _note(step, work, seen, site, chain)


def _note(
    step: Sequence[Operation],
    work: list[int],
    seen: Mapping[int, Rows],
    site: dict[int, Chain],
    repeated: Chain,
) -> dict[str, Any]:
    note = note_of("rows", step, work, site)
    weights = [(site[at], weight(step[at])) for at in work]
    rows = seen[max(work, key=lambda at: weight(step[at]))]
    ratio = round(rows.distinct / rows.count, 6)
    places = spelt([(repeated, note.pop("weight") + 1), *weights])
    return note | {"places": places, "read_ratio": ratio, "left_ratio": ratio, "of": rows.count}


def _is_work(one: Operation) -> bool:
    return not (idle(one) or one.random or one.kind.name in _MOVES)


def _repeater(
    step: Sequence[Operation], at: int, makers: Mapping[int, int], rows: Rows
) -> int | None:
    """What is seen to repeat rows that the step has once: an operation, or what made what it reads;
    None where that lies before the step."""
    by = [makers[number] for number, _ in step[at].reads if number in makers]
    return next((m for m in (at, *by) if _repeats(step, m, makers, rows)), None)


def _repeats(step: Sequence[Operation], at: int, makers: Mapping[int, int], rows: Rows) -> bool:
    one, name = step[at], step[at].kind.name
    by = [makers[number] for number, _ in one.reads if number in makers]
    if name in _LOOKED_UP:
        computed = any(_is_work(step[m]) for m in by if m == makers.get(one.reads[0][0]))
        # Of rows that pad, one is there nearly all the time.
        return bool(rows.times) or (computed and 2 * (rows.most - 1) <= rows.count - rows.distinct)
    if name in _TABLES:  # of numbers that were repeated
        return bool(rows.times) and any(step[m].kind.name in (*_LOOKED_UP, *_LAID_OUT) for m in by)
    together_again = name in ("aten::repeat", "aten::cat", "aten::stack")
    return bool(rows.times) and (together_again or any(_is_expanded(lies) for _, lies in one.reads))


def _is_expanded(lies: tuple[Any, ...]) -> bool:
    _, shape, stride = lies[:3]
    return any(size > 1 and not step for size, step in zip(shape[:-1], stride[:-1], strict=True))
