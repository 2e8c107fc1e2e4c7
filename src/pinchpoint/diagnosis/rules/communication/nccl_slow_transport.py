"""Collectives go over sockets or host memory, not over the fast link.

## What it looks for
Large collectives whose best bus bandwidth is a small part of what the devices' link gives, alike
from call to call. One rank alone cannot tell a slow link from a peer that is always late by the
same time; over all ranks (`pinchpoint ranks DIR`) waiting for the last one is left out. Calls that
take now long and now short wait for peers, and small messages never fill a link: neither counts.
Not checked where message sizes were not recorded.

## Why it matters
NCCL falls back to host memory or sockets where peer-to-peer access, InfiniBand or the right
network interface is not allowed or not found. It works, ten to a hundred times slower.

## How to fix it
`NCCL_DEBUG=INFO` names the transport of each channel. Allow peer-to-peer (`NCCL_P2P_DISABLE` unset,
access control services off), let containers see all devices and `/dev/infiniband`, set
`NCCL_SOCKET_IFNAME` and `NCCL_IB_HCA`.

## When to ignore it
Between nodes that have no faster network.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.communication import KindOfCall
    from pinchpoint.analysis.ranks.job import Job


RULE = Rule(
    needs=("device_ops",),
    record=DEVICE,
    about=About.COMMUNICATION,
    looks_at="job",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "env NCCL_P2P_DISABLE=0 torchrun train.py"',
)

LARGE_BYTES = 24 << 20  # a bucket of DDP; smaller messages tell more of late peers than of the link
STEADY_RATIO = 0.25  # waiting for a peer varies from step to step, a link hardly does
ONE_NODE = 8  # ranks of a group that can share one link domain
SLOW_RATIO = 0.03  # of the link: a ring reaches 50 to 80 %, sockets under 1 %
REACHED_RATIO = 0.5  # of the link's one direction; measured 0.52 with two H100 at 128 MB
# Of what it should reach once waiting is left out; sharing a link with one other halves it.
SLOW_TRANSFER_RATIO = 0.2
# A transfer may take this many times as long as the expected rate makes it; rings on good links
# reach 80 % of them.
LONGEST, SHORTEST = 2.0, REACHED_RATIO / 0.8
SLOW_BYTES_PER_S = 3e9  # without a data sheet or between nodes: slower than 25-gigabit Ethernet
# What PCIe 4 x16 and 200-gigabit links give in one direction, less the protocol.
USUAL_BYTES_PER_S = 20e9


def check(trace: Trace) -> Iterator[Found]:
    """Large collectives far below the link."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None:
        return
    rate = found.bus_bytes_per_s()
    if not found.bytes.any():
        raise NotChecked("message sizes are not recorded")
    large = (found.bytes >= LARGE_BYTES) & ~np.isnan(rate)
    if not large.any():
        return
    best = float(rate[large].max())
    device = trace.devices[0].name if trace.devices else None
    expected, slow = _link(device, int(found.group_size[large].max()))
    spread = np.ptp(found.duration_ns[large]) / np.median(found.duration_ns[large])
    if best >= slow or spread > STEADY_RATIO:
        return
    wanted = np.zeros(len(ops), np.bool_)
    wanted[found.rows[large]] = True
    work = device_work(trace, wanted, "large collectives")
    if work is None:
        return
    yield Found(
        summary=(
            f"Large collectives reach {best / 1e9:.2g} GB/s of bus bandwidth at best;"
            f" the link should give about {expected / 1e9:.0f}"
        ),
        evidence=(
            Evidence("best bus bandwidth", round(best), "bytes/s"),
            Evidence("expected of the link", round(expected), "bytes/s"),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, best / expected),),
        location=work.place,
        confidence="medium",
        fix="Let NCCL use the fast link: NCCL_DEBUG=INFO names the transport it chose",
        hint="NCCL_DEBUG=INFO torchrun train.py 2>&1 | grep -i via",
    )


def check_job(job: "Job") -> Iterator[Found]:
    """Large collectives whose transfer alone, waiting left out, is far below the link."""
    device = next((r.device for r in job.facts.ranks if r.device), None)
    slow: list[tuple[KindOfCall, float]] = []
    for kind in job.between.kinds:
        expected, _ = _link(device, kind.ranks)
        limit = SLOW_TRANSFER_RATIO * expected
        rate = kind.best_bus_bytes_per_s
        if rate is not None and rate < limit and (kind.bytes or 0) >= LARGE_BYTES:
            slow.append((kind, rate / expected))
    if not slow:
        return
    worst = max((k for k, _ in slow), key=lambda k: k.exposed_transfer_ns_per_step)
    expected, _ = _link(device, worst.ranks)
    cost = sum(k.exposed_transfer_ns_per_step for k, _ in slow)
    least, most = (_won(job, slow, times) for times in (LONGEST, SHORTEST))
    assert worst.bus_bytes_per_s is not None
    yield Found(
        summary=(
            f"Large collectives reach {worst.bus_bytes_per_s / 1e9:.2g} GB/s of bus bandwidth once"
            f" all ranks are there; the link should give about {expected / 1e9:.0f}"
        ),
        evidence=(
            Evidence("bus bandwidth of the transfer", round(worst.bus_bytes_per_s), "bytes/s"),
            Evidence("expected of the link", round(expected), "bytes/s"),
            Evidence("message", worst.bytes or 0, "bytes"),
            Evidence("transfer that nothing hides", cost, "ns per step"),
        ),
        cost_ns_per_step=cost,
        saving_ns_per_step=(least, most),
        fix="Let NCCL use the fast link: NCCL_DEBUG=INFO names the transport it chose",
        hint="NCCL_DEBUG=INFO torchrun train.py 2>&1 | grep -i via",
    )


def _won(job: "Job", slow: "list[tuple[KindOfCall, float]]", times: float) -> int:
    """What the step wins if the slow kinds take ``times`` what the expected rate makes them."""
    factors = {n: min(times * ratio, 1.0) for kind, ratio in slow for n in kind.numbers}
    if job.replay is not None:
        return max(job.replay.base_ns - job.replay.ask(transfer_factors=factors), 0)
    return sum(
        round(kind.exposed_transfer_ns_per_step * (1 - min(times * ratio, 1.0)))
        for kind, ratio in slow
    )


def _link(device: str | None, group: int) -> tuple[float, float]:
    """What a large collective should reach, and below what the transport must be wrong."""
    spec = find_spec(device)
    if group > ONE_NODE or spec is None or not spec.link_bytes_per_s:
        return USUAL_BYTES_PER_S, SLOW_BYTES_PER_S
    one_way = spec.link_bytes_per_s / 2
    return REACHED_RATIO * one_way, SLOW_RATIO * one_way
