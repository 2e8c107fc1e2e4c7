"""One run: a fresh process, its steps, its telemetry, and the ``metrics.json`` of it all."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from pinchpoint.bench.folders import new_id, utc_now, write_atomic
from pinchpoint.bench.metrics import Memory, RunMetrics, write_metrics
from pinchpoint.bench.run.process import Finished, run_command
from pinchpoint.bench.run.step_files import Inside, StepSeries, read_inside
from pinchpoint.bench.run.swapped import Side
from pinchpoint.bench.run.telemetry import DeviceSamples, Window, devices_over, sampling
from pinchpoint.bench.run.timed import TimingRules, timed_part
from pinchpoint.bench.run.validity import HostChange, invalid_reasons, is_busy
from pinchpoint.bench.run.waits import asleep
from pinchpoint.frozen import dataclass
from pinchpoint.inside import recording_environment
from pinchpoint.inside.meeting import MEETING_VARIABLE

_NOT_FROM_A_COMMAND = dict.fromkeys(
    ("latency_ms", "goodput_req_per_s", "slo", "load_mode", "requests_ok", "requests_failed"),
    "not a serving run",
) | {"memory.device_peak_used_bytes": "read it from telemetry.csv"}
_NO_WORK = "no Python process that ended by itself was seen"
_NO_STEPS = (
    "no Python process of the run called pinchpoint.step(), stepped an optimizer, replayed a graph"
    " or called a model twice; --step-function NAME takes a function that repeats"
)
_TORCH_PEAKS = ("memory.torch_peak_allocated_bytes", "memory.torch_peak_reserved_bytes")
OUTPUT_LIMIT_BYTES = 16 << 20  # of the end of stdout, searched for printed numbers


@dataclass(frozen=True)
class Arm:
    """A way to run the program: what is A, and what is B."""

    name: str
    command: tuple[str, ...]
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # on top of ours
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunOptions:
    """How every run of a session is measured."""

    bench_id: str
    timeout_s: float | None = None
    timing: TimingRules = field(default_factory=TimingRules)
    patterns: Mapping[str, "re.Pattern[str]"] = field(default_factory=dict)
    record_steps: bool = True
    step_function: str | None = None  # its return ends a step: NAME of the script, or module:NAME
    end_after: str | None = None  # 40 steps, 30s of them, or never: bench.run.enough
    threads_sleep: bool = False  # while they wait for each other: bench.run.waits
    at_once: bool = False  # with the other run of a pair: bench.ab.at_once
    seed: int | None = None  # given to the program as PINCHPOINT_SEED and PYTHONHASHSEED
    session_id: str = ""
    env_sha256: str | None = None


def with_seed_of(options: RunOptions, number: int) -> RunOptions:
    """The options with a seed of its own for each run, or pair of runs, if seeds are used."""
    return options if options.seed is None else replace(options, seed=options.seed + number)


@dataclass(frozen=True)
class Place:
    """Where in the session the run stands."""

    folder: Path
    order_index: int = 0
    pair_index: int | None = None
    side: Side | None = None  # of a pair whose runs exchange their CPUs


def measure_run(arm: Arm, options: RunOptions, place: Place) -> RunMetrics:
    """Run once, write everything into ``place.folder``, return the metrics.

    A command that fails gives metrics of status ``failed``; only one that cannot be started
    raises (UsageError).
    """
    place.folder.mkdir(parents=True)
    started = utc_now()
    before = _host_counters()
    if place.side:
        place.side.prepare()
    with sampling(place.folder / "telemetry.csv") as telemetry:
        finished = run_command(
            arm.command,
            folder=place.folder,
            cwd=arm.cwd,
            env=_environment(arm, options, place),
            timeout_s=options.timeout_s,
            side=place.side,
        )
    metrics = _metrics(arm, options, place, started, finished, telemetry, _gained(before))
    write_metrics(place.folder / "metrics.json", metrics)
    return metrics


def _environment(arm: Arm, options: RunOptions, place: Place) -> dict[str, str]:
    env = dict(os.environ) | dict(arm.env)
    if place.side:
        env[MEETING_VARIABLE] = str(place.side.file.resolve())
    if options.threads_sleep:
        env = asleep(env)
    if options.seed is not None:
        env |= {"PINCHPOINT_SEED": str(options.seed), "PYTHONHASHSEED": str(options.seed % 2**32)}
    if not options.record_steps:
        return env
    end = None if options.end_after == "never" else options.end_after
    return recording_environment(env, str(place.folder.resolve()), options.step_function, end)


def _metrics(
    arm: Arm,
    options: RunOptions,
    place: Place,
    started: str,
    finished: Finished,
    telemetry: DeviceSamples,
    host: HostChange,
) -> RunMetrics:
    status = "timeout" if finished.timed_out else "ok" if finished.exit_code == 0 else "failed"
    inside = read_inside(place.folder) if options.record_steps else Inside(None, None)
    series = inside.steps
    # Side by side what makes steps unsteady is in both of the pair.
    mild = place.side is not None or is_busy(os.getloadavg()[0], os.cpu_count())
    timing = replace(options.timing, busy=mild)
    timed = None if series is None else timed_part(series, timing)
    window = Window(finished.started_unix_ns, finished.ended_unix_ns)
    if timed is not None:
        window = timed.window
        write_atomic(place.folder / "steps.f64", timed.step_ms.astype("<f8").tobytes())
    gpus = devices_over(telemetry.samples, window)
    peaks = series.peaks if series else {}
    unknown = dict(_NOT_FROM_A_COMMAND)
    unknown |= timed.unknown if timed else _without_steps(options, series)
    work = None if inside.ended_after else inside.work
    if inside.ended_after:
        unknown["work"] = f"the run was ended after {inside.ended_after} steps"
    elif work is None:
        unknown["work"] = "not asked for" if not options.record_steps else _NO_WORK
    if gpus is None:
        unknown["gpu"] = telemetry.no_devices or "no sample fell into the timed window"
    if finished.peak_rss_bytes is None:
        unknown["memory.host_peak_rss_bytes"] = "smaller than the measuring process, which hides it"
    if not peaks:
        unknown |= dict.fromkeys(_TORCH_PEAKS, "the program used no CUDA allocator that we saw")
    return RunMetrics(
        run_id=new_id(),
        bench_id=options.bench_id,
        params=dict(arm.params),
        params_sha256=params_digest(arm.params),
        arm=arm.name,
        pair_index=place.pair_index,
        order_index=place.order_index,
        session_id=options.session_id,
        started_utc=started,
        duration_s=finished.wall_s,
        threads_sleep=options.threads_sleep,
        at_once=options.at_once,
        swapped=place.side is not None and place.side.swap.exchanges > 0,
        seed=options.seed,
        status=status,
        exit_code=finished.exit_code,
        invalid_reasons=invalid_reasons(
            warmup=timed.warmup if timed else None,
            gpus=gpus,
            host=host,
            duration_s=finished.wall_s,
            recompiles=timed.recompiles if timed else 0,
            allocator_retries=peaks.get("allocator_retries") or 0,
        ),
        work=work,
        warmup=timed.warmup if timed else None,
        steps=timed.steps if timed else None,
        throughput=timed.throughput if timed else None,
        custom=printed_numbers(place.folder / "stdout.log", options.patterns),
        memory=Memory(
            torch_peak_allocated_bytes=peaks.get("torch_peak_allocated_bytes"),
            torch_peak_reserved_bytes=peaks.get("torch_peak_reserved_bytes"),
            host_peak_rss_bytes=finished.peak_rss_bytes,
        ),
        gpu=gpus,
        counters={"user_s": finished.user_s, "system_s": finished.system_s}
        | ({"ended_after_steps": inside.ended_after} if inside.ended_after else {}),
        program=dict(series.switches) if series else {},
        env_file="env.json" if options.env_sha256 else None,
        env_sha256=options.env_sha256,
        artifacts={"telemetry": "telemetry.csv", "stdout": "stdout.log", "stderr": "stderr.log"},
        unknown=unknown,
    )


def _without_steps(options: RunOptions, series: StepSeries | None) -> dict[str, str]:
    if not options.record_steps:
        why = "not asked for"
    elif series is None:
        named = (
            f"no call of {options.step_function} was seen, and " if options.step_function else ""
        )
        why = f"{named}{_NO_STEPS}"
    else:
        why = f"all {len(series.step_ms)} steps were warm-up"
    return dict.fromkeys(("steps", "throughput", "warmup"), why)


def printed_numbers(log: Path, patterns: Mapping[str, "re.Pattern[str]"]) -> dict[str, float]:
    """The last match of each pattern in the output; its first group is the number."""
    if not patterns:
        return {}
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - OUTPUT_LIMIT_BYTES))
        text = file.read().decode("utf-8", "replace")
    found: dict[str, float] = {}
    for name, pattern in patterns.items():
        for match in pattern.finditer(text):
            try:
                found[name] = float(match[1].replace(",", ""))
            except (ValueError, IndexError):
                continue
    return found


def params_digest(params: Mapping[str, Any]) -> str:
    """SHA-256 of the parameters in canonical JSON."""
    return hashlib.sha256(json.dumps(dict(params), sort_keys=True).encode()).hexdigest()


def _host_counters() -> tuple[int | None, int | None]:
    import psutil

    from pinchpoint.monitor.environment.facts import Unreadable
    from pinchpoint.monitor.environment.host import cgroup_throttled_us

    try:
        throttled: int | None = cgroup_throttled_us()
    except Unreadable:
        throttled = None
    try:
        return psutil.swap_memory().sin, throttled
    except OSError:  # no /proc/vmstat
        return None, throttled


def _gained(before: tuple[int | None, int | None]) -> HostChange:
    after = _host_counters()
    gained = [None if a is None or b is None else a - b for a, b in zip(after, before, strict=True)]
    return HostChange(gained[0], gained[1])
