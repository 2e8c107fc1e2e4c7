"""How fast transfers are against the link, and how large messages should be.

The time of a collective is about ``latency + bytes / bandwidth``. Sizes that differ enough give
both, and from them how large a message has to be to come close to the bandwidth.
"""

import numpy as np

from pinchpoint.analysis.ranks.communication import KindOfCall
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.specs import find_spec

ONE_NODE = 8  # ranks of a group that can share one link domain
APART_RATIO = 4.0  # between the smallest and the largest size of a fit
NEAR_RATIO = 0.9  # of the bandwidth, which a bucket should reach
_WAYS = 2  # data sheets give both directions together


@dataclass(frozen=True)
class Buckets:
    """Advice on message sizes for one kind of collective."""

    group: str
    kind: str
    latency_ns: int
    bytes_per_s: float  # what messages without end would reach
    mean_bytes: int  # now
    per_step: float  # messages now
    reached_ratio: float  # of the bandwidth, now
    bucket_bytes: int  # the smallest power of two that reaches NEAR_RATIO
    saving_ns_per_step: int  # of transfer time, hidden or not


def ceiling_bytes_per_s(device: str | None, ranks: int) -> float | None:
    """What the link gives in one direction; None between nodes or for an unknown device."""
    spec = find_spec(device)
    if ranks > ONE_NODE or spec is None or not spec.link_bytes_per_s:
        return None
    return spec.link_bytes_per_s / _WAYS


def buckets(kinds: tuple[KindOfCall, ...]) -> tuple[Buckets, ...]:
    """Advice for each group and kind whose sizes say enough, most gain first."""
    rows: dict[tuple[str, str], list[KindOfCall]] = {}
    for kind in kinds:
        if kind.bytes and kind.best_transfer_ns and kind.per_step:
            rows.setdefault((kind.group, kind.kind), []).append(kind)
    found = [b for b in (_advice(key, same) for key, same in rows.items()) if b is not None]
    return tuple(sorted(found, key=lambda b: -b.saving_ns_per_step))


def _advice(key: tuple[str, str], kinds: list[KindOfCall]) -> Buckets | None:
    size = np.array([k.bytes for k in kinds], float)
    time = np.array([k.best_transfer_ns for k in kinds], float)
    often = np.array([k.per_step for k in kinds])
    if size.max() < APART_RATIO * size.min():
        return None
    # Relative errors count: a microsecond matters for small messages only.
    design = np.column_stack((1 / time, size / time))
    latency, per_byte = np.linalg.lstsq(design, np.ones(len(size)), rcond=None)[0].tolist()
    if latency <= 0 or per_byte <= 0:
        return None
    wanted = NEAR_RATIO / (1 - NEAR_RATIO) * latency / per_byte
    bucket = 1 << int(np.ceil(np.log2(max(wanted, 1))))
    in_all = float((size * often).sum())
    fewer = float(often.sum()) - max(in_all / bucket, 1.0)
    mean = in_all / float(often.sum())
    return Buckets(
        group=key[0],
        kind=key[1],
        latency_ns=round(latency),
        bytes_per_s=1e9 / per_byte,
        mean_bytes=round(mean),
        per_step=float(often.sum()),
        reached_ratio=mean * per_byte / (latency + mean * per_byte),
        bucket_bytes=bucket,
        saving_ns_per_step=round(max(fewer, 0) * latency),
    )
