"""What each rank says on its own, side by side: steps, and how long each rank's own part was.

A rank's *own time* of a step is what it would take if it never had to wait for another rank: the
step window without exposed communication, or the time its host needed to issue the step where
that is longer (a host that runs ahead is not seen on a device that waits).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.ranks.known import mean_of_steps
from pinchpoint.analysis.ranks.summary import Kernel, Part, RankSummary, unpack

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_STEPS = 100  # of the job; the last ones
MOST_SAMPLES = 128  # ranks whose kernels are kept to compare late ranks with
COMMON_RATIO = 0.5  # a step of the job was completed by at least this share of ranks

# Parts of a breakdown in which the rank may have waited for another one.
BETWEEN_RANKS = (
    "exposed-communication",
    GapKind.HOST_COLLECTIVE.id,
    GapKind.HOST_COLLECTIVE.id.replace("idle-", "host-"),
)
# Idle kinds that shrink when nothing is recorded: what the host does, event by event.
_GROWS_WITH_RECORDING = {
    kind.id
    for kind in (
        GapKind.DISPATCH,
        GapKind.PYTHON,
        GapKind.GRAPH_LAUNCH,
        GapKind.COPY_CALL,
        GapKind.AUTOGRAD,
        GapKind.AFTER_SYNC,
        GapKind.PROFILER,
        GapKind.UNRECORDED,
    )
}
RECORDED_PARTS = _GROWS_WITH_RECORDING | {
    p.replace("idle-", "host-") for p in _GROWS_WITH_RECORDING
}


@dataclass(frozen=True)
class RankFacts:
    """What is kept of one rank in memory."""

    rank: int
    world_size: int | None
    device: str | None
    backend: str | None
    truncated: bool
    refused: str | None
    events: int
    corrected_step_ns: int | None
    typical_step_ns: int | None
    calls: int
    stride: int
    point_to_point: int


@dataclass(frozen=True, eq=False)
class Facts:
    """All ranks; matrices have shape (ranks, steps), nan where a rank did not complete a step."""

    ranks: tuple[RankFacts, ...]
    step_numbers: Ints
    window_ns: Floats  # as long as the step was on that rank
    device_ns: Floats  # window without exposed communication
    host_ns: Floats  # what its host needed to issue the step
    recording_ns: Floats
    kernels: Floats
    parts: tuple[Part, ...]
    parts_ns: Floats  # (ranks, parts): mean of the rank's complete steps
    kernel_samples: Mapping[int, tuple[Kernel, ...]]  # by position, of ranks that stand for all

    @property
    def own_ns(self) -> Floats:
        """Own time of each rank and step."""
        return np.fmax(self.device_ns, self.host_ns)

    @property
    def unrecorded_ns(self) -> Floats:
        """Own time as it would be if nothing was recorded."""
        cost = [
            max((r.typical_step_ns or 0) - (r.corrected_step_ns or r.typical_step_ns or 0), 0)
            for r in self.ranks
        ]
        device = np.maximum(self.device_ns - np.array(cost, float).reshape(-1, 1), 0)
        host = np.maximum(self.host_ns - self.recording_ns, 0)
        own: Floats = np.fmax(device, host)
        return own

    @property
    def usable(self) -> Mask:
        """Ranks that completed a step of the job."""
        known: Mask = ~np.isnan(self.device_ns)
        return np.asarray(known.any(axis=1), np.bool_)


@dataclass
class _Rows:
    """One rank's steps before the job's are known."""

    numbers: Ints
    columns: Floats  # (5, steps)


@dataclass
class FactsOf:
    """Collects the facts, one rank at a time, in order of rank."""

    ranks: list[RankFacts] = field(default_factory=list)
    steps: list[_Rows] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    means: list[dict[str, float]] = field(default_factory=list)
    samples: dict[int, tuple[Kernel, ...]] = field(default_factory=dict)
    sample_every: int = 1

    def add(self, summary: RankSummary) -> None:
        """The next rank."""
        if len(self.ranks) % self.sample_every == 0:
            self.samples[len(self.ranks)] = summary.kernels
        if len(self.samples) > MOST_SAMPLES:
            self.sample_every *= 2
            self.samples = {r: k for r, k in self.samples.items() if r % self.sample_every == 0}
        self.ranks.append(_rank_facts(summary))
        self.steps.append(_rows(summary))
        for part in summary.parts:
            self.parts.setdefault(part.id, part)
        self.means.append(_means(summary))

    def done(self) -> Facts:
        """Everything side by side."""
        numbers = _common_steps(self.steps)
        matrices = np.full((5, len(self.ranks), len(numbers)), np.nan)
        for row, rank in enumerate(self.steps):
            at = np.searchsorted(numbers, rank.numbers)
            known = at < len(numbers)
            known[known] = numbers[at[known]] == rank.numbers[known]
            matrices[:, row, at[known]] = rank.columns[:, known]
        window, device, host, recording, kernels = matrices
        parts = tuple(self.parts.values())
        table = [[means.get(p.id, 0.0) for p in parts] for means in self.means]
        return Facts(
            ranks=tuple(self.ranks),
            step_numbers=numbers,
            window_ns=window,
            device_ns=device,
            host_ns=host,
            recording_ns=recording,
            kernels=kernels,
            parts=parts,
            parts_ns=np.array(table, float).reshape(len(self.ranks), len(parts)),
            kernel_samples=self.samples,
        )


def _rank_facts(summary: RankSummary) -> RankFacts:
    return RankFacts(
        rank=summary.rank or 0,
        world_size=summary.world_size,
        device=summary.device,
        backend=summary.backend,
        truncated=summary.truncated,
        refused=summary.refused,
        events=summary.events,
        corrected_step_ns=summary.corrected_step_ns,
        typical_step_ns=summary.typical_step_ns,
        calls=summary.calls.in_all,
        stride=summary.calls.stride,
        point_to_point=summary.point_to_point,
    )


def complete_steps(summary: RankSummary) -> Mask:
    """Which steps count: the complete ones, or all where none is."""
    complete = unpack(summary.steps.complete) > 0
    return complete if complete.any() else np.ones(len(complete), np.bool_)


def _rows(summary: RankSummary) -> _Rows:
    steps = summary.steps
    window = unpack(steps.end_ns) - unpack(steps.start_ns)
    shared = np.array([p.id in BETWEEN_RANKS for p in summary.parts], np.bool_)
    waiting = summary.parts_by_step()[:, shared].sum(axis=1) if shared.any() else 0 * window
    host = unpack(steps.host_ns)
    chosen = complete_steps(summary)
    columns = (window, window - waiting, host, unpack(steps.recording_ns), unpack(steps.kernels))
    return _Rows(unpack(steps.number)[chosen], np.array(columns, float)[:, chosen])


def _means(summary: RankSummary) -> dict[str, float]:
    chosen = complete_steps(summary)
    if not chosen.any():
        return {}
    mean = summary.parts_by_step()[chosen].mean(axis=0).tolist()
    return {part.id: ns for part, ns in zip(summary.parts, mean, strict=True)}


def _common_steps(ranks: list[_Rows]) -> Ints:
    """Step numbers that enough ranks completed, two if possible; the last ``MOST_STEPS``."""
    count: Counter[int] = Counter()
    for rank in ranks:
        count.update(set(rank.numbers.tolist()))
    with_steps = sum(len(rank.numbers) > 0 for rank in ranks)
    least = max(COMMON_RATIO * with_steps, min(2, max(count.values(), default=0)))
    return np.array(sorted(n for n, c in count.items() if c >= least)[-MOST_STEPS:], np.int64)


HOST_WAITING = Part(
    id=GapKind.HOST_COLLECTIVE.id.replace("idle-", "host-"),
    label=GapKind.HOST_COLLECTIVE.label,
    group="host",
)


def without_host_waiting(facts: Facts, late_ns: Floats) -> Facts:
    """Take waiting for other ranks out of the own time of ranks without a device.

    Their threads wait inside whatever they were doing, which looks like work of its own.
    ``late_ns`` is how long each rank waited in each step.
    """
    hosts = np.array([r.device is None for r in facts.ranks], np.bool_)
    if not hosts.any():
        return facts
    waited = np.where(hosts[:, None], np.fmin(late_ns, facts.device_ns), 0)
    parts, table = _with_part(facts, HOST_WAITING)
    to = next(i for i, p in enumerate(parts) if p.id == HOST_WAITING.id)
    mean_ns = np.nan_to_num(mean_of_steps(np.where(np.isnan(facts.window_ns), np.nan, waited)))
    for rank in np.flatnonzero(hosts).tolist():
        largest = int(np.argmax(table[rank]))
        moved = min(mean_ns[rank], table[rank, largest])
        table[rank, largest] -= moved
        table[rank, to] += moved
    return replace(facts, device_ns=facts.device_ns - waited, parts=parts, parts_ns=table)


def _with_part(facts: Facts, part: Part) -> tuple[tuple[Part, ...], Floats]:
    if any(p.id == part.id for p in facts.parts):
        return facts.parts, facts.parts_ns.copy()
    return (*facts.parts, part), np.column_stack((facts.parts_ns, np.zeros(len(facts.ranks))))
