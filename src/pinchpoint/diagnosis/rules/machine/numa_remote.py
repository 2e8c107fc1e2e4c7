"""The process runs on another memory node than its device, or on several.

## What it looks for
In a run folder: a machine with several memory nodes, and a process whose cores all belong to other
nodes than the one that its device is attached to, together with copies between host and device.
Slow copies alone may as well be pageable. Without a run folder this is not checked.

Of a program on the CPU alone: where its threads ran, and where its memory lies, by node, after a
recording. Threads that are bound to a node and use memory of another are found. Threads that may
move from node to node are not: what is remote changes while they run. Nor are threads on several
nodes with memory on each, as which thread uses which memory is not recorded. Both are said to be
not checked, with what was seen and the comparison that tells.

## Why it matters
Copies cross the link between the sockets, and so does every launch. Memory of another node takes
1.5 to 3 times as long to reach, and all threads share the link and the other node's memory.

## How to fix it
Bind the process to the device's node: `numactl --cpunodebind=N --membind=N`, or the launcher's own
binding. Without a device: one process for each node, each bound so; or `numactl --interleave=all`
for one process on all of them, whose memory one thread wrote first.

## When to ignore it
Where hardly anything is copied and the device is kept busy, or what is computed fits into caches.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, RUN_FOLDER, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import NodeShares, Trace

RULE = Rule(needs=(), record=RUN_FOLDER)

# Copies that cross the sockets run at 60 to 90 % of the local rate on two-socket servers.
LOCAL_RATIO = 0.8
_OVER_THE_LINK = (Category.COPY_H2D, Category.COPY_D2H)


# Of the memory: with less of it on their node, threads work on what lies elsewhere. Pages of code,
# stacks and the interpreter's own objects, some 0.3 GB with PyTorch, may be there all the same.
HARDLY_ANY_RATIO = 0.1
# Of the CPU time, in threads that stay on one node: what others did meanwhile is not told apart.
BOUND_RATIO = 0.9
LEAST_REMOTE_RATIO = 0.1  # of the accesses: of less, no share of the step is worth a finding


def _of_cpus(trace: Trace) -> Iterator[Found | Small]:
    """Threads and memory on different nodes. Raises NotChecked where they may be, or not."""
    facts, step_ns = run_facts(trace), steps(trace).typical_ns
    if not facts.cpu_nodes:
        raise NotChecked("the memory nodes of the process are not recorded")
    shares = facts.node_shares
    if shares is None:
        _on_one_node(facts.cpu_nodes)
        return
    if shares.pinned_ratio < BOUND_RATIO:
        raise NotChecked(
            f"its threads may move between memory nodes, and {_most(shares.memory)}",
            _comparison(facts.cpu_nodes),
        )
    remote = _remote_ratio(shares)
    if remote is None:
        raise NotChecked(
            "threads run and memory lies on several nodes, and no recording shows which thread uses"
            " which memory",
            _comparison(facts.cpu_nodes),
        )
    most_ns = round(remote * (1 - shares.local_ratio) * (step_ns or 0))
    if not most_ns:
        return
    if remote < LEAST_REMOTE_RATIO:
        yield Small(remote, LEAST_REMOTE_RATIO, "the accesses")
        return
    ran = max(shares.time, key=shares.time.__getitem__)
    bind = f"numactl --cpunodebind={ran} --membind={ran} python train.py"
    spread = "numactl --interleave=all python train.py"
    hint = bind if len([r for r in shares.time.values() if r >= HARDLY_ANY_RATIO]) == 1 else spread
    yield Found(
        summary=f"Threads run on memory node {', '.join(map(str, sorted(shares.time)))}, and"
        f" {_most(shares.memory)}",
        evidence=(
            Evidence("of the CPU time, that uses memory of another node", remote, "ratio"),
            *(
                Evidence(f"memory on node {n}", r, "ratio")
                for n, r in sorted(shares.memory.items())
            ),
            *(
                Evidence(f"CPU time on node {n}", r, "ratio")
                for n, r in sorted(shares.time.items())
            ),
            Evidence("distance of the own node by the farthest", shares.local_ratio, "ratio"),
        ),
        cost_ns_per_step=most_ns,
        saving_ns_per_step=(0, most_ns),  # nothing of what caches hold
        fix="Keep threads and their memory on one node, or spread the memory over the nodes",
        hint=hint,
        confirm=f'pinchpoint bench ab -- "python train.py" "{hint}"',
        confidence="low",
    )


def _remote_ratio(shares: NodeShares) -> float | None:
    """Of what threads access, how much is remote at least; None where that is not known."""
    (node, whole), *others = sorted(shares.time.items(), key=lambda one: -one[1])
    if whole >= 1 - HARDLY_ANY_RATIO or not others:
        return 1 - shares.memory.get(node, 0.0)
    without = [n for n in shares.time if shares.memory.get(n, 0.0) < HARDLY_ANY_RATIO]
    return sum(shares.time[n] for n in without) if without else None


def _most(memory: Mapping[int, float]) -> str:
    node = max(memory, key=memory.__getitem__)
    return f"{100 * memory[node]:.0f} % of its memory is on node {node}"


def _comparison(nodes: tuple[int, ...]) -> Record:
    one = f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]}"
    return Record(f'a comparison: pinchpoint bench ab -- "COMMAND" "{one} COMMAND"')


def _on_one_node(nodes: tuple[int, ...]) -> None:
    """Raises NotChecked for a process that may run, and have its memory, on several nodes."""
    if len(nodes) > 1:
        raise NotChecked(
            f"it may run on memory nodes {', '.join(map(str, nodes))}, and where its memory lies is"
            " not recorded",
            _comparison(nodes),
        )


def check(trace: Trace) -> Iterator[Found | Small]:
    """A process and a device that are apart."""
    if computes_on_cpu(trace):
        yield from _of_cpus(trace)
        return
    if trace.device_ops is None or not len(trace.device_ops):
        raise NotChecked("the recording has no device ops", CPU_AND_DEVICE)
    device, nodes = run_facts(trace).device, run_facts(trace).cpu_nodes
    node = None if device is None else device.numa_node
    if node is None or not nodes:
        raise NotChecked("the memory nodes of process and device are not recorded")
    if node < 0 or node in nodes:
        return
    copies = np.isin(category_of_device_ops(trace), [int(c) for c in _OVER_THE_LINK])
    rows = np.flatnonzero(copies & device_ops_in_steps(trace))
    lasted = int(trace.device_ops["duration_ns"][rows].sum())
    cost = round(per_step(trace, lasted) * (1 - LOCAL_RATIO)) if len(rows) else None
    where = ", ".join(str(n) for n in nodes)
    yield Found(
        summary=f"The process runs on memory node {where}, its device is attached to node {node}",
        evidence=(
            Evidence("node of the device", node, ""),
            Evidence("nodes of the process", where, ""),
            Evidence("copies over the link", round(per_step(trace, lasted)), "ns per step"),
        ),
        cost_ns_per_step=cost,
        changes=(ScaleDeviceOps(rows, LOCAL_RATIO),) if len(rows) else (),
        confidence="medium",
        fix=f"Bind the process to node {node}",
        hint=f"numactl --cpunodebind={node} --membind={node} python train.py",
        confirm=(
            'pinchpoint bench ab -- "python train.py" '
            f'"numactl --cpunodebind={node} --membind={node} python train.py"'
        ),
    )
