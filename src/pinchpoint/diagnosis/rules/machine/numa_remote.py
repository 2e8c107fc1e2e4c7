"""The process runs on another memory node than its device, or on several.

## What it looks for
In a run folder: a machine with several memory nodes, and a process whose cores all belong to other
nodes than the one that its device is attached to, together with copies between host and device.
Slow copies alone may as well be pageable. Without a run folder this is not checked. Of a program on
the CPU alone whose cores belong to several nodes no recording shows which memory is remote: it is
said to be not checked, with the comparison that tells.

## Why it matters
Copies cross the link between the sockets, and so does every launch.

## How to fix it
Bind the process to the device's node: `numactl --cpunodebind=N --membind=N`, or the launcher's own
binding.

## When to ignore it
Where hardly anything is copied and the device is kept busy.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, RUN_FOLDER, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(needs=(), record=RUN_FOLDER)

# Copies that cross the sockets run at 60 to 90 % of the local rate on two-socket servers.
LOCAL_RATIO = 0.8
_OVER_THE_LINK = (Category.COPY_H2D, Category.COPY_D2H)


def _on_one_node(nodes: tuple[int, ...] | None) -> None:
    """Raises NotChecked for a process that may run, and have its memory, on several nodes."""
    if not nodes:
        raise NotChecked("the memory nodes of the process are not recorded")
    if len(nodes) > 1:
        one = f"numactl --cpunodebind={nodes[0]} --membind={nodes[0]}"
        raise NotChecked(
            f"it may run on memory nodes {', '.join(map(str, nodes))}, and no recording shows which"
            " of its memory is remote",
            Record(f'a comparison: pinchpoint bench ab -- "COMMAND" "{one} COMMAND"'),
        )


def check(trace: Trace) -> Iterator[Found]:
    """A process and a device that are apart."""
    if computes_on_cpu(trace):
        _on_one_node(run_facts(trace).cpu_nodes)
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
