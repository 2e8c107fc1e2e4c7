"""What the counters of a launch say, under names that do not change with the chip.

Every number is None where its metric was not collected: sections are optional, and metrics have
other names on other chips (the tensor pipe above all).
"""

from collections.abc import Mapping
from types import MappingProxyType

from pinchpoint.analysis.limits.counters import KernelLaunch
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_SECTOR_BYTES = 32  # of an L1 or L2 line of 128 bytes; the least that memory moves

# The busiest of these is how busy the tensor cores were. Instruction counts do not tell: one wgmma
# instruction keeps them busy for many cycles.
_TENSOR_PIPES = (
    "sm__pipe_tc_cycles_active", "sm__pipe_tensor_cycles_active",
    "sm__pipe_tensor_subpipe_hmma_cycles_active", "sm__pipe_tensor_op_hmma_cycles_active",
    "sm__pipe_tensor_op_imma_cycles_active", "sm__pipe_tensor_op_dmma_cycles_active",
)  # fmt: skip
_TENSOR_OPS = regex(
    r"^sm__ops_path_tensor_(?:op_\w+?_)?src_(?P<type>bf16|fp16|tf32|fp8|fp4|fp64|int8)"
    r"(?:_\w+)?\.sum$"
)
_SPARSE = regex(r"sparsity")
_STALL = regex(r"^smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$")
_THREAD_OPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps of a block": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}


@dataclass(frozen=True, eq=False)
class KernelFacts:
    """One launch in the words of the roofline and of NVIDIA's sections."""

    duration_ns: float | None
    compute_percent: float | None  # busiest compute unit, of its peak
    memory_percent: float | None  # busiest part of the memory system
    dram_percent: float | None
    l1_percent: float | None
    l2_percent: float | None
    l1_hit_percent: float | None
    l2_hit_percent: float | None
    occupancy_percent: float | None  # warps that were active, of those that fit
    theoretical_occupancy_percent: float | None
    block_limits: Mapping[str, float]  # blocks that fit on a multiprocessor, by resource
    registers: float | None  # a thread
    blocks: float | None
    threads: float | None  # a block
    waves: float | None
    multiprocessors: float | None
    ipc: float | None
    issue_per_cycle: float | None  # of one scheduler
    eligible_warps: float | None
    warp_latency: float | None  # cycles between two instructions of a warp
    stalls: Mapping[str, float]  # cycles of those, by reason; "selected" is no stall
    tensor_percent: float | None
    fp64_percent: float | None
    fp32_percent: float | None
    flops: Mapping[str, float] | None  # by type; None if not collected
    dram_bytes: float | None
    l2_bytes: float | None
    excess_sectors_ratio: float | None  # L2 sectors of global accesses that a coalesced one saves
    bank_conflict_ratio: float | None  # wavefronts of shared memory that conflicts cost
    spill_requests: float | None
    local_bytes: float | None
    threads_per_warp: float | None
    sm_clock_hz: float | None
    max_clock_hz: float | None
    dram_peak_bytes_per_s: float | None
    l2_peak_bytes_per_s: float | None

    @property
    def total_flops(self) -> float | None:
        """FLOPs of all types together."""
        return None if self.flops is None else sum(self.flops.values())

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks on a multiprocessor."""
        if not self.block_limits:
            return ()
        least = min(self.block_limits.values())
        return tuple(name for name, blocks in self.block_limits.items() if blocks == least)

    def stall_ratio(self, *reasons: str) -> float | None:
        """Share of a warp's time that it waits for these reasons."""
        if not self.stalls or not self.warp_latency:
            return None
        return sum(self.stalls.get(r, 0.0) for r in reasons) / self.warp_latency


def kernel_facts(launch: KernelLaunch) -> KernelFacts:
    """The facts of one launch."""
    get = launch.get
    return KernelFacts(
        duration_ns=get("gpu__time_duration.sum", "gpu__time_duration.avg"),
        compute_percent=get(f"sm__throughput{_ELAPSED}"),
        memory_percent=get(f"gpu__compute_memory_throughput{_ELAPSED}"),
        dram_percent=get(f"gpu__dram_throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}"),
        l1_percent=get(f"l1tex__throughput{_ACTIVE}", f"l1tex__throughput{_ELAPSED}"),
        l2_percent=get(f"lts__throughput{_ELAPSED}"),
        l1_hit_percent=get("l1tex__t_sector_hit_rate.pct"),
        l2_hit_percent=get("lts__t_sector_hit_rate.pct"),
        occupancy_percent=get(f"sm__warps_active{_ACTIVE}"),
        theoretical_occupancy_percent=get("sm__maximum_warps_per_active_cycle_pct"),
        block_limits=MappingProxyType(
            {name: value for name, m in _LIMITS.items() if (value := get(m)) is not None}
        ),
        registers=get("launch__registers_per_thread"),
        blocks=get("launch__grid_size") or _product(launch.grid),
        threads=get("launch__block_size") or _product(launch.block),
        waves=get("launch__waves_per_multiprocessor"),
        multiprocessors=get("launch__sm_count", "device__attribute_multiprocessor_count"),
        ipc=get("sm__inst_executed.avg.per_cycle_active"),
        issue_per_cycle=get("smsp__issue_active.avg.per_cycle_active"),
        eligible_warps=get("smsp__warps_eligible.avg.per_cycle_active"),
        warp_latency=get("smsp__average_warp_latency_per_inst_issued.ratio"),
        stalls=_stalls(launch),
        tensor_percent=_tensor_percent(launch),
        fp64_percent=get(
            f"sm__pipe_fp64_cycles_active{_ELAPSED}", f"sm__inst_executed_pipe_fp64{_ELAPSED}"
        ),
        fp32_percent=get(f"sm__pipe_fma_cycles_active{_ELAPSED}"),
        flops=_flops(launch),
        dram_bytes=_dram_bytes(launch),
        l2_bytes=_l2_bytes(launch),
        excess_sectors_ratio=_excess_sectors(launch),
        bank_conflict_ratio=_bank_conflicts(launch),
        spill_requests=get(
            "derived__local_spilling_requests", "sass__inst_executed_register_spilling"
        ),
        local_bytes=_sectors(launch, "local"),
        threads_per_warp=get(
            "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
            "smsp__thread_inst_executed_per_inst_executed.ratio",
        ),
        sm_clock_hz=get("sm__cycles_elapsed.avg.per_second", "gpc__cycles_elapsed.avg.per_second",
                        "smsp__cycles_elapsed.avg.per_second"),
        max_clock_hz=_times(get("device__attribute_max_gpu_frequency_khz",
                                "device__attribute_clock_rate"), 1e3),
        dram_peak_bytes_per_s=_times(
            get("dram__bytes.sum.peak_sustained"), get("dram__cycles_elapsed.avg.per_second")
        ),
        l2_peak_bytes_per_s=_l2_peak(launch),
    )  # fmt: skip


def _product(size: tuple[int, int, int] | None) -> float | None:
    return None if size is None else float(size[0] * size[1] * size[2])


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _stalls(launch: KernelLaunch) -> Mapping[str, float]:
    found = {m[1]: v for k, v in launch.metrics.items() if (m := _STALL.match(k))}
    return MappingProxyType(dict(sorted(found.items(), key=lambda pair: -pair[1])))


def _tensor_percent(launch: KernelLaunch) -> float | None:
    seen = [launch.get(f"{pipe}{_ACTIVE}", f"{pipe}{_ELAPSED}") for pipe in _TENSOR_PIPES]
    return max((value for value in seen if value is not None), default=None)


def _flops(launch: KernelLaunch) -> Mapping[str, float] | None:
    """By type. Tensor operations count multiply and add already; packed half counts two lanes."""
    found: dict[str, float] = {}
    collected = False
    for metric, value in launch.metrics.items():
        if (match := _TENSOR_OPS.match(metric)) is not None and not _SPARSE.search(metric):
            collected = True
            if value > 0:
                found[match["type"]] = max(found.get(match["type"], 0.0), value)
    vector = {
        "fp32": (("fadd", 1), ("fmul", 1), ("ffma", 2)),
        "fp64": (("dadd", 1), ("dmul", 1), ("dfma", 2)),
        "fp16": (("hadd", 2), ("hmul", 2), ("hfma", 4)),
    }
    for dtype, operations in vector.items():
        counts = [(_executed(launch, op), weight) for op, weight in operations]
        if all(count is None for count, _ in counts):
            continue
        collected = True
        if total := sum((count or 0.0) * weight for count, weight in counts):
            found[dtype] = found.get(dtype, 0.0) + total
    return MappingProxyType(found) if collected else None


def _executed(launch: KernelLaunch, operation: str) -> float | None:
    name = _THREAD_OPS.format(operation)
    if (total := launch.get(name)) is not None:
        return total
    # sets without the sum have the rate, which a chart of the section needs
    return _times(
        launch.get(f"{name}.per_cycle_elapsed"),
        launch.get("smsp__cycles_elapsed.avg", "gpc__cycles_elapsed.max"),
    )


def _dram_bytes(launch: KernelLaunch) -> float | None:
    read, written = launch.get("dram__bytes_read.sum"), launch.get("dram__bytes_write.sum")
    if read is not None and written is not None:
        return read + written
    if (total := launch.get("dram__bytes.sum")) is not None:
        return total
    seconds = _times(launch.get("gpu__time_duration.sum"), 1e-9)
    return _times(launch.get("dram__bytes.sum.per_second"), seconds)


def _l2_bytes(launch: KernelLaunch) -> float | None:
    seconds = _times(launch.get("gpu__time_duration.sum"), 1e-9)
    rate = launch.get("derived__lts__lts2xbar_bytes.sum.per_second")
    if rate is None:
        rate = _times(launch.get("lts__lts2xbar_cycles_active.sum.per_second"), _SECTOR_BYTES)
    if (moved := _times(rate, seconds)) is not None:
        return moved
    total = launch.get("lts__t_bytes.sum")
    return total if total is not None else _times(launch.get("lts__t_sectors.sum"), _SECTOR_BYTES)


def _l2_peak(launch: KernelLaunch) -> float | None:
    return _times(
        launch.get("derived__lts__lts2xbar_bytes.sum.peak_sustained"),
        launch.get("lts__cycles_elapsed.avg.per_second"),
    )


def _excess_sectors(launch: KernelLaunch) -> float | None:
    """Of all L2 sectors that global accesses ask for, the share that coalesced ones would not."""
    total = launch.get("memory_l2_theoretical_sectors_global")
    ideal = launch.get("memory_l2_theoretical_sectors_global_ideal")
    excess = launch.get("derived__memory_l2_theoretical_sectors_global_excessive")
    if total is not None and excess is None and ideal is not None:
        excess = total - ideal
    if total is None or excess is None:
        return None
    return excess / total if total > 0 else 0.0


def _bank_conflicts(launch: KernelLaunch) -> float | None:
    conflicts = launch.get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    wavefronts = launch.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    if conflicts is None or wavefronts is None:
        return None
    return min(conflicts / wavefronts, 1.0) if wavefronts > 0 else 0.0


def _sectors(launch: KernelLaunch, space: str) -> float | None:
    loads = launch.get(f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_ld.sum")
    stores = launch.get(f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_st.sum")
    if loads is None and stores is None:
        return None
    return ((loads or 0.0) + (stores or 0.0)) * _SECTOR_BYTES
