"""A report written by hand that holds one of everything; no analysis is involved."""

from pinchpoint.diagnosis.finding import Evidence, Finding, Location, Unanswered
from pinchpoint.diagnosis.record import Need
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import (
    DeviceInfo,
    Health,
    HealthFact,
    PartOfStep,
    Report,
    ResultTable,
    SourceInfo,
    StepsInfo,
    TableColumn,
)

MS = 1_000_000


def full_report(**changes):
    """A training step bound by the host, with findings of every kind."""
    return Report(**(_FACTS | changes))


def part(name, label, group, ms, unprofiled_ms=None):
    return PartOfStep(
        part=name,
        label=label,
        group=group,
        ns_per_step=round(ms * MS),
        unprofiled_ns_per_step=None if unprofiled_ms is None else round(unprofiled_ms * MS),
    )


_FACTS = {
    "source": SourceInfo(
        path="train.json.gz",
        format="kineto",
        producer="torch 2.11.0",
        devices=("NVIDIA H100 80GB HBM3",),
        events=11531,
        rank=0,
        world_size=1,
    ),
    "health": Health(
        verdict="good",
        facts=(
            HealthFact(id="overhead", severity="note", count=4, detail="Overhead rows are there"),
            HealthFact(
                id="lost-launches",
                severity="warning",
                count=12,
                detail="12 kernels have no launch; their operators are unknown",
                at_ns=5 * MS,
            ),
        ),
    ),
    "steps": StepsInfo(
        how="marker",
        basis="ProfilerStep",
        count=8,
        duration_ns=(22 * MS, 22 * MS, 23 * MS, 22 * MS, 41 * MS, 22 * MS, 22 * MS, 23 * MS),
        typical_ns=22_300_000,
        spread_ns=(21_900_000, 23_000_000),
        outliers=({"step": 14, "duration_ns": 41 * MS},),
        unprofiled_ns_predicted=14_900_000,
        unprofiled_ns_range=(13_800_000, 16_000_000),
        unprofiled_how="estimated from the number of events",
    ),
    "device": DeviceInfo(
        span_ns=178_000_000,
        busy_ns=97_600_000,
        idle_ratio=0.4517,
        kernels=9904,
        collectives=0,
        copies=24,
        memsets=8,
    ),
    "breakdown": (
        part("gemm", "matrix products", "device", 7.1, 7.1),
        part("idle-sync", "idle: host blocked in a synchronising call", "idle", 6.4, 2.7),
        part("elementwise", "elementwise", "device", 4.9, 4.9),
        part("idle-profiler", "idle: the profiler's own work", "idle", 3.7, 0.0),
        part("memset", "memset", "device", 0.1, 0.1),
        part("reduction", "reductions", "device", 0.1, 0.1),
        part("collective", "exposed collectives", "exposed", 0.0, 0.0),
    ),
    "verdict": "The host bounds this step: it waits for the device 8 times a step.",
    "findings": (
        Finding(
            id="sync-in-loop",
            summary=".item() at train.py:41, in Block.forward, 8 × a step; the device then idles "
            "0.5 ms each time",
            evidence=(
                Evidence(what="device idle after it", value=530_000, unit="ns", at_ns=91),
                Evidence(what="share of the step", value=0.287, unit="ratio"),
                Evidence(what="calls a step", value=8, unit="count", name="aten::item"),
            ),
            cost_ns_per_step=4_400_000,
            location=Location(file="train.py", line=41, module="Block.forward"),
            predicted_step_ns=10_600_000,
            predicted_range_ns=(10_100_000, 11_300_000),
            fix="keep the value on the device; read it every 50 steps",
            hint="total += loss.detach()\nif step % 50 == 0: log(total.item())",
            confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        ),
        Finding(
            id="pageable-h2d",
            summary="3 copies a step start from pageable memory",
            evidence=(Evidence(what="rate", value=6.2, unit="GB/s"),),
            cost_ns_per_step=700_000,
            location=Location(operator="aten::copy_"),
            fix="pin the batch: DataLoader(pin_memory=True)",
            confirm="record again: the copies say Pinned",
            confidence="medium",
        ),
        Finding(
            id="graph-retained",
            summary="Memory grows by 12 MiB a step",
            evidence=(Evidence(what="growth", value=12_582_912, unit="bytes"),),
            consequence="runs out of memory after about 3000 steps",
            fix="detach what is stored",
        ),
    ),
    "fix_ladder": LadderInfo(
        base_ns=14_900_000,
        recorded_base_ns=22_300_000,
        rungs=(
            RungInfo(
                id="sync-in-loop",
                kind="finding",
                step_ns=10_600_000,
                range_ns=(10_100_000, 11_300_000),
                sure_ns=3_600_000,
                base_ns=14_900_000,
                recorded_step_ns=15_900_000,
                effort="lines",
            ),
            RungInfo(
                id="aten::index",
                kind="piece",
                step_ns=12_000_000,
                range_ns=(12_000_000, 13_000_000),
                sure_ns=1_900_000,
                base_ns=14_900_000,
                effort="search",
            ),
            RungInfo(
                id="all",
                kind="together",
                step_ns=9_800_000,
                range_ns=(9_200_000, 10_700_000),
                sure_ns=4_200_000,
                base_ns=14_900_000,
            ),
        ),
    ),
    "together_ns": 9_900_000,
    "together_range_ns": (9_400_000, 10_800_000),
    "not_checked": (
        Unanswered(
            id="memory-fragmentation",
            why="no allocations",
            record="a memory snapshot",
            needs=Need.SNAPSHOT,
        ),
        Unanswered(
            id="oom-risk",
            why="no allocations",
            record="a memory snapshot of a step",
            needs=Need.SNAPSHOT,
        ),
        Unanswered(id="register-spill", why="no kernel counters"),
    ),
    "clear": ("launch-bound", "unfused-optimizer"),
    "crashed": (Unanswered(id="recompiles", why="ZeroDivisionError: division by zero"),),
    "tables": {
        "kernels": ResultTable(
            id="kernels",
            title="Kernels",
            columns=(
                TableColumn(id="name", label="kernel"),
                TableColumn(id="calls", label="calls a step", unit="count"),
                TableColumn(id="time", label="time a step", unit="ns"),
                TableColumn(id="share", label="share", unit="ratio"),
                TableColumn(id="bytes", label="moved", unit="bytes"),
            ),
            rows=(
                ("sgemm_64x64<float, true>(Params)", 38, 7_100_000, 0.3184, None),
                ("void at::native::elementwise<|a|, `b`>(int)", 1200, 4_900_000, 0.22, 3 << 20),
            ),
            note="Times of kernels on different streams may overlap.",
            rows_left_out=17,
        ),
    },
    "next_command": "pinchpoint explain sync-in-loop",
}


def healthy_report():
    """Nothing to find, and steps that were inferred."""
    return full_report(
        health=Health(verdict="good"),
        steps=StepsInfo(
            how="inferred",
            basis="the repeated launch sequence",
            confidence=0.92,
            count=12,
            typical_ns=850_000,
        ),
        breakdown=(part("attention", "attention", "device", 0.85),),
        verdict="The device bounds this step: it is busy 98 % of the time.",
        findings=(),
        together_ns=None,
        together_range_ns=None,
        not_checked=(),
        crashed=(),
        tables={},
        next_command=None,
    )


def inconclusive_report():
    """A recording that forbids statements about time."""
    return full_report(
        health=Health(
            verdict="cannot conclude",
            facts=(
                HealthFact(
                    id="lost-launches",
                    severity="fatal",
                    count=4000,
                    detail="4000 of 5000 kernels are missing: the profiler's buffer overflowed",
                ),
            ),
            record="profile fewer steps: schedule(wait=1, warmup=1, active=3)",
        )
    )


def hostile_report():
    """Names that try to be markup, escape sequences or an essay."""
    evil = '<script>alert(1)</script>\x1b[31m\x00\u202e|`*_[red]@team ##[error]x"\n::error::x'
    long = "n" * 1_000_000
    return full_report(
        source=SourceInfo(path=evil, format="kineto", devices=(evil, long)),
        verdict=evil,
        breakdown=(part("gemm", evil, "device", 1.0), part("memset", long, "device", 0.5)),
        findings=(
            Finding(
                id="sync-in-loop",
                summary=evil + long,
                evidence=(Evidence(what=evil, value=evil, unit=""),),
                location=Location(file=f"{evil},title=x", line=1, function=evil),
                fix=evil,
                hint=evil,
                confirm=evil,
            ),
        ),
        not_checked=(Unanswered(id="x", why=evil, record=evil),),
        crashed=(Unanswered(id="y", why=evil),),
        tables={
            "kernels": ResultTable(
                id="kernels",
                title=evil,
                columns=(TableColumn(id="name", label=evil),),
                rows=((evil,), (long,)),
                note=evil,
            )
        },
        next_command=evil,
    )
