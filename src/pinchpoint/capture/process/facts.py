"""What one process writes down about itself: ``processes/<stem>.json`` of the run folder."""

import gc
import os
import sys
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.call_times import calls_note
from pinchpoint.capture.process.deaths import Deaths
from pinchpoint.capture.process.memory import peak_resident_bytes, torch_peak_bytes
from pinchpoint.capture.process.ranks import identity
from pinchpoint.capture.process.session import LOOP, CaptureSession
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.samples.memory_nodes import cpu_nodes, placement
from pinchpoint.capture.windows.recording import Recording
from pinchpoint.inside import both_branches, jacobians, live_arrays
from pinchpoint.monitor.environment.facts import variables
from pinchpoint.monitor.environment.software import switches
from pinchpoint.run_folder.layout import PROCESS_SCHEMA, PROCESSES, write_json


def save_facts(
    session: CaptureSession, loaders: list[dict[str, Any]], deaths: Deaths | None = None
) -> None:
    """Write the file; a full disk becomes one of the session's problems."""
    worked = session.clock.edges or session.recordings or session.problems
    if not worked and not (deaths and deaths.count):
        return
    path = Path(session.settings.folder) / PROCESSES / f"{session.identity.stem}.json"
    try:
        write_json(path, facts(session, loaders, deaths))
    except OSError as error:
        session.problems.append(f"{path.name}: {error.strerror or error}")


def facts(
    session: CaptureSession, loaders: list[dict[str, Any]], deaths: Deaths | None = None
) -> dict[str, Any]:
    """The document."""
    me = identity()
    peak = torch_peak_bytes()
    return {
        "schema": PROCESS_SCHEMA,
        "rank": me.rank,
        "world_size": me.world_size,
        "local_rank": me.local_rank,
        "host": me.host,
        "pid": me.pid,
        "stage": session.stage.name.lower(),
        "complete": session.complete,
        "steps": _steps(session),
        "calls": calls_note(session.calls, session.recordings) if session.steps_by is None else [],
        "threaded": session.threaded.note() if session.steps_by is None else None,
        "recordings": [_recording(r) for r in session.recordings],
        "triggers": list(getattr(session.policy, "triggers", [])),
        "problems": session.problems,
        "threads_died": list(deaths.first) if deaths else [],
        "threads_died_count": deaths.count if deaths else 0,
        "loaders": loaders,
        "memory": {
            "host_peak_bytes": peak_resident_bytes(),
            "torch_peak_allocated_bytes": peak[0] if peak else None,
            "torch_peak_reserved_bytes": peak[1] if peak else None,
        },
        "device": _device(),
        "switches": switches()[0],
        "variables": variables(os.environ)["values"],
        "cores_allowed": _cores_allowed(),
        "cpu_nodes": cpu_nodes(),
        "placement": placement() if session.recordings else None,
        "both_branches": [
            {"place": place, "lines": sorted(lines)} for place, lines in both_branches.found.items()
        ],
        "jacobians": [
            {"place": place, "outputs": outputs, "inputs": inputs}
            for place, (outputs, inputs) in jacobians.found.items()
        ],
        "live_arrays": [
            {"dtype": dtype, "shape": shape, "count": count}
            for (dtype, shape), count in live_arrays.found.items()
        ],
        "line_tracer": session.line_tracer,
        "python": sys.version.split()[0],
        "gc_collections": [generation["collections"] for generation in gc.get_stats()],
    }


def _steps(session: CaptureSession) -> dict[str, Any]:
    clock = session.clock
    recorded = _rounds_are_recorded(session)
    before, on_device = _unprofiled(session, session.timed.before) if recorded else ([], False)
    after, still_on_device = _unprofiled(session, session.timed.after) if recorded else ([], False)
    timed = [*clock.undisturbed(session.timed.before.start, session.timed.before.stop)]
    timed += clock.undisturbed(session.timed.after.start, session.timed.after.stop)
    return {
        "by": session.steps_by,
        "place": session.loops.place if session.steps_by == LOOP else None,
        "count": clock.edges,
        "steady": session.policy.steady,
        "clock": "device" if on_device and still_on_device else "host",
        "before_ns": before,
        "after_ns": after,
        "wait_ns": [clock.wait_ns[i] for i in timed],
        "batches_per_step": _ratio(session.fetches, clock.edges),
        "warm_unix_ns": clock.warm_unix_ns,
        "page_faults_per_step": _ratio(clock.faults, clock.counted),
        "kernel_ns_per_step": _ratio(clock.kernel_ns, clock.counted),
        "user_ns_per_step": _ratio(clock.user_ns, clock.counted),
        "cost_ns": _cost_ns(session),
        "launch_ns": session.launches.note(
            clock.undisturbed(session.timed.before.start, session.timed.before.stop)
        ),
        "run": summary(clock),
    }


def _rounds_are_recorded(session: CaptureSession) -> bool:
    """Whether the recorded steps are those that were timed: what was recorded by time has no marks
    of rounds, and something else in it may repeat."""
    files = [recording for recording in session.recordings if recording.file]
    return session.steps_by != LOOP or not files or any(one.steps > 0 for one in files)


def _cost_ns(session: CaptureSession) -> int | None:
    """What windows cost: by what they did, or less where steps tell so; None: not known."""
    by_steps, budget = session.clock.cost_ns(), session.budget
    by_windows = budget.spent_ns + budget.stalled_ns
    known = [ns for ns in (by_steps, by_windows) if ns]
    return min(known) if known else by_steps


def _unprofiled(session: CaptureSession, chosen: range) -> tuple[list[int], bool]:
    """Times of the steps in a range: on the device if all of them are known there."""
    rows = session.clock.undisturbed(chosen.start, chosen.stop)
    device = [session.completion.period_ns(row + 1) for row in rows]
    if rows and None not in device:
        return [ns for ns in device if ns is not None], True
    return [session.clock.interval_ns[row] for row in rows], not rows


def summary(clock: StepClock) -> dict[str, int | None]:
    """Distribution of all ordinary steps of the run, as the host saw them."""
    times = sorted(clock.interval_ns[i] for i in clock.undisturbed())
    names = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    found: dict[str, int | None] = {
        name: times[min(int(q * len(times)), len(times) - 1)] if times else None
        for name, q in names.items()
    }
    waits = [clock.wait_ns[i] for i in clock.undisturbed()]
    return found | {
        "count": len(times),
        "total_ns": sum(times),
        "least": times[0] if times else None,
        "most": times[-1] if times else None,
        "wait_total_ns": sum(waits),
    }


def _recording(recording: Recording) -> dict[str, Any]:
    file = recording.file
    return {
        "file": file.name if file else None,
        "bytes": file.bytes if file else None,
        "kernels": file.kernels if file else None,
        "operators": file.operators if file else None,
        "problem": recording.problem,
        "start_unix_ns": recording.start_unix_ns,
        "end_unix_ns": recording.end_unix_ns,
        "steps": recording.steps,
        "window": recording.window,
    }


def _device() -> dict[str, Any] | None:
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        number = int(torch.cuda.current_device())
        about = torch.cuda.get_device_properties(number)
        reserved = int(torch.cuda.memory_reserved(number))
    except (AttributeError, RuntimeError):
        return None
    uuid = getattr(about, "uuid", None)
    return {
        "number": number,
        "name": about.name,
        "uuid": None if uuid is None else f"GPU-{uuid}",
        "torch": str(torch.__version__),
        "torch_reserved_bytes": reserved,
    }


def _cores_allowed() -> int | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0))


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
