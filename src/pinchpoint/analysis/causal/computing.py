"""What the host does on the thread of the steps beside dispatching: computes, or names its work.

Between two calls to the driver a program runs a little Python: modules, functions, arguments. What
is beyond that is work of its own. An operator that computes on CPU tensors takes long itself and
launches nothing. Work that names itself (saving, logging, compiling, collecting garbage), and long
calls to the driver that launch nothing, count wholly. Waiting and loading are another question.
"""

from collections import Counter

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, operators_around, parents, subtree_sums
from pinchpoint.analysis.host.attribution import launched_count
from pinchpoint.analysis.host.frames import NAMELESS, Owner, frame_of, owners
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.mean.exceptional_steps import exceptional_steps
from pinchpoint.analysis.replay.apply import PYTHON_OF_AN_OPERATOR_NS
from pinchpoint.analysis.replay.recording_cost import cost_in_windows
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, distinct
from pinchpoint.trace.names import rows_named

# Work that names itself, and is neither waiting nor dispatching.
_NAMED_KINDS = (
    GapKind.MALLOC,
    GapKind.COMPILE,
    GapKind.CODE_LOAD,
    GapKind.GC,
    GapKind.CHECKPOINT,
    GapKind.LOGGING,
)

# Dispatching an operator takes 5 to 50 µs, recorded with stacks and shapes up to 100; one that
# takes longer by itself computes.
DISPATCH_NS = 200_000


@dataclass(frozen=True, eq=False)
class HostComputing:
    """Stretches in which the host computes, in order; ``row`` is of ``host_rows``."""

    start_ns: Ints
    end_ns: Ints
    row: Ints
    took_ns: Ints  # without what recording it cost
    steps: int  # that were looked at


@once_per_trace
def host_computing(trace: Trace) -> HostComputing:
    """The stretches inside the judged steps, but for those that are far longer than usual."""
    start, end = _usual_steps(trace)
    did = host_did(trace, np.full(len(start), steps(trace).thread, np.int64), start, end)
    count = len(start)
    kinds = _kinds(trace)
    kind, took = kinds[did.row], did.end_ns - did.start_ns
    stretch = np.cumsum(did.row >= host_rows(trace).operators)
    in_python = np.bincount(stretch, np.where(kind == _PYTHON, took, 0))[stretch]
    computes = (kind == _PYTHON) & (in_python > PYTHON_OF_AN_OPERATOR_NS)
    computes |= (kind == _ON_CPU) & (took > DISPATCH_NS)
    computes |= kind == _NAMED
    start, end, row = did.start_ns[computes], did.end_ns[computes], did.row[computes]
    threads = distinct(host_rows(trace).thread[row]).astype(np.intp)
    cost = cost_in_windows(trace, threads, start, end)
    return HostComputing(start, end, row, end - start - cost, count)


def _usual_steps(trace: Trace) -> tuple[Ints, Ints]:
    """Host spans of the judged steps but the exceptional ones, which have causes of their own."""
    windows, found = judged_steps(trace), steps(trace)
    rare = [one.step for one in exceptional_steps(trace)]
    usual = ~np.isin(windows.start_ns, found.host_start_ns[rare]) if rare else slice(None)
    return windows.start_ns[usual], windows.end_ns[usual]


_PYTHON, _ON_CPU, _NAMED = 1, 2, 3  # codes of this module; 0 is none of them


def _kinds(trace: Trace) -> Ints:
    """Of each of ``host_rows`` whether it is Python, an operator that launches nothing, or work
    that names itself; last: no row."""
    rows, host = host_rows(trace), trace.host_ops
    out = np.zeros(len(rows) + 1, np.int64)
    if host is None or not len(host):
        return out
    out[:-1][_long_calls(trace)] = _NAMED
    does = activity(trace)[: rows.operators]
    plain = np.isin(does, (GapKind.PYTHON, GapKind.DISPATCH, GapKind.HOST_COMPUTE))
    python = np.isin(host["kind"], (HostKind.PYTHON, HostKind.MODULE)) | _in_a_function(trace)
    python &= ~_dispatching(trace)
    operator = (host["kind"] == HostKind.OPERATOR) & (_calls_inside(trace) == 0)
    out[: rows.operators] = np.where(
        plain & python, _PYTHON, np.where(plain & operator, _ON_CPU, 0)
    )
    out[np.isin(activity(trace), _NAMED_KINDS)] = _NAMED
    return out


def _in_a_function(trace: Trace) -> Mask:
    """Ranges that somebody named inside of a Python function: what is in no other row of them is
    that function's, as between the tokens of a loop whose steps are calls of its model."""
    host = trace.host_ops
    assert host is not None
    frames = (host["kind"] == HostKind.PYTHON) & ~rows_named(trace, host, _is_builtin)
    inside = nearest(parents(host), frames) != len(host)
    named: Mask = inside & (host["kind"] == HostKind.ANNOTATION)
    return named


def _long_calls(trace: Trace) -> Mask:
    """Of ``host_rows``, calls to the driver that launch nothing and take longer than dispatching an
    operator, but for those that wait for the device."""
    rows, calls, ops = host_rows(trace), trace.api_calls, trace.device_ops
    out = np.zeros(len(rows), np.bool_)
    if calls is None:
        return out
    launches = np.zeros(len(calls), np.bool_)
    if ops is not None:
        launches[ops["api_call"][ops.known("api_call")]] = True
    plain = activity(trace)[rows.operators : -1] == GapKind.DISPATCH
    out[rows.operators :] = plain & ~launches & (calls["duration_ns"] > DISPATCH_NS)
    return out


# The framework's own Python, and what its compiler wrote: it dispatches.
# Code without a file is a compiler's, but for Python's own imports, which a program asks for.
FRAMEWORK = regex(r"(^|/)(torch|triton|functorch)/|torchinductor|^<(?!built-in|frozen importlib)")


def _dispatching(trace: Trace) -> Mask:
    """Rows inside an operator, and Python of the framework, with the built-ins that it calls."""
    host = trace.host_ops
    assert host is not None
    chain, none = parents(host), len(host)
    in_operator = operators_around(trace)[:-1] != none
    frames = (host["kind"] == HostKind.PYTHON) & ~rows_named(trace, host, _is_builtin)
    framework = rows_named(trace, host, lambda name: FRAMEWORK.search(name) is not None)
    around = nearest(chain, frames)
    result: Mask = in_operator | np.append(framework, False)[around]
    return result


def _is_builtin(name: str) -> bool:
    return name.startswith("<built-in")


def _calls_inside(trace: Trace) -> Ints:
    """Device operations and calls to the driver inside each row of ``host_ops``."""
    host, calls = trace.host_ops, trace.api_calls
    assert host is not None
    own = launched_count(trace).astype(np.int64)
    if calls is not None:
        by = calls.filled("host_op", NO_ROW)
        own += np.bincount(by[by != NO_ROW], minlength=len(host))
    return subtree_sums(parents(host), own)


# ------------------------------------------------------------------------------------------------
# Work that is spread over several functions: of the one that calls them all.


# Of the time of all calls of a function: then it does little else.
LITTLE_ELSE_RATIO = 0.8
MOSTLY_RATIO = 0.5  # of a call in a library, which passes on to operators what it is called for
# Of what a function and all that it calls compute: the one that has it is the place, not its
# caller. With less than half anywhere, no single change below the caller wins most of it.
ONE_HAS_IT_RATIO = 0.5


def shared_callers(trace: Trace, found: HostComputing) -> Ints:
    """For each stretch the name of the function of the program that calls the several ones which
    compute, and does little else; NO_ROW where one alone has half of it.

    A function with a module, a backward pass or an optimizer in it is the step, and no place.
    """
    host = trace.host_ops
    nobody = np.full(len(found.row), NO_ROW, np.int64)
    if host is None or not len(host):
        return nobody
    chain, none = parents(host), len(host)
    user = (owners(trace) == Owner.USER) & ~rows_named(trace, host, _is_nameless)
    if not user.any():
        return nobody
    nearest_user = np.append(nearest(chain, user), none)
    around = nearest_user[rows_of_host(trace, found.row)]
    recorded = np.zeros(none + 1, np.int64)
    np.add.at(recorded, around, found.end_ns - found.start_ns)  # as calls last, with its cost
    pure = _does_little_else(trace, user, subtree_sums(chain, recorded[:-1]))
    paths = _paths(host["name"], nearest_user[chain], pure, distinct(around[around < none]))
    path_of = [paths.of_row.get(row, NOWHERE) for row in around.tolist()]
    weight: Counter[int] = Counter()
    for path, ns in zip(path_of, found.took_ns.tolist(), strict=True):
        weight[path] += ns
    place: Ints = np.array(_split(paths, weight), np.int64)[path_of]
    return place


def called_back(trace: Trace, found: HostComputing) -> Ints:
    """For each stretch in a library the name of the function of the program that it works for:
    the one that a call deep in the library, which mostly computes, calls back. NO_ROW for others.

    Who passes a function to a sampler, a collator or a trainer finds what the library makes of its
    results in no other place of the program.
    """
    host, for_whom = trace.host_ops, np.full(len(found.row), NO_ROW, np.int64)
    if host is None or not len(host):
        return for_whom
    chain, none, owner = parents(host), len(host), owners(trace)
    user = owner == Owner.USER
    library = (owner == Owner.LIBRARY) | (owner == Owner.FRAMEWORK)
    inner = rows_of_host(trace, found.row)
    recorded = np.zeros(none + 1, np.int64)
    np.add.at(recorded, inner, found.end_ns - found.start_ns)
    whole = subtree_sums(chain, recorded[:-1])
    pure = _does_little_else(trace, library, whole, MOSTLY_RATIO)
    frame = np.append(nearest(chain, user | library), none)
    deep = pure & ~np.append(user, False)[frame[chain]]
    if not deep.any() or not user.any():
        return for_whom
    # The outermost such call around each row, up to the program's own function.
    begins = np.append(nearest(chain, user | (deep & ~np.append(deep, False)[frame[chain]])), none)
    whose = np.append(np.where(deep, np.arange(none), none), none)[begins]
    calls = np.flatnonzero(user & (whose[chain] < none))
    backs: dict[int, set[int]] = {}
    for call, name in zip(whose[chain][calls].tolist(), host["name"][calls].tolist(), strict=True):
        backs.setdefault(int(host["name"][call]), set()).add(name)
    only = {call: next(iter(names)) for call, names in backs.items() if len(names) == 1}
    around = np.append(whose, none)[inner]
    names = np.append(host["name"].astype(np.int64), NO_ROW)[around]
    for_whom[:] = [only.get(name, NO_ROW) for name in names.tolist()]
    return for_whom


def rows_of_host(trace: Trace, rows: Ints) -> Ints:
    """Of ``host_ops`` the row that each of these of ``host_rows`` is, or is a call of; their count
    where there is none."""
    every, none = host_rows(trace), host_rows(trace).operators
    inner = np.where(rows < none, rows, every.parent[rows])
    found: Ints = np.where((inner >= 0) & (inner < none), inner, none)
    return found


def _does_little_else(
    trace: Trace, functions: Mask, whole_ns: Ints, least_ratio: float = LITTLE_ELSE_RATIO
) -> Mask:
    """Functions that, all calls of one name together, compute, and have no part of the step."""
    host = trace.host_ops
    assert host is not None
    of_step = np.isin(host["kind"], (HostKind.MODULE, HostKind.ANNOTATION))
    of_step |= rows_named(trace, host, lambda name: name.startswith("autograd::"))
    holds = subtree_sums(parents(host), of_step.astype(np.int64)) > 0
    works = functions & (whole_ns > 0)
    name, count = host["name"], len(trace.names)
    calls = np.bincount(name[works], host["duration_ns"][works], count)
    computing = np.bincount(name[works], whole_ns[works], count)
    is_step = np.bincount(name[works & holds], minlength=count) > 0
    little = (computing >= least_ratio * calls) & ~is_step
    found: Mask = works & little[name]
    return found


@dataclass(frozen=True, eq=False)
class _Paths:
    """Names of functions of the program, each called by the one before it, as a tree: stacks may be
    thousands of frames deep."""

    caller: list[int]  # of each path, the one without its last name; NOWHERE has none
    name: list[int]  # the last one of each path
    of_row: dict[int, int]


NOWHERE = 0  # the path without a name


def _paths(name: Ints, caller: Ints, pure: Mask, rows: Ints) -> _Paths:
    """Of rows of functions, the names from the outermost that does little else down to them."""
    known: dict[int, int] = {len(pure): NOWHERE}
    paths, numbers = _Paths([NOWHERE], [NO_ROW], known), dict[tuple[int, int], int]()
    for row in rows.tolist():
        chain = [row]
        while chain[-1] not in known:
            chain.append(int(caller[chain[-1]]))
        for one in reversed(chain[:-1]):
            above = known[int(caller[one])]
            known[one] = NOWHERE
            if above != NOWHERE or pure[one]:
                key = (above, int(name[one]))
                known[one] = numbers.setdefault(key, len(paths.name))
                if known[one] == len(paths.name):
                    paths.caller.append(above)
                    paths.name.append(key[1])
    return paths


def _split(paths: _Paths, weight: Counter[int]) -> list[int]:
    """For each path the function that it has in common with others, as far down as one has half of
    the work; NO_ROW where the last of them has it itself."""
    order = {path: at for at, path in enumerate(weight)}
    inside, first = _with_callees(paths, weight, order)
    below: list[list[int]] = [[] for _ in paths.name]
    for path in range(1, len(below)):
        if path in first:
            below[paths.caller[path]].append(path)
    place = [NO_ROW] * len(below)
    for start in below[NOWHERE]:
        at = way = start
        while way != NOWHERE:
            at = way
            ways = [(inside[one], -first[one], one) for one in below[at]]
            ways += [(weight[at], -order[at], NOWHERE)] if at in order else []
            most, _, way = max(ways)
            if most < ONE_HAS_IT_RATIO * inside[at]:
                place[at], way = paths.name[at], NOWHERE
    for path in range(1, len(below)):  # callers have lower numbers
        if place[path] == NO_ROW:
            place[path] = place[paths.caller[path]]
    return place


def _with_callees(
    paths: _Paths, weight: Counter[int], order: dict[int, int]
) -> tuple[Counter[int], dict[int, int]]:
    """The work in each path and below it, and which of these came first; of those with any."""
    inside, first = Counter(weight), dict(order)
    for path in range(len(paths.name) - 1, NOWHERE, -1):
        if path in first:
            above = paths.caller[path]
            inside[above] += inside[path]
            first[above] = min(first.get(above, first[path]), first[path])
    return inside, first


def _is_nameless(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.function in (*NAMELESS, "<module>")
