"""Builds recordings of Nsight Compute for tests: launches with a few metrics."""

from typing import Any

from builders import TraceBuilder
from pinchpoint.trace import Device, ExpertNote, ProfiledLaunch, Trace

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TIME = "gpu__time_duration.sum"
TENSOR_BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
CLOCK = "sm__cycles_elapsed.avg.per_second"
ISSUE = "smsp__issue_active.avg.per_cycle_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"


def stall(reason: str) -> str:
    """The metric of a stall reason."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def launch(name: str = "kernel", us: float = 100.0, **more: Any) -> dict[str, Any]:
    """One launch: metrics by name, and ``grid``, ``block``, ``rules`` if wanted."""
    return {"name": name, "metrics": {TIME: us * 1000} | more.pop("metrics", {})} | more


def add_launches(builder: TraceBuilder, *launches: dict[str, Any]) -> dict[str, Any]:
    """Add the counters to a trace being built; returns the fields that belong to them."""
    for number, each in enumerate(launches):
        for metric, value in each["metrics"].items():
            builder.add(
                "kernel_counters", launch=number, name=each["name"], metric=metric, value=value
            )
    about = tuple(ProfiledLaunch(x["name"], x.get("grid"), x.get("block")) for x in launches)
    notes = tuple(
        ExpertNote(**{"launch": i, "section": ""} | rule)
        for i, x in enumerate(launches)
        for rule in x.get("rules", ())
    )
    return {"profiled_launches": about, "expert_notes": notes}


def profiled(*launches: dict[str, Any]) -> Trace:
    """A report of ncu alone, on an H100: no timeline."""
    builder = TraceBuilder()
    builder.devices = [Device(0, "NVIDIA H100 80GB HBM3", None, 132, (9, 0), "nvidia")]
    facts = add_launches(builder, *launches)
    return builder.trace(**facts, host_ops=None, api_calls=None, device_ops=None, steps=None)
