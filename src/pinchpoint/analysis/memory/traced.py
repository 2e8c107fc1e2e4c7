"""Memory events of a profiler trace, in the form of an allocator's history.

``profile_memory=True`` records each allocation and free with the totals after it, but no stack and
no segments. The operators, modules and Python functions around an event on its thread take the
place of the stack. What a device held before recording is one block of unknown content; what the
host held is not known: the profiler's totals of it begin with the recording. Sizes are those of the
blocks, so all curves but the reserved one are *allocated* bytes.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.allocator.lives import BEFORE, Lives, chained, lives
from pinchpoint.analysis.memory.allocator.replay import AllocatorReplay, Beginning, curve
from pinchpoint.analysis.memory.owners.stacks import OPERATOR_FILE
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import (
    AllocatorAction,
    Frame,
    HostKind,
    Mark,
    MemorySnapshot,
    Stacks,
    Table,
    Trace,
    empty_table,
    table,
)
from pinchpoint.trace.arrays import Ints, Mask, distinct
from pinchpoint.trace.intervals import NO_ROW, innermost, nest, nesting_order

HOST = -1  # as a device: memory of the host
_UNSEEN_ON_HOST = (
    "what the host held before the recording (parameters, state of the optimizer) is not known: all"
    " figures are of what was allocated since, and the largest batch that fits cannot be told"
)

_PYTHON = regex(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$")
_MODULE = "nn.Module: "
_ENGINE = "autograd::engine::evaluate_function"
_TORCH_MODULE = "torch/nn/modules/module.py"


@dataclass(frozen=True, eq=False)
class Traced:
    """A snapshot without segments, and the totals that the trace gives after each event."""

    snapshot: MemorySnapshot
    allocated: Ints
    reserved: Ints
    known: Mask  # where the totals are known


def traced(trace: Trace) -> Traced | None:
    """The memory events of a trace; None without any."""
    rows = trace.allocations
    if rows is None or trace.host_ops is None or not rows["address"].any():
        return None  # before torch 1.10 events had no address, so frees cannot be paired
    around = _around(trace, rows)
    stacks, stack_of_op = _stacks(trace, np.unique(around[around != NO_ROW]))
    stack_of_row = np.full(len(trace.host_ops) + 1, -1, np.int64)  # at NO_ROW, the last: none
    stack_of_row[list(stack_of_op)] = list(stack_of_op.values())
    stack = stack_of_row[around]
    twice = np.repeat(np.arange(len(rows)), np.where(rows["bytes"] > 0, 1, 2))
    origin_us = (trace.origin_ns or 0) // 1000
    snapshot = MemorySnapshot(
        events=_events(rows, stack, twice, origin_us),
        segments=empty_table("allocator_segments"),
        blocks=empty_table("allocator_blocks"),
        stacks=stacks,
        marks=tuple(_marks(trace, origin_us)),
    )
    return Traced(
        snapshot,
        rows.filled("allocated_bytes", 0)[twice].astype(np.int64),
        rows.filled("reserved_bytes", 0)[twice].astype(np.int64),
        rows.known("allocated_bytes")[twice],
    )


def _events(rows: Table, stack: Ints, twice: Ints, origin_us: int) -> Table:
    """Each free is first requested and then complete: the trace has one event for both."""
    size = rows["bytes"][twice]
    second = np.append(False, twice[1:] == twice[:-1])
    action = np.where(
        size > 0,
        AllocatorAction.ALLOC,
        np.where(second, AllocatorAction.FREE_COMPLETED, AllocatorAction.FREE_REQUESTED),
    )
    return table(
        "allocator_events",
        {
            "device": np.where(rows.known("device"), rows["device"], HOST)[twice],
            "action": action,
            "address": rows["address"][twice],
            "bytes": np.abs(size),
            "stream": np.zeros(len(twice), np.uint64),
            "time_us": rows["time_ns"][twice] // 1000 + origin_us,
            "stack": stack[twice],
        },
        {"stack": stack[twice] < 0},
    )


def _around(trace: Trace, rows: Table) -> Ints:
    """The innermost host row around each memory event on its thread."""
    ops = trace.host_ops
    assert ops is not None
    thread = ops["thread"].astype(np.int64)
    start, end = ops["start_ns"], ops.end_ns
    order = nesting_order(thread, start, end)
    nested = nest(thread[order], start[order], end[order])
    when = rows["time_ns"]
    found = innermost(nested, rows["thread"].astype(np.int64), when, when)
    result: Ints = np.append(order, NO_ROW)[found]  # NO_ROW is the last position
    return result


def _stacks(trace: Trace, wanted: Ints) -> tuple[Stacks, dict[int, int]]:
    """Stacks of these host rows, equal ones once, and the stack of each row."""
    ops = trace.host_ops
    assert ops is not None
    parent = ops.filled("parent", NO_ROW)
    frames: dict[Frame, int] = {}
    of_name: dict[int, tuple[int, ...]] = {}
    known: dict[tuple[int, ...], int] = {}
    chain_of: dict[int, tuple[int, ...]] = {NO_ROW: ()}
    stack_of: dict[int, int] = {}
    for row in wanted.tolist():
        for op in _unknown_ancestors(row, parent, chain_of):
            name = int(ops["name"][op])
            if name not in of_name:
                made = _frames(trace.names[name], HostKind(int(ops["kind"][op])))
                of_name[name] = tuple(frames.setdefault(f, len(frames)) for f in made)
            chain_of[op] = of_name[name] + chain_of[int(parent[op])]
        if chain_of[row]:
            stack_of[row] = known.setdefault(chain_of[row], len(known))
    lengths = np.fromiter((len(c) for c in known), np.int64, len(known))
    flat = np.fromiter((f for c in known for f in c), np.int32, int(lengths.sum()))
    return Stacks(tuple(frames), np.concatenate(([0], np.cumsum(lengths))), flat), stack_of


def _unknown_ancestors(
    row: int, parent: NDArray[np.int32], known: dict[int, tuple[int, ...]]
) -> list[int]:
    """The row and its ancestors that are not known yet, outermost first."""
    out = []
    while row not in known:
        out.append(row)
        row = int(parent[row])
    return out[::-1]


def _frames(name: str, kind: HostKind) -> tuple[Frame, ...]:
    """What a host row is in a stack, innermost first; annotations of steps are no frames."""
    if kind in (HostKind.PYTHON, HostKind.MODULE):
        if name.startswith(_MODULE):
            return (Frame("", 0, name), Frame(_TORCH_MODULE, 1, "_call_impl"))
        found = _PYTHON.match(name)
        if found:
            return (Frame(found["file"], max(int(found["line"]), 1), found["function"]),)
        return ()
    if kind == HostKind.ANNOTATION and not name.startswith("Optimizer."):
        return ()
    if name.startswith(_ENGINE):
        name = name.replace(_ENGINE, "torch::autograd::Engine::evaluate_function")
    return (Frame(OPERATOR_FILE, 0, name),)


def _marks(trace: Trace, origin_us: int) -> Iterator[Mark]:
    steps = trace.steps
    for row in range(0 if steps is None else len(steps)):
        assert steps is not None
        start = int(steps["start_ns"][row])
        name = f"ProfilerStep#{steps.value('number', row) or row}"
        yield Mark(name, True, 0, start // 1000 + origin_us)
        end = start + int(steps["duration_ns"][row])
        yield Mark(name, False, 0, -(-end // 1000) + origin_us)


def traced_devices(found: Traced) -> tuple[int, ...]:
    """Devices with memory events; HOST for the host."""
    return tuple(int(d) for d in distinct(found.snapshot.events["device"]))


def traced_replay(found: Traced, device: int) -> AllocatorReplay:
    """The history of one device; the totals of the trace say what was there before."""
    mine = found.snapshot.events["device"] == device
    events = found.snapshot.events.take(mine)
    blocks = lives(events, found.snapshot, device)
    own = curve(blocks.birth, blocks.death, blocks.requested, len(events))
    total, known = found.allocated[mine], found.known[mine]
    held = int((total - own[1:])[known].min(initial=0)) if known.any() else 0
    base = int(np.median((total - own[1:])[known])) if known.any() else 0
    base = max(base, held, 0)
    if base:
        blocks = _with_unknown(blocks, base, len(events))
    requested = own + base
    none = np.zeros(len(events), np.int64)
    return AllocatorReplay(
        device=device,
        events=events,
        time_us=events["time_us"],
        blocks=blocks,
        size=blocks.requested,
        slack=np.zeros(len(blocks), np.int64),
        held=(),
        requested=requested[1:],
        allocated=requested[1:],
        active=requested[1:],
        reserved=found.reserved[mine],
        base=(int(requested[0]), int(requested[0]), int(requested[0]), 0),
        beginning=_beginning(blocks, device),
        doubts=(_UNSEEN_ON_HOST,) if device == HOST else (),
        slack_curve=none,
    )


def _beginning(blocks: Lives, device: int) -> Beginning:
    """A profiler counts the host's memory from its own start on: its totals begin at nothing."""
    if device == HOST:
        return "unknown"
    return "late start" if blocks.before.any() else "whole"


def _with_unknown(blocks: Lives, size: int, end: int) -> Lives:
    """One more block for everything that was there before and stays."""
    first = Lives(
        address=np.zeros(1, np.uint64),
        requested=np.array([size]),
        birth=np.array([BEFORE]),
        freed=np.array([end]),
        death=np.array([end]),
        stream=np.zeros(1, np.uint64),
        stack=np.zeros(1, np.int32),
        has_stack=np.zeros(1, np.bool_),
        freed_by=np.zeros(1, np.int32),
        has_freed_by=np.zeros(1, np.bool_),
        anomalies=0,
    )
    return chained(first, blocks)
