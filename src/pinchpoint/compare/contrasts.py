"""What two recordings show side by side and neither shows alone.

The same kernels on as many blocks, slower throughout: the device was. The same collectives, of the
same sizes: longer, or as long and less hidden. One recording cannot tell these from work that
simply takes so long.
"""

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace

# Below it kernels of two runs differ by their clocks alone: boost clocks wander by some percent.
SLOWER_RATIO = 1.1
SAME_WORK_RATIO = 0.9  # of both sides' kernel time: what is left over may be what changed
LEAST_OF_KERNELS = 0.1  # quantile of the ratios, by time: nine tenths of the work must be slower


@dataclass(frozen=True)
class Contrast:
    """A cause that only the comparison shows; positive times: B takes longer."""

    id: str
    summary: str
    change_ns: int
    possible: tuple[str, ...]  # rules that name what may lie behind it


def contrasts(a: Trace, b: Trace) -> tuple[Contrast, ...]:
    """Those that both sides allow; in no order."""
    found = (_slower_device(a, b), _collectives(a, b))
    return tuple(one for one in found if one is not None)


@once_per_trace
def _kernels(trace: Trace) -> dict[tuple[str, str], tuple[float, float]]:
    """Calls and nanoseconds a step, by name and grid; kernels without a grid are left out."""
    ops, steps = trace.device_ops, max(len(judged_steps(trace)), 1)
    if ops is None or not len(ops):
        return {}
    grid = ops.filled("grid", -1)
    mine = np.flatnonzero(
        device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL) & (grid >= 0)
    )
    pairs, which = np.unique(
        np.stack((ops["name"][mine], grid[mine]), axis=1), axis=0, return_inverse=True
    )
    calls = np.bincount(which.ravel(), minlength=len(pairs)) / steps
    took = np.bincount(which.ravel(), ops["duration_ns"][mine], len(pairs)) / steps
    return {
        (trace.names[name], trace.names[blocks]): (float(n), float(ns))
        for (name, blocks), n, ns in zip(pairs.tolist(), calls, took, strict=True)
    }


def _slower_device(a: Trace, b: Trace) -> Contrast | None:
    left, right = _kernels(a), _kernels(b)
    both = [k for k in left if k in right and _alike(left[k][0], right[k][0])]
    ours, theirs = (sum(side[k][1] for k in both) for side in (left, right))
    alike = min(ours / max(_total(left), 1.0), theirs / max(_total(right), 1.0))
    if not both or alike < SAME_WORK_RATIO:
        return None
    calls = np.array([right[k][0] / left[k][0] for k in both])
    ratio = np.array([right[k][1] / max(left[k][1], 1.0) for k in both]) / calls
    weight = np.array([left[k][1] for k in both])
    if theirs < ours:
        ratio = 1 / np.maximum(ratio, 1e-9)
    order = np.argsort(ratio)
    reached = np.cumsum(weight[order]) >= LEAST_OF_KERNELS * weight.sum()
    if ratio[order][reached][0] < SLOWER_RATIO:
        return None
    times, slow = max(theirs / ours, ours / theirs), "B" if theirs > ours else "A"
    return Contrast(
        "device-slower",
        f"The same kernels on as many blocks take {times:.2f} × as long in {slow}: its device "
        "was slower (a lower clock), or shared with another process",
        round(theirs - ours),
        ("gpu-contention", "clock-throttled"),
    )


def _alike(a: float, b: float) -> bool:
    """Two counts or sizes a step; steps of a recording may be cut one kernel early or late."""
    return min(a, b) >= SAME_WORK_RATIO * max(a, b)


def _total(side: dict[tuple[str, str], tuple[float, float]]) -> float:
    return sum(ns for _, ns in side.values())


def _collectives(a: Trace, b: Trace) -> Contrast | None:
    left, right = collectives(a), collectives(b)
    if left is None or right is None:
        return None
    counts = [max(len(judged_steps(t)), 1) for t in (a, b)]
    moved, took, exposed = (
        [float(getattr(s, field).sum()) / n for s, n in zip((left, right), counts, strict=True)]
        for field in ("bytes", "duration_ns", "exposed_ns")
    )
    calls = [len(s.rows) / n for s, n in zip((left, right), counts, strict=True)]
    if not moved[0] or not _alike(*moved):
        return None
    change = exposed[1] - exposed[0]
    slow, fast = (1, 0) if change > 0 else (0, 1)
    if exposed[slow] < SLOWER_RATIO * exposed[fast]:
        return None
    name = "AB"[slow]
    if took[slow] < SLOWER_RATIO * took[fast]:  # cut into more calls, perhaps
        return Contrast(
            "communication-exposed",
            f"Collectives of the same size take as long, and in {name} less of them is hidden "
            "behind computing",
            round(change),
            ("comm-not-overlapped",),
        )
    if not _alike(*calls):
        return None
    return Contrast(
        "collectives-longer",
        f"Collectives of the same size take {took[slow] / max(took[fast], 1.0):.1f} × as long in "
        f"{name}: they wait for a late rank, or the link is slower",
        round(change),
        ("straggler-rank", "nccl-slow-transport"),
    )
