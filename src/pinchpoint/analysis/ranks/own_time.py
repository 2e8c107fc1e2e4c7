"""What each rank says on its own, side by side: steps, and how long each rank's own part was.

A rank's *own time* of a step is what it would take if it never had to wait for another rank: the
step window without exposed communication, or the time its host needed to issue the step where
that is longer (a host that runs ahead is not seen on a device that waits).
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import overload

import numpy as np

from pinchpoint.analysis.ranks.summary import (
    FirstInput,
    Kernel,
    RankPart,
    RankPlace,
    RankSummary,
    unpack,
)
from pinchpoint.analysis.statistics import mean_of_steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints, Mask

# ------------------------------------------------------------------------------------------------
# What is kept of each rank in memory: a row of numbers, about 100 bytes.


_NUMBERS = 12  # of a rank
_PARTS_OF_ONE = 1_000_000  # of a ratio, which is kept as an integer, two of them in one number
_NO_RATIO = _PARTS_OF_ONE + 1  # one more than any ratio: not known
_MATRICES = 6  # of ranks × steps
_NONE = -(1 << 62)  # inside the column only


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank."""

    rank: int
    world_size: int | None
    device: str | None
    backend: str | None
    truncated: bool
    contended: bool  # others took the cores that its host work needed
    refused: str | None
    events: int
    corrected_step_ns: int | None
    typical_step_ns: int | None
    timed_step_ns: int | None  # mean of those that it timed itself, without the profiler
    calls: int
    stride: int
    point_to_point: int
    begin_ns: int | None  # of its first step, on its own clock; None without steps
    end_ns: int | None  # of its last
    # Of the run as looked at: its main thread was on a core, or asleep of its own will
    own_ratio: float | None
    no_core_ratio: float | None  # ready to run, on no core


@dataclass
class RankTable(Sequence[RankFacts]):
    """All ranks in order; a rank becomes an object only where it is asked for."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    words: "array[int]" = field(default_factory=lambda: array("i"))
    text: dict[str | None, int] = field(default_factory=dict)

    def add(self, summary: RankSummary) -> None:
        """The next rank."""
        said = (
            summary.rank or 0,
            summary.world_size,
            summary.events,
            summary.corrected_step_ns,
            summary.typical_step_ns,
            summary.calls.in_all,
            summary.calls.stride * 4 + 2 * summary.contended + summary.truncated,
            summary.point_to_point,
            *(unpack(summary.steps.start_ns)[:1].tolist() or [None]),
            *(unpack(summary.steps.end_ns)[-1:].tolist() or [None]),
            _in_one(summary.own_ratio, summary.no_core_ratio),
            summary.timed_step_ns,
        )
        self.numbers.extend(_NONE if value is None else _fitting(value) for value in said)
        for word in (summary.device, summary.backend, summary.refused):
            self.words.append(self.text.setdefault(word, len(self.text)))

    def __len__(self) -> int:
        return len(self.words) // 3

    @overload
    def __getitem__(self, at: int) -> RankFacts: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[RankFacts]: ...

    def __getitem__(self, at: int | slice) -> RankFacts | Sequence[RankFacts]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        said = self.numbers[_NUMBERS * at : _NUMBERS * (at + 1)]
        known = [None if value == _NONE else value for value in said]
        rank, world, events, corrected, typical, calls, flags, pairs = known[:8]
        begin, end, ratios, timed = known[8:]
        own, no_core = _apart(ratios or 0)
        texts = list(self.text)
        device, backend, refused = (texts[i] for i in self.words[3 * at : 3 * at + 3])
        return RankFacts(
            rank=rank or 0,
            world_size=world,
            device=device,
            backend=backend,
            truncated=bool((flags or 0) & 1),
            contended=bool((flags or 0) & 2),
            refused=refused,
            events=events or 0,
            corrected_step_ns=corrected,
            typical_step_ns=typical,
            timed_step_ns=timed,
            calls=calls or 0,
            stride=(flags or 0) >> 2,
            point_to_point=pairs or 0,
            begin_ns=begin,
            end_ns=end,
            own_ratio=own,
            no_core_ratio=no_core,
        )

    def __iter__(self) -> Iterator[RankFacts]:
        return (self[i] for i in range(len(self)))


def _in_one(*ratios: float | None) -> int:
    first, second = (_NO_RATIO if r is None else round(r * _PARTS_OF_ONE) for r in ratios)
    return first * (_NO_RATIO + 1) + second


def _apart(both: int) -> tuple[float | None, float | None]:
    first, second = (
        None if part >= _NO_RATIO else part / _PARTS_OF_ONE for part in divmod(both, _NO_RATIO + 1)
    )
    return first, second


def _fitting(value: int) -> int:
    """A damaged record may say any number."""
    return min(max(value, _NONE + 1), -_NONE)


# ------------------------------------------------------------------------------------------------
# What each rank says on its own, side by side: steps, and how long each rank's own part was.


MOST_STEPS = 100  # of the job; the last ones
# Of ranks × steps: a dozen matrices of 8 bytes are kept, so that more ranks have fewer steps.
MOST_CELLS = 500_000
FEWEST_STEPS = 10  # whatever the number of ranks
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


@dataclass(frozen=True, eq=False)
class JobFacts:
    """All ranks; matrices have shape (ranks, steps), nan where a rank did not complete a step."""

    ranks: Sequence[RankFacts]
    step_numbers: Ints
    own_steps: Ints  # of each rank: as many as it completed, those that others lack included
    window_ns: Floats  # as long as the step was on that rank
    device_ns: Floats  # window without exposed communication
    host_ns: Floats  # what its host needed to issue the step
    recording_ns: Floats
    kernels: Floats
    worked_ns: Floats  # by the rank's device, transfers left out
    parts: tuple[RankPart, ...]
    parts_ns: Floats  # (ranks, parts): mean of the rank's complete steps
    kernel_samples: Mapping[int, tuple[Kernel, ...]]  # by position, of ranks that stand for all
    inputs: Mapping[int, tuple[FirstInput, ...]] = field(default_factory=dict)  # of the same ranks
    # By position, of the first ranks whose cores others took
    places: Mapping[int, tuple[RankPlace, ...]] = field(default_factory=dict)

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
        own: Floats = np.fmax(device, self.unrecorded_host_ns)
        return own

    @property
    def unrecorded_host_ns(self) -> Floats:
        """What its host would need to issue the step if nothing was recorded."""
        host: Floats = np.maximum(self.host_ns - self.recording_ns, 0)
        return host

    @property
    def work_ns(self) -> Floats:
        """What the device of each rank works in a mean step."""
        return np.asarray(self.parts_ns[:, [p.group == "device" for p in self.parts]].sum(axis=1))

    @property
    def usable(self) -> Mask:
        """Ranks that completed a step of the job."""
        known: Mask = ~np.isnan(self.device_ns)
        return np.asarray(known.any(axis=1), np.bool_)


@dataclass
class FactsOf:
    """Collects the facts: every rank is looked at once, and then added, in order of rank."""

    ranks: RankTable = field(default_factory=RankTable)
    completed: Counter[int] = field(default_factory=Counter)  # ranks by number of a step
    seen: int = 0
    with_steps: int = 0
    own_steps: list[int] = field(default_factory=list)
    numbers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    matrices: Floats = field(default_factory=lambda: np.zeros((_MATRICES, 0, 0)))
    parts: dict[str, RankPart] = field(default_factory=dict)
    means: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    samples: dict[int, tuple[Kernel, ...]] = field(default_factory=dict)
    inputs: dict[int, tuple[FirstInput, ...]] = field(default_factory=dict)
    sample_every: int = 1
    places: dict[int, tuple[RankPlace, ...]] = field(default_factory=dict)

    def look_at(self, summary: RankSummary) -> None:
        """Learn which steps the rank completed."""
        own = set(unpack(summary.steps.number)[complete_steps(summary)].tolist())
        self.completed.update(own)
        self.with_steps += len(own) > 0
        self.own_steps.append(len(own))
        self.seen += 1

    def add(self, summary: RankSummary) -> None:
        """The next rank."""
        row = len(self.ranks)
        if not row:
            self.numbers = self._common_steps()
            self.matrices = np.full((_MATRICES, self.seen, len(self.numbers)), np.nan)
            self.means = np.zeros((self.seen, 0))
        if row % self.sample_every == 0:
            self.samples[row], self.inputs[row] = summary.kernels, summary.inputs
        if len(self.samples) > MOST_SAMPLES:
            self.sample_every *= 2
            self.samples = {r: k for r, k in self.samples.items() if r % self.sample_every == 0}
            self.inputs = {r: i for r, i in self.inputs.items() if r in self.samples}
        if summary.places and len(self.places) < MOST_SAMPLES:
            self.places[row] = summary.places
        self.ranks.add(summary)
        own, columns = _rows(summary)
        at = np.searchsorted(self.numbers, own)
        known = at < len(self.numbers)
        known[known] = self.numbers[at[known]] == own[known]
        self.matrices[:, row, at[known]] = columns[:, known]
        self._add_means(row, summary)

    def _add_means(self, row: int, summary: RankSummary) -> None:
        for part in summary.parts:
            self.parts.setdefault(part.id, part)
        if more := len(self.parts) - self.means.shape[1]:
            self.means = np.column_stack((self.means, np.zeros((self.seen, more))))
        place = {id_: i for i, id_ in enumerate(self.parts)}
        for id_, ns in _means(summary).items():
            self.means[row, place[id_]] = ns

    def _common_steps(self) -> Ints:
        """Step numbers that enough ranks completed, two if possible; the last ones."""
        count = self.completed
        least = max(COMMON_RATIO * self.with_steps, min(2, max(count.values(), default=0)))
        most = min(max(MOST_CELLS // max(self.seen, 1), FEWEST_STEPS), MOST_STEPS)
        return np.array(sorted(n for n, c in count.items() if c >= least)[-most:], np.int64)

    def done(self) -> JobFacts:
        """Everything side by side."""
        window, device, host, recording, kernels, worked = self.matrices
        return JobFacts(
            ranks=self.ranks,
            step_numbers=self.numbers,
            own_steps=np.array(self.own_steps, np.int64),
            window_ns=window,
            device_ns=device,
            host_ns=host,
            recording_ns=recording,
            kernels=kernels,
            worked_ns=worked,
            parts=tuple(self.parts.values()),
            parts_ns=self.means,
            kernel_samples=self.samples,
            inputs=self.inputs,
            places=self.places,
        )


def complete_steps(summary: RankSummary) -> Mask:
    """Which steps count: the complete ones, or all where none is."""
    complete = unpack(summary.steps.complete) > 0
    return complete if complete.any() else np.ones(len(complete), np.bool_)


def _rows(summary: RankSummary) -> tuple[Ints, Floats]:
    """Numbers of the rank's steps, and what is known of each: shape (matrices, steps)."""
    steps = summary.steps
    window = unpack(steps.end_ns) - unpack(steps.start_ns)
    shared = np.array([p.id in BETWEEN_RANKS for p in summary.parts], np.bool_)
    waiting = summary.parts_by_step()[:, shared].sum(axis=1) if shared.any() else 0 * window
    host = unpack(steps.host_ns)
    chosen = complete_steps(summary)
    recording, kernels = unpack(steps.recording_ns), unpack(steps.kernels)
    device = np.array([p.group == "device" for p in summary.parts], np.bool_)
    worked = summary.parts_by_step()[:, device].sum(axis=1) if device.any() else 0 * window
    columns = (window, window - waiting, host, recording, kernels, worked)
    return unpack(steps.number)[chosen], np.array(columns, float)[:, chosen]


def _means(summary: RankSummary) -> dict[str, float]:
    chosen = complete_steps(summary)
    if not chosen.any():
        return {}
    mean = summary.parts_by_step()[chosen].mean(axis=0).tolist()
    return {part.id: ns for part, ns in zip(summary.parts, mean, strict=True)}


HOST_WAITING = RankPart(
    id=GapKind.HOST_COLLECTIVE.id.replace("idle-", "host-"),
    label=GapKind.HOST_COLLECTIVE.label,
    group="host",
)


def without_host_waiting(facts: JobFacts, late_ns: Floats) -> JobFacts:
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


def _with_part(facts: JobFacts, part: RankPart) -> tuple[tuple[RankPart, ...], Floats]:
    if any(p.id == part.id for p in facts.parts):
        return facts.parts, facts.parts_ns.copy()
    return (*facts.parts, part), np.column_stack((facts.parts_ns, np.zeros(len(facts.ranks))))
