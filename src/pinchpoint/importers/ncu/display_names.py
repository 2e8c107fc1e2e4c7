"""Names on ncu's details page, and the metrics behind them (sections of ncu 2022 to 2025).

Checked against a recording that holds both pages. A name that is not here is kept as
``Section: Name``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.importers.ncu.launch import (
    Launch,
    Launches,
    RuleResult,
    decimal_sign,
    is_nothing,
    number,
    triple,
)
from pinchpoint.regex import regex

_SOL = "GPU Speed Of Light Throughput"
_COMPUTE = "Compute Workload Analysis"
_MEMORY = "Memory Workload Analysis"
_SCHEDULER = "Scheduler Statistics"
_STATE = "Warp State Statistics"
_INSTRUCTIONS = "Instruction Statistics"
_LAUNCH = "Launch Statistics"
_OCCUPANCY = "Occupancy"
_DISTRIBUTION = "GPU and Memory Workload Distribution"
_SOURCE = "Source Counters"

METRIC_OF: dict[tuple[str, str], str] = {
    (_SOL, "DRAM Frequency"): "dram__cycles_elapsed.avg.per_second",
    (_SOL, "SM Frequency"): "gpc__cycles_elapsed.avg.per_second",
    (_SOL, "Elapsed Cycles"): "gpc__cycles_elapsed.max",
    (_SOL, "Memory Throughput"): "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    (_SOL, "DRAM Throughput"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    (_SOL, "Duration"): "gpu__time_duration.sum",
    (_SOL, "L1/TEX Cache Throughput"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    (_SOL, "L2 Cache Throughput"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    (_SOL, "SM Active Cycles"): "sm__cycles_active.avg",
    (_SOL, "Compute (SM) Throughput"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    (_COMPUTE, "Executed Ipc Active"): "sm__inst_executed.avg.per_cycle_active",
    (_COMPUTE, "Executed Ipc Elapsed"): "sm__inst_executed.avg.per_cycle_elapsed",
    (_COMPUTE, "Issue Slots Busy"): "sm__inst_issued.avg.pct_of_peak_sustained_active",
    (_COMPUTE, "Issued Ipc Active"): "sm__inst_issued.avg.per_cycle_active",
    (_COMPUTE, "SM Busy"): "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
    (_MEMORY, "Local Memory Spilling Requests"): "derived__local_spilling_requests",
    (_MEMORY, "Local Memory Spilling Request Overhead"): "derived__local_spilling_requests_pct",
    (_MEMORY, "Memory Throughput"): "dram__bytes.sum.per_second",
    (_MEMORY, "Mem Busy"): (
        "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed"
    ),
    (_MEMORY, "Max Bandwidth"): (
        "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed"
    ),
    (_MEMORY, "L1/TEX Hit Rate"): "l1tex__t_sector_hit_rate.pct",
    (_MEMORY, "L2 Hit Rate"): "lts__t_sector_hit_rate.pct",
    (_MEMORY, "Mem Pipes Busy"): "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
    (_MEMORY, "L2 Persisting Size"): "launch__persisting_l2_cache_size",
    (_SCHEDULER, "One or More Eligible"): "smsp__issue_active.avg.pct_of_peak_sustained_active",
    (_SCHEDULER, "Issued Warp Per Scheduler"): "smsp__issue_active.avg.per_cycle_active",
    (_SCHEDULER, "No Eligible"): "smsp__issue_inst0.avg.pct_of_peak_sustained_active",
    (_SCHEDULER, "Active Warps Per Scheduler"): "smsp__warps_active.avg.per_cycle_active",
    (_SCHEDULER, "Eligible Warps Per Scheduler"): "smsp__warps_eligible.avg.per_cycle_active",
    (_STATE, "Warp Cycles Per Issued Instruction"): (
        "smsp__average_warp_latency_per_inst_issued.ratio"
    ),
    (_STATE, "Warp Cycles Per Executed Instruction"): (
        "smsp__average_warps_active_per_inst_executed.ratio"
    ),
    (_STATE, "Avg. Active Threads Per Warp"): "smsp__thread_inst_executed_per_inst_executed.ratio",
    (_STATE, "Avg. Not Predicated Off Threads Per Warp"): (
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
    ),
    (_INSTRUCTIONS, "Avg. Executed Instructions Per Scheduler"): "smsp__inst_executed.avg",
    (_INSTRUCTIONS, "Executed Instructions"): "smsp__inst_executed.sum",
    (_INSTRUCTIONS, "Avg. Issued Instructions Per Scheduler"): "smsp__inst_issued.avg",
    (_INSTRUCTIONS, "Issued Instructions"): "smsp__inst_issued.sum",
    (_LAUNCH, "Block Size"): "launch__block_size",
    (_LAUNCH, "Cluster Scheduling Policy"): "launch__cluster_scheduling_policy",
    (_LAUNCH, "Cluster Size"): "launch__cluster_size",
    (_LAUNCH, "Function Cache Configuration"): "launch__func_cache_config",
    (_LAUNCH, "Grid Size"): "launch__grid_size",
    (_LAUNCH, "Registers Per Thread"): "launch__registers_per_thread",
    (_LAUNCH, "Shared Memory Configuration Size"): "launch__shared_mem_config_size",
    (_LAUNCH, "Driver Shared Memory Per Block"): "launch__shared_mem_per_block_driver",
    (_LAUNCH, "Dynamic Shared Memory Per Block"): "launch__shared_mem_per_block_dynamic",
    (_LAUNCH, "Static Shared Memory Per Block"): "launch__shared_mem_per_block_static",
    (_LAUNCH, "# SMs"): "launch__sm_count",
    (_LAUNCH, "Stack Size"): "launch__stack_size",
    (_LAUNCH, "Threads"): "launch__thread_count",
    (_LAUNCH, "# TPCs"): "launch__tpc_count",
    (_LAUNCH, "Enabled TPC IDs"): "launch__tpc_enabled",
    (_LAUNCH, "Uses Green Context"): "launch__uses_green_context",
    (_LAUNCH, "Waves Per SM"): "launch__waves_per_multiprocessor",
    (_OCCUPANCY, "Max Active Clusters"): "launch__cluster_max_active",
    (_OCCUPANCY, "Max Cluster Size"): "launch__cluster_max_potential_size",
    (_OCCUPANCY, "Overall GPU Occupancy"): "launch__occupancy_cluster_gpu_pct",
    (_OCCUPANCY, "Cluster Occupancy"): "launch__occupancy_cluster_pct",
    (_OCCUPANCY, "Block Limit Barriers"): "launch__occupancy_limit_barriers",
    (_OCCUPANCY, "Block Limit SM"): "launch__occupancy_limit_blocks",
    (_OCCUPANCY, "Block Limit Registers"): "launch__occupancy_limit_registers",
    (_OCCUPANCY, "Block Limit Shared Mem"): "launch__occupancy_limit_shared_mem",
    (_OCCUPANCY, "Block Limit Warps"): "launch__occupancy_limit_warps",
    (_OCCUPANCY, "Theoretical Active Warps per SM"): "sm__maximum_warps_avg_per_active_cycle",
    (_OCCUPANCY, "Theoretical Occupancy"): "sm__maximum_warps_per_active_cycle_pct",
    (_OCCUPANCY, "Achieved Occupancy"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    (_OCCUPANCY, "Achieved Active Warps Per SM"): "sm__warps_active.avg.per_cycle_active",
    (_DISTRIBUTION, "Average DRAM Active Cycles"): "dram__cycles_active.avg",
    (_DISTRIBUTION, "Total DRAM Elapsed Cycles"): "dram__cycles_elapsed.sum",
    (_DISTRIBUTION, "Average L1 Active Cycles"): "l1tex__cycles_active.avg",
    (_DISTRIBUTION, "Total L1 Elapsed Cycles"): "l1tex__cycles_elapsed.sum",
    (_DISTRIBUTION, "Average L2 Active Cycles"): "lts__cycles_active.avg",
    (_DISTRIBUTION, "Total L2 Elapsed Cycles"): "lts__cycles_elapsed.sum",
    (_DISTRIBUTION, "Average SM Active Cycles"): "sm__cycles_active.avg",
    (_DISTRIBUTION, "Total SM Elapsed Cycles"): "sm__cycles_elapsed.sum",
    (_DISTRIBUTION, "Average SMSP Active Cycles"): "smsp__cycles_active.avg",
    (_DISTRIBUTION, "Total SMSP Elapsed Cycles"): "smsp__cycles_elapsed.sum",
    (_SOURCE, "Branch Instructions Ratio"): "derived__smsp__inst_executed_op_branch_pct",
    (_SOURCE, "Branch Instructions"): "smsp__inst_executed_op_branch.sum",
    (_SOURCE, "Branch Efficiency"): "smsp__sass_average_branch_targets_threads_uniform.pct",
    (_SOURCE, "Avg. Divergent Branches"): "smsp__sass_branch_targets_threads_divergent.avg",
}


def metric_of(section: str, name: str) -> str:
    """The metric behind a name on the details page; raw metric names stay as they are."""
    if "__" in name:
        return name
    return METRIC_OF.get((section, name), f"{section}: {name}")


# ------------------------------------------------------------------------------------------------
# What ncu prints to a terminal: sections with tables, and the rules' paragraphs between them.


# "  name (2, 66, 1)x(384, 1, 1), Context 1, Stream 7, Device 0, CC 9.0"; before 2022 the sizes
# were left out: "  name, 2022-Jan-01 12:00:00, Context 1, Stream 7"
_TEXT_LAUNCH = regex(
    r"^  (?P<name>\S.*?)(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?"
    r"(?:, \d{4}-\w+-\d+ [\d:]+)?, Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+), CC (?P<major>\d+)\.(?P<minor>\d+))?\s*$"
)
# --print-summary per-kernel: of so many launches the least, greatest and mean values.
_TEXT_SUMMARY = regex(
    r"^  (?P<name>\S.*?) (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\))"
    r", Device (?P<device>\d+), CC (?P<major>\d+)\.(?P<minor>\d+)"
    r", Invocations (?P<times>\d{1,9})\s*$"
)
_MOST_TIMES = 10_000  # launches of one summary that are made; ncu replays none as often
_SECTION = regex(r"^    Section: (.+?)\s*$")
_RULE = regex(r"^    (OPT|INF|WRN|ERR)\s+(?:Est\. (Local )?Speedup: ([\d.,]+)%\s*)?(.*?)\s*$")
_DASHES = regex(r"^    (-+) (-+) (-+)(?: (-+) (-+))?\s*$")
_LONGEST_LINE = 65536  # characters; ncu wraps at some hundred


def looks_like_text(text: str) -> bool:
    """Whether the text has a launch line or a metric table of ncu's terminal output."""
    return any(
        _TEXT_LAUNCH.match(line) or _TEXT_SUMMARY.match(line) or _SECTION.match(line)
        for line in text.splitlines()
    )


def read_text(path: Path) -> Launches:
    """All launches in terminal output, other lines left aside."""
    reader = _Reader()
    with path.open("r", encoding="utf-8", errors="replace", newline=None) as file:
        for line in _short_lines(file):
            reader.take(line)
    return Launches(tuple(reader.finished()))


def _short_lines(file: Iterator[str]) -> Iterator[str]:
    return (line.rstrip("\n") for line in file if len(line) <= _LONGEST_LINE)


class _Reader:
    """Goes through the lines once and remembers where it is."""

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._rows: list[tuple[Launch, str, str, str]] = []
        self._mine = 1  # launches at the end that what follows is of
        self._section = ""
        self._columns: tuple[int, int, int] | None = None
        self._rule: tuple[str, str | None, str | None, list[str]] | None = None

    def take(self, line: str) -> None:
        """Understand one line."""
        if (launch := _TEXT_LAUNCH.match(line)) is not None:
            self._end_rule()
            self._launches.append(_launch(launch))
            self._mine = 1
        elif (alike := _TEXT_SUMMARY.match(line)) is not None:
            self._end_rule()
            self._mine = max(1, min(int(alike["times"]), _MOST_TIMES))
            self._launches += [_launch(alike) for _ in range(self._mine)]
        elif (section := _SECTION.match(line)) is not None:
            self._end_rule()
            self._section, self._columns = section[1], None
        elif (dashes := _DASHES.match(line)) is not None:
            unit_at, unit_ends = 5 + len(dashes[1]), 6 + len(dashes[1]) + len(dashes[2])
            # the mean is the last of three
            before = 2 + len(dashes[3]) + len(dashes[4]) if dashes[5] else 0
            self._columns = (unit_at, unit_ends, unit_ends + before)
        elif (rule := _RULE.match(line)) is not None:
            self._end_rule()
            kind = ("local" if rule[2] else "global") if rule[3] else None
            self._rule = (rule[1], kind, rule[3], [rule[4]])
        elif self._rule is not None and line.startswith("          "):
            self._rule[3].append(line.strip())
        elif line.strip() == "":
            self._end_rule()
        elif self._columns is not None and self._launches and line.startswith("    "):
            self._take_row(line, *self._columns)

    def finished(self) -> list[Launch]:
        """The launches, once all lines are taken."""
        self._end_rule()
        decimal = decimal_sign(value for _, _, _, value in self._rows)
        for launch, metric, unit, text in self._rows:
            if (value := number(text, decimal)) is not None:
                launch.numbers[metric] = (value, unit)
            elif not is_nothing(text):
                launch.texts[metric] = text
        return self._launches

    def _take_row(self, line: str, unit_at: int, unit_ends: int, value_at: int) -> None:
        name, unit, value = (
            line[4:unit_at].strip(), line[unit_at:unit_ends].strip(), line[value_at:].strip()
        )  # fmt: skip
        if name and value and name != "Metric Name":
            metric = metric_of(self._section, name)
            self._rows += [(one, metric, unit, value) for one in self._launches[-self._mine :]]

    def _end_rule(self) -> None:
        if self._rule is None:
            return
        kind, speedup_kind, speedup, lines = self._rule
        self._rule = None
        if self._launches:
            percent = number(speedup, ".") if speedup else None
            text = " ".join(lines).strip()
            result = RuleResult("", self._section, kind, text, speedup_kind, percent)
            for one in self._launches[-self._mine :]:
                one.rules.append(result)


def _launch(match: re.Match[str]) -> Launch:
    part = match.groupdict()
    return Launch(
        part["name"],
        triple(part["grid"] or ""),
        triple(part["block"] or ""),
        int(part.get("context") or 0),
        int(part.get("stream") or 0),
        int(part["device"] or 0),
        (int(part["major"]), int(part["minor"])) if part["major"] else None,
    )
