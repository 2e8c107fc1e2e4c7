"""What holds a profiled launch back, by its counters.

Each check answers one question. Thresholds are those of NVIDIA's own rules (Nsight Compute 2025.3)
unless a comment says otherwise; where NVIDIA's rule is in the recording and the metrics behind it
are not, the rule's word is taken.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pinchpoint.analysis.device.kernel_names import Category, category_of_kernel_name
from pinchpoint.analysis.limits.roofline import (
    BUSY_PERCENT,
    SOL_UNDECIDED_POINTS,
    Point,
    launch_point,
)
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.counter_facts import KernelFacts
    from pinchpoint.analysis.limits.counters import KernelLaunch


NEAR_LIMIT_PERCENT = 80.0  # SpeedOfLight: beyond it only other work or another unit helps
OCCUPANCY_LOW_PERCENT = 80.0  # theoretical; TheoreticalOccupancy
OCCUPANCY_POOR_PERCENT = 25.0  # achieved; a common teaching value for "poor"
ISSUE_LOW = 0.6  # instructions a cycle and scheduler; IssueSlotUtilization
STALL_RATIO = 0.30  # of the time between two instructions of a warp; CPIStall
STALL_ISSUE_HIGH = 0.8  # CPIStall keeps quiet above it: warps stall, but enough others run
EXCESS_SECTORS_RATIO = 0.10  # UncoalescedGlobalAccess speaks at any; a tenth is worth reading
BANK_CONFLICT_RATIO = 0.10  # SharedMemoryConflicts
TAIL_RATIO = 0.10  # time lost to a last wave that is not full; NVIDIA: 1 / (1 + full waves) >= 20 %
TAIL_NVIDIA_RATIO = 0.20  # the 20 % above
SPILL_PERCENT = 5.0  # requests to local memory that spilling causes, of all
L2_HIT_POOR_PERCENT = 20.0  # for work that reuses its data
TENSOR_IDLE_PERCENT = 5.0  # as pattern collections for tuning kernels have it, not NVIDIA
TF32_REACHED_RATIO = 0.8  # TF32 products reach this much less of their peak than float32 ones
FP64_BUSY_PERCENT = 15.0  # SOLFPRoofline, while fp32 is below 60
CLOCK_LOW_RATIO = 0.95  # two launches more than 5 % apart are not comparable
CLOCK_LEAST_NS = 20_000  # shorter launches do not show their clock reliably

_PRODUCTS = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)

# What a warp waits for, by the reasons that ncu counts, and what to do about it.
STALLS = {
    "long_scoreboard": "Warps wait for L2 or device memory: coalesce, prefetch, raise occupancy",
    "lg_throttle": "The queue of global memory instructions is full: use wider loads (float4)",
    "short_scoreboard": "Warps wait for shared memory or special functions: avoid bank conflicts",
    "mio_throttle": "The queue of shared memory and special functions is full: use wider accesses",
    "barrier": "Warps wait for others at a barrier: smaller blocks, more even work",
    "gmma": "Warps wait for the tensor cores of their group: deepen the pipeline of loads",
    "math_pipe_throttle": "An arithmetic pipe is full: fewer instructions of its kind",
    "tex_throttle": "The texture queue is full: fewer or wider texture accesses",
    "membar": "Warps wait for memory fences: fewer of them, or of a smaller scope",
    "no_instruction": "Warps wait for instructions: smaller code, or fewer very short launches",
    "imc_miss": "Constants are not cached: use fewer, or access them together",
    "drain": "Warps end while their stores are written: coalesce the stores",
    "wait": "Warps wait out fixed latencies: more independent instructions a thread",
    "branch_resolving": "Warps wait for branch targets: fewer branches",
    "sleeping": "Warps sleep on purpose",
}
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "drain")
SYNC_STALLS = ("barrier", "membar")


class IssueKind(StrEnum):
    """The kinds of issues, each by the id of the rule that explains it."""

    TOO_SMALL = "kernel-too-small"
    LATENCY_BOUND = "kernel-latency-bound"
    MEMORY_BOUND = "kernel-memory-bound"
    COMPUTE_BOUND = "kernel-compute-bound"
    LOW_OCCUPANCY = "kernel-low-occupancy"
    TAIL_EFFECT = "kernel-tail-effect"
    UNCOALESCED = "kernel-uncoalesced"
    BANK_CONFLICTS = "kernel-bank-conflicts"
    SPILLS = "kernel-spills"
    L2_MISSES = "kernel-l2-misses"
    WARP_STALLS = "kernel-warp-stalls"
    TENSOR_IDLE = "kernel-tensor-idle"
    FP64 = "kernel-fp64"
    LOW_CLOCK = "kernel-low-clock"


@dataclass(frozen=True)
class Issue:
    """One thing that a launch suffers from, or is bound by."""

    id: IssueKind
    text: str  # for a table: a few words
    value: float
    unit: str
    won_ratio: float | None  # of the launch's time, at most; None where nobody can say
    reason: str | None = None  # what warps wait for, by the name that ncu has for it


@dataclass(frozen=True, eq=False)
class Examined:
    """One launch with everything that is known of it."""

    launch: "KernelLaunch"
    facts: "KernelFacts"
    point: Point
    issues: tuple[Issue, ...]


class _Case(NamedTuple):
    launch: "KernelLaunch"
    facts: "KernelFacts"
    point: Point
    highest_clock_hz: float | None
    tf32_speedup: float | None  # of a product in float32

    @property
    def most_busy_percent(self) -> float | None:
        seen = [p for p in (self.facts.compute_percent, self.facts.memory_percent) if p is not None]
        return max(seen, default=None)

    @property
    def near_limit(self) -> bool:
        return (self.most_busy_percent or 0.0) >= NEAR_LIMIT_PERCENT

    def rule(self, name: str) -> float | None:
        """The speed-up in percent that NVIDIA's rule of this name speaks of; 0 if it gives none."""
        for said in self.launch.rules:
            if said.rule == name and said.kind in ("OPT", "WRN"):
                return said.speedup_percent or 0.0
        return None


@once_per_trace
def examined_launches(trace: Trace) -> tuple[Examined, ...]:
    """Every profiled launch with its issues, in the order of the file."""
    from pinchpoint.analysis.limits.counters import kernel_launches

    launches = kernel_launches(trace)
    from pinchpoint.analysis.limits.counter_facts import kernel_facts

    facts = [kernel_facts(launch) for launch in launches]
    clocks = [
        f.sm_clock_hz
        for f in facts
        if f.sm_clock_hz is not None and (f.duration_ns or 0) >= CLOCK_LEAST_NS
    ]
    highest, speedup = max(clocks, default=None), _tf32_speedup(trace)
    found = []
    for launch, fact in zip(launches, facts, strict=True):
        case = _Case(launch, fact, launch_point(trace, launch), highest, speedup)
        issues = tuple(i for check in CHECKS for i in check(case))
        found.append(Examined(launch, fact, case.point, issues))
    return tuple(found)


def _tf32_speedup(trace: Trace) -> float | None:
    """How much faster the tensor cores multiply float32; None where they cannot or nobody knows."""
    known = roofs(trace)
    if known is None or not {"fp32", "tf32"} <= known.compute.keys():
        return None
    return TF32_REACHED_RATIO * known.compute["tf32"].per_s / known.compute["fp32"].per_s


def _too_small(case: _Case) -> Iterator[Issue]:
    blocks, units = case.facts.blocks, case.facts.multiprocessors
    if blocks is not None and units and blocks < units:
        counted = "1 block" if blocks == 1 else f"{blocks:.0f} blocks"
        text = f"{counted} for {units:.0f} multiprocessors"
        yield Issue(IssueKind.TOO_SMALL, text, blocks, "blocks", (units - blocks) / units)


def _latency_bound(case: _Case) -> Iterator[Issue]:
    most = case.most_busy_percent
    if most is None or most >= BUSY_PERCENT or next(_too_small(case), None) is not None:
        return
    text = f"neither compute nor memory above {most:.0f} %"
    yield Issue(IssueKind.LATENCY_BOUND, text, most, "%", 1 - most / 100)


def _memory_bound(case: _Case) -> Iterator[Issue]:
    busy = case.facts.memory_percent
    if case.point.bound == "memory" and busy is not None and busy >= BUSY_PERCENT:
        yield Issue(IssueKind.MEMORY_BOUND, f"memory {busy:.0f} % busy", busy, "%", 1 - busy / 100)


def _compute_bound(case: _Case) -> Iterator[Issue]:
    """Also work below the machine balance whose instructions fill the cores and not the memory."""
    busy, memory = case.facts.compute_percent, case.facts.memory_percent or 0.0
    if busy is None or busy < BUSY_PERCENT:
        return
    if case.point.bound == "compute":
        yield Issue(
            IssueKind.COMPUTE_BOUND, f"compute {busy:.0f} % busy", busy, "%", 1 - busy / 100
        )
    elif memory < BUSY_PERCENT and busy - memory >= SOL_UNDECIDED_POINTS:
        text = f"instructions keep it {busy:.0f} % busy, memory only {memory:.0f} %"
        yield Issue(IssueKind.COMPUTE_BOUND, text, busy, "%", 1 - busy / 100)


def _low_occupancy(case: _Case) -> Iterator[Issue]:
    """Few warps matter only where the schedulers starve; products run well with few."""
    facts = case.facts
    reached, possible = facts.occupancy_percent, facts.theoretical_occupancy_percent
    if case.near_limit or next(_too_small(case), None) is not None:
        return
    if facts.issue_per_cycle is not None and facts.issue_per_cycle >= ISSUE_LOW:
        return
    limited = possible is not None and possible < OCCUPANCY_LOW_PERCENT
    poor = reached is not None and reached < OCCUPANCY_POOR_PERCENT
    if not limited and not poor:
        return
    value = reached if reached is not None else possible
    assert value is not None
    cause = f", limited by {' and '.join(facts.limiters)}" if limited and facts.limiters else ""
    yield Issue(IssueKind.LOW_OCCUPANCY, f"occupancy {value:.0f} %{cause}", value, "%", None)


def _tail(case: _Case) -> Iterator[Issue]:
    waves = case.facts.waves
    if waves is None or waves < 1:
        return
    whole = int(waves)
    lost = 1 - waves / (whole + 1) if waves > whole else 0.0
    if lost >= TAIL_RATIO and 1 / (1 + whole) >= TAIL_NVIDIA_RATIO:
        text = f"{waves:.2f} waves: the last one is not full"
        yield Issue(IssueKind.TAIL_EFFECT, text, waves, "waves", lost)


def _uncoalesced(case: _Case) -> Iterator[Issue]:
    excess = case.facts.excess_sectors_ratio
    if excess is None and (percent := case.rule("UncoalescedGlobalAccess")) is not None:
        text = "NVIDIA's rule finds uncoalesced accesses"
        yield Issue(IssueKind.UNCOALESCED, text, percent, "%", percent / 100)
    elif excess is not None and excess > EXCESS_SECTORS_RATIO:
        text = f"{100 * excess:.0f} % of the sectors are not needed"
        yield Issue(IssueKind.UNCOALESCED, text, excess, "ratio", _of_memory_time(case, excess))


def _of_memory_time(case: _Case, ratio: float) -> float:
    """A share of the memory traffic is that share of the time only while memory is the limit."""
    busiest = [case.facts.memory_percent, case.facts.l2_percent, case.facts.l1_percent]
    busy = max((p for p in busiest if p is not None), default=100.0)
    return ratio * min(busy, 100.0) / 100


def _bank_conflicts(case: _Case) -> Iterator[Issue]:
    ratio = case.facts.bank_conflict_ratio
    if ratio is None and (percent := case.rule("SharedMemoryConflicts")) is not None:
        text = "NVIDIA's rule finds bank conflicts"
        yield Issue(IssueKind.BANK_CONFLICTS, text, percent, "%", percent / 100)
    elif ratio is not None and ratio >= BANK_CONFLICT_RATIO:
        busy = (case.facts.l1_percent or 100.0) / 100
        text = f"{100 * ratio:.0f} % of shared-memory wavefronts are conflicts"
        yield Issue(IssueKind.BANK_CONFLICTS, text, ratio, "ratio", ratio * min(busy, 1.0))


def _spills(case: _Case) -> Iterator[Issue]:
    percent = case.launch.get("derived__local_spilling_requests_pct")
    requests = case.facts.spill_requests
    if percent is not None:
        if percent > SPILL_PERCENT:
            text = f"{percent:.0f} % of local requests are spills"
            yield Issue(IssueKind.SPILLS, text, percent, "%", None)
    elif requests:
        text = f"{requests:.0f} spilling instructions"
        yield Issue(IssueKind.SPILLS, text, requests, "instructions", None)


def _l2_misses(case: _Case) -> Iterator[Issue]:
    """Work that passes once over its data cannot hit; products reuse theirs."""
    hit, busy = case.facts.l2_hit_percent, case.facts.dram_percent
    if hit is None or busy is None or hit >= L2_HIT_POOR_PERCENT or busy < BUSY_PERCENT:
        return
    if category_of_kernel_name(case.launch.name) in _PRODUCTS:
        text = f"L2 hit rate {hit:.0f} % in a product"
        yield Issue(IssueKind.L2_MISSES, text, hit, "%", None)


def _stalls(case: _Case) -> Iterator[Issue]:
    """The reason that a warp waits for most, unless enough others run or a limit is reached."""
    facts = case.facts
    if not facts.stalls or facts.warp_latency is None or case.near_limit:
        return
    if facts.issue_per_cycle is not None and facts.issue_per_cycle >= STALL_ISSUE_HIGH:
        return
    for reason in facts.stalls:
        if reason in ("selected", "not_selected"):
            continue
        ratio = facts.stall_ratio(reason) or 0.0
        if ratio > STALL_RATIO:
            text = f"{100 * ratio:.0f} % of a warp's time waits ({reason})"
            yield Issue(IssueKind.WARP_STALLS, text, ratio, f"ratio:{reason}", None, reason)
        return


def _tensor_idle(case: _Case) -> Iterator[Issue]:
    facts = case.facts
    if facts.tensor_percent is None or facts.tensor_percent >= TENSOR_IDLE_PERCENT:
        return
    busy = facts.compute_percent
    if busy is None or busy < BUSY_PERCENT:
        return
    if category_of_kernel_name(case.launch.name) in _PRODUCTS:
        text = f"a product with the tensor cores {facts.tensor_percent:.0f} % busy"
        faster = case.tf32_speedup if case.point.dtype == "fp32" else None
        won = None if faster is None or faster <= 1 else 1 - 1 / faster
        yield Issue(IssueKind.TENSOR_IDLE, text, facts.tensor_percent, "%", won)


def _fp64(case: _Case) -> Iterator[Issue]:
    busy, single = case.facts.fp64_percent, case.facts.fp32_percent
    if busy is not None and busy > FP64_BUSY_PERCENT and (single or 0.0) < BUSY_PERCENT:
        yield Issue(IssueKind.FP64, f"double precision units {busy:.0f} % busy", busy, "%", None)


def _low_clock(case: _Case) -> Iterator[Issue]:
    clock, highest = case.facts.sm_clock_hz, case.highest_clock_hz
    if clock is None or highest is None or (case.facts.duration_ns or 0) < CLOCK_LEAST_NS:
        return
    if clock < CLOCK_LOW_RATIO * highest:
        text = f"{clock / 1e6:.0f} MHz where others ran at {highest / 1e6:.0f} MHz"
        yield Issue(IssueKind.LOW_CLOCK, text, clock, "Hz", 1 - clock / highest)


CHECKS = (
    _compute_bound, _memory_bound, _latency_bound, _too_small, _tail, _low_occupancy, _uncoalesced,
    _bank_conflicts, _spills, _l2_misses, _stalls, _tensor_idle, _fp64, _low_clock,
)  # fmt: skip
