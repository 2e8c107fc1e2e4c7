"""What a late rank was doing: where its own time is longer than that of its peers."""

import numpy as np

from pinchpoint.analysis.ranks.inputs import LargerInput, larger_input, uneven_input
from pinchpoint.analysis.ranks.own_time import BETWEEN_RANKS, JobFacts
from pinchpoint.analysis.ranks.summary import DEVICE, Cause, Kernel, RankSummary
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

LEAST_MORE_RATIO = 1.02  # below it, counts differ for no reason worth a word
MORE_RATIO = 1.05  # kernels launched, or blocks in them, beyond which a rank has more work
SLOWER_RATIO = 1.03  # the same kernel with the same blocks: jitter stays below it
ALL_KERNELS_RATIO = 0.8  # of kernel time: slower clocks touch nearly every kernel
MOST_NAMED = 4  # what a sentence about one rank can hold
LEAST_RATIO = 0.05  # of the whole excess: less is no explanation

# The words of the question: what was it doing?
SUBJECTS = {
    GapKind.DATA: "data",
    GapKind.SYNC: "sync",
    GapKind.AFTER_SYNC: "host work",  # the peers synchronise too, and do less afterwards
    GapKind.GC: "garbage collection",
    GapKind.CHECKPOINT: "checkpoint",
    GapKind.LOGGING: "logging",
    GapKind.COMPILE: "compiling",
    GapKind.CODE_LOAD: "loading code",
    GapKind.MALLOC: "device memory",
    GapKind.COPY_CALL: "copies",
    GapKind.DISPATCH: "host work",
    GapKind.PYTHON: "host work",
    GapKind.GRAPH_LAUNCH: "host work",
    GapKind.HOST_COMPUTE: "host work",
    GapKind.AUTOGRAD: "host work",
    GapKind.WAIT: "waiting on the host",
    GapKind.UNRECORDED: "host stopped or not recorded",
}
MORE_WORK, SLOW_DEVICE, SLOW_KERNEL = "more work", "slow device", "slow kernel"
UNEVEN_INPUTS = "uneven inputs"  # the more work that a share of the data makes
WORK_SUBJECTS = (MORE_WORK, UNEVEN_INPUTS)  # sharing it out evenly makes the others longer
DEVICE_SUBJECTS = (*WORK_SUBJECTS, SLOW_DEVICE, SLOW_KERNEL)
OTHER = "other"


@dataclass(frozen=True)
class LateCause:
    """One reason for a rank's lateness."""

    subject: str  # data, sync, more work, slow device, …
    what: str  # in words
    ns_per_step: int  # beyond the peers, in the steps in which it was late
    place: Cause | None = None  # where in the program, and when in the rank's recording
    slower_ratio: float | None = None  # of a slow device: its kernels' time to that of its peers'


@dataclass(frozen=True)
class PeerComparison:
    """A rank's kernels beside those of its peers; None where they cannot be compared."""

    kernels_ratio: float | None  # kernels a step
    blocks_ratio: float | None  # of the same kernels
    slower_ratio: float | None  # time of the same kernel with the same blocks
    slower_share: float | None  # of the compared kernel time that is slower by ``SLOWER_RATIO``
    slowest: str | None  # the kernel that lost most
    most_at: Cause | None = None  # where the kernel is launched that takes most beyond its peers'


def late_causes(
    facts: JobFacts,
    rank: int,
    summary: RankSummary,
    late: Floats,
    peers: Ints,
    *,
    always: bool = True,
) -> tuple[LateCause, ...]:
    """Reasons, most time first. ``late`` are the rank's parts in the steps in which it was late.

    ``always``: it is late in most steps, so that its means tell why.
    """
    usual = np.median(facts.parts_ns[peers], axis=0)
    more = {p.id: m for p, m in zip(facts.parts, (late - usual).tolist(), strict=True)}
    groups = {p.id: p for p in facts.parts if p.id not in BETWEEN_RANKS}
    on_device = sum(more[i] for i, p in groups.items() if p.group == "device")
    found = []
    if on_device > 0:
        work = device_work(facts, rank, summary.kernels, peers)
        subject, what = _on_device(work)
        ratio = work.slower_ratio if subject == SLOW_DEVICE else None
        at = work.most_at
        given = _given_more(facts, summary, peers, always=always)
        if given is not None:
            subject, what, at = UNEVEN_INPUTS, share_in_words(given), _where_it_came(given, at)
            ratio = None
        found.append(LateCause(subject, what, round(on_device), at, ratio))
    causes = summary.causes
    for part_id, part in groups.items():
        if part.group != "device" and more[part_id] > 0:
            place = next((c for c in causes if c.part == part_id), None)
            found.append(_off_device(part_id, part.label, more[part_id], place))
    found.sort(key=lambda d: -d.ns_per_step)
    enough = LEAST_RATIO * sum(d.ns_per_step for d in found)
    return tuple(d for d in found if d.ns_per_step >= enough)[:MOST_NAMED]


def _given_more(
    facts: JobFacts, summary: RankSummary, peers: Ints, *, always: bool
) -> LargerInput | None:
    """The input of which the rank has more; None where shapes say nothing."""
    theirs = [facts.inputs.get(p, ()) for p in peers.tolist()]
    given = larger_input(summary.inputs, theirs) if always else None
    return given or (None if always else uneven_input([summary.inputs, *theirs]))


def share_in_words(given: LargerInput) -> str:
    """What a rank has more of, against its peers."""
    sizes = f"{given.mine:,.0f} against {given.theirs:,.0f}"
    first = f"first in {given.at.operator}"
    if given.by_turns:
        return (
            f"batches of unequal size in the same step: the largest has {given.ratio:.2f} times the"
            f" mean of the ranks, {first}"
        )
    along = given.dimension is not None and (given.dimension > 0 or len(given.at.dims) == 1)
    size = "as long" if along else "as large"
    return f"batches {given.ratio:.2f} times {size} as its peers' ({sizes}, {first})"


def _where_it_came(given: LargerInput, most: Cause | None) -> Cause:
    at = given.at
    return Cause(
        part=DEVICE,
        ns_per_step=most.ns_per_step if most else 0,
        at_ns=most.at_ns if most else 0,
        file=at.file,
        line=at.line,
        function=at.function,
        operator=at.operator,
    )


def _off_device(part_id: str, label: str, ns: float, place: Cause | None) -> LateCause:
    kind = next((k for k in GapKind if part_id.split("-", 1)[-1] == k.id.split("-", 1)[-1]), None)
    after_sync = kind == GapKind.AFTER_SYNC
    return LateCause(
        subject=SUBJECTS.get(kind, OTHER) if kind is not None else OTHER,
        what="host work after a synchronisation" if after_sync else label.removeprefix("idle: "),
        ns_per_step=round(ns),
        place=place,
    )


def _on_device(work: PeerComparison) -> tuple[str, str]:
    if work.kernels_ratio is not None and _is_more(work.kernels_ratio, work):
        return MORE_WORK, f"{work.kernels_ratio:.2f} times as many kernels as its peers"
    if work.blocks_ratio is not None and _is_more(work.blocks_ratio, work):
        return MORE_WORK, f"larger kernels than its peers: {work.blocks_ratio:.2f} times the blocks"
    if work.slower_ratio is None or work.slower_share is None:
        return OTHER, "more device time than its peers"
    if work.slower_share >= ALL_KERNELS_RATIO and work.slower_ratio >= SLOWER_RATIO:
        times = f"{work.slower_ratio:.2f}"
        return SLOW_DEVICE, f"the same kernels take {times} times as long: clocks, or another model"
    return SLOW_KERNEL, f"kernels that are slower here, most of all {work.slowest}"


def _is_more(ratio: float, work: PeerComparison) -> bool:
    """Whether a rank's work explains its device time better than its kernels' speed does."""
    speed = max(work.slower_ratio or 1.0, 1.0)
    return ratio >= MORE_RATIO or ratio - 1 > max(speed - 1, LEAST_MORE_RATIO - 1)


def device_work(
    facts: JobFacts, rank: int, kernels: tuple[Kernel, ...], peers: Ints
) -> PeerComparison:
    """Number, size and speed of the rank's kernels against the median of its peers."""
    count = _typical(facts.kernels[rank])
    counts = [c for c in (_typical(facts.kernels[p]) for p in peers.tolist()) if c]
    kernels_ratio = count / float(np.median(counts)) if count and counts else None
    theirs: dict[str, list[Kernel]] = {}
    samples = [facts.kernel_samples[p] for p in peers.tolist() if p in facts.kernel_samples]
    for sample in samples or [k for r, k in facts.kernel_samples.items() if r != rank]:
        for kernel in sample:
            theirs.setdefault(kernel.name, []).append(kernel)
    rows: list[tuple[int, float, float, str]] = []  # time, its ratio, that of blocks, name
    more_ns, most_at = 0.0, None
    for kernel in kernels:
        same = theirs.get(kernel.name, [])
        beyond = kernel.total_ns - (float(np.median([k.total_ns for k in same])) if same else 0.0)
        if beyond > more_ns:
            more_ns, most_at = beyond, kernel.place
        if len(same) * 2 >= max(len(samples), 1):
            mean = float(np.median([k.total_ns / k.count for k in same]))
            blocks = [k.blocks for k in same if k.blocks]
            usual = float(np.median(blocks)) if blocks else np.nan
            longer = kernel.total_ns / kernel.count / max(mean, 1)
            rows.append((kernel.total_ns, longer, (kernel.blocks or np.nan) / usual, kernel.name))
    if not rows:
        return PeerComparison(kernels_ratio, None, None, None, None, most_at)
    total = np.array([row[0] for row in rows], float)
    time = np.array([row[1] for row in rows], float)
    size = np.array([row[2] for row in rows], float)
    known = ~np.isnan(size)
    alike = ~known | (np.abs(size - 1) < MORE_RATIO - 1)
    lost = total * (1 - 1 / np.maximum(time, 1e-9))
    return PeerComparison(
        kernels_ratio=kernels_ratio,
        blocks_ratio=_more_blocks(size[known], total[known]) if known.any() else None,
        slower_ratio=float(np.average(time[alike], weights=total[alike])) if alike.any() else None,
        slower_share=(
            float(total[alike & (time >= SLOWER_RATIO)].sum() / total[alike].sum())
            if alike.any()
            else None
        ),
        slowest=rows[int(np.argmax(lost))][3],
        most_at=most_at,
    )


def _more_blocks(ratios: Floats, weights: Floats) -> float:
    """The mean of the ratios; where that is more work, the middle one of those that are larger.

    Persistent kernels have as many blocks as the device has units, whatever they are given. A
    kernel of one block in one run and a thousand in another says nothing about the batch.
    """
    mean = float(np.average(ratios, weights=weights))
    more = ratios >= MORE_RATIO
    if mean < MORE_RATIO or not more.any():
        return mean
    order = np.argsort(ratios[more], kind="stable")
    upto = np.cumsum(weights[more][order])
    return float(ratios[more][order[int(np.searchsorted(upto, upto[-1] / 2))]])


def _typical(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0
