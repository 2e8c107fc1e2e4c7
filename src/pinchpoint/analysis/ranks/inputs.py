"""What each rank is given to work on: the first inputs of its steps, and who is given more.

Where ranks share out batches, the sizes of the same operator's input on two ranks tell that one has
more, and the first operator at which they differ tells where in the program its share comes in.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.host.source_lines import place_of
from pinchpoint.analysis.ranks.summary import LONGEST_TEXT, FirstInput, clipped, pack, unpack
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Floats, Ints

LOOKED_AT = 256  # operators with tensors from the beginning of a step: loading comes first in it
INPUTS_KEPT = 48  # of them; a summary is to stay small
STEPS_KEPT = 16  # the last ones: enough to tell always from now and then
# Sizes that belong to a batch differ by whole samples or tokens; ends of an epoch make less of it.
MORE_RATIO = 1.05
FEWEST_STEPS = 2  # of a window for names; who comes last is known of all the recorded steps
FEW_ELEMENTS = 8  # flags and counts of a step


def first_inputs(trace: Trace) -> tuple[FirstInput, ...]:
    """The largest tensor of the operators that begin each step; empty without shapes."""
    looked_up = trace.with_names
    host, judged = looked_up.host_ops, judged_steps(looked_up)
    if host is None or not len(host) or not len(judged):
        return ()
    shown = np.flatnonzero((host["kind"] == HostKind.OPERATOR) & host.known("shapes"))
    shown = shown[np.argsort(host["start_ns"][shown], kind="stable")]
    if not len(shown):
        return ()
    edges = np.array((judged.start_ns, judged.end_ns))[:, -STEPS_KEPT:]
    first, until = np.searchsorted(host["start_ns"][shown], edges).tolist()
    rows = (shown[a:b] for a, b in zip(first, until, strict=True))
    return _in_all(looked_up, [_inputs_of(looked_up, host, mine) for mine in rows])


_Key = tuple[int, int]  # an operator's name, and which of its calls in the step


def _inputs_of(trace: Trace, host: Table, rows: Ints) -> dict[_Key, tuple[int, tuple[int, ...]]]:
    """Row and dimensions of the largest tensor of the first operators of one step."""
    out: dict[_Key, tuple[int, tuple[int, ...]]] = {}
    calls: dict[int, int] = {}
    for row in rows[:LOOKED_AT].tolist():
        name = int(host["name"][row])
        largest = max(
            tensor_shapes(trace.text(host, "shapes", row) or ""), key=_elements, default=()
        )
        calls[name] = calls.get(name, -1) + 1
        if _elements(largest) > FEW_ELEMENTS:
            out[name, calls[name]] = row, largest
    return out


def _in_all(
    trace: Trace, by_step: Sequence[dict[_Key, tuple[int, tuple[int, ...]]]]
) -> tuple[FirstInput, ...]:
    """Those that every step has, in the order of the first one."""
    out: list[FirstInput] = []
    for (name, call), (row, shape) in by_step[0].items() if by_step else ():
        shapes = [step[name, call][1] for step in by_step if (name, call) in step]
        if len(shapes) < len(by_step) or any(len(s) != len(shape) for s in shapes):
            continue
        at = place_of(trace, row)
        out.append(
            FirstInput(
                operator=trace.names[name][:LONGEST_TEXT],
                call=call,
                dims=tuple(np.mean(shapes, axis=0).round(1).tolist()),
                elements=pack([_elements(s) for s in shapes]),
                file=clipped(at.file, LONGEST_TEXT),
                line=at.line,
                function=clipped(at.function, LONGEST_TEXT),
            )
        )
        if len(out) == INPUTS_KEPT:
            break
    return tuple(out)


def _elements(shape: Sequence[float]) -> int:
    return int(np.prod(np.array(shape, np.float64))) if len(shape) else 0


@dataclass(frozen=True)
class LargerInput:
    """The first input of which a rank is given more than its peers."""

    at: FirstInput
    ratio: float  # of the dimension that differs, or of all elements
    mine: float
    theirs: float
    dimension: int | None  # None: more than one
    by_turns: bool  # not always the rank's, but somebody's in each step: mine is the largest one


def larger_input(
    mine: Sequence[FirstInput], peers: Sequence[Sequence[FirstInput]]
) -> LargerInput | None:
    """Where the rank's share of the work comes in; None where no input of it is larger."""
    found = (
        _larger(own, np.median([s.dims for s in same], axis=0)) for own, same in _alike(mine, peers)
    )
    return next((one for one in found if one is not None), None)


def always_larger_input(
    mine: Sequence[FirstInput], peers: Sequence[Sequence[FirstInput]]
) -> LargerInput | None:
    """The same, if the rank is given more than the peers in each recorded step: sizes that vary
    have means that differ by chance."""
    for own, same in _alike(mine, peers):
        sizes = [unpack(one.elements) for one in (own, *same)]
        alike = len({len(size) for size in sizes}) == 1 and len(sizes[0]) >= FEWEST_STEPS
        found = _larger(own, np.median([s.dims for s in same], axis=0)) if alike else None
        if found is not None and (sizes[0] > np.median(sizes[1:], axis=0)).all():
            return found
    return None


def uneven_input(ranks: Sequence[Sequence[FirstInput]]) -> LargerInput | None:
    """The first input of which some rank is given more in each step, be it another one each time;
    None where shapes are not known."""
    known = [inputs for inputs in ranks if inputs]
    found = (_uneven(own, same) for own, same in _alike(known[0], known[1:])) if known else ()
    return next((one for one in found if one is not None), None)


def _alike(
    mine: Sequence[FirstInput], peers: Sequence[Sequence[FirstInput]]
) -> Iterator[tuple[FirstInput, list[FirstInput]]]:
    """Inputs with those of the peers at the same operator, where at least half of them have it."""
    known = [{(p.operator, p.call): p for p in peer} for peer in peers if peer]
    for own in mine if known else ():
        same = [k[own.operator, own.call] for k in known if (own.operator, own.call) in k]
        same = [s for s in same if len(s.dims) == len(own.dims) and _at_one_place(own, s)]
        if 2 * len(same) >= len(known):
            yield own, same


def _at_one_place(one: FirstInput, other: FirstInput) -> bool:
    """Whether both came in at the same line, as far as lines are known: the first sum of a rank
    that serves the others is no part of its batch."""
    places = (one.file, one.line, one.function), (other.file, other.line, other.function)
    return places[0] == places[1] or None in (one.line, other.line)


def _larger(own: FirstInput, usual: Floats) -> LargerInput | None:
    dims = np.array(own.dims)
    if dims.prod() < MORE_RATIO * usual.prod() or not usual.all():
        return None
    ratios = dims / usual
    differ = np.flatnonzero(np.abs(ratios - 1) >= MORE_RATIO - 1)
    if len(differ) == 1:
        at = int(differ[0])
        return LargerInput(own, float(ratios[at]), float(dims[at]), float(usual[at]), at, False)
    ratio = float(ratios.prod())
    return LargerInput(own, ratio, float(dims.prod()), float(usual.prod()), None, False)


def _uneven(own: FirstInput, same: Sequence[FirstInput]) -> LargerInput | None:
    sizes = [unpack(one.elements) for one in (own, *same)]
    if len({len(size) for size in sizes}) != 1 or not len(sizes[0]):
        return None
    by_step = np.array(sizes, float)
    most, mean = float(by_step.max(axis=0).mean()), float(by_step.mean())
    if most < MORE_RATIO * mean:
        return None
    return LargerInput(own, most / mean, most, mean, None, True)
