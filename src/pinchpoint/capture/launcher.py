"""Starts the program with hooks, samples the machine beside it, and waits for it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pinchpoint.capture.settings import Settings
from pinchpoint.errors import UsageError
from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.nvml import NoDevices, NvmlSource
from pinchpoint.monitor.run_folder import TELEMETRY_FILE
from pinchpoint.monitor.sample import Missing, Sample, Source
from pinchpoint.monitor.sampler import Sampler
from pinchpoint.monitor.summary import Summary
from pinchpoint.monitor.telemetry_log import TelemetryLog

INTERVAL_S = 0.2  # driver values refresh every 40 to 200 ms; one look costs 1.5 ms a device
CALM_AFTER_S = 600.0
_INJECT = Path(__file__).parent / "inject"
_QUIET_KINETO = "6"  # above every message level: the program's output stays its own
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@dataclass(frozen=True)
class Ended:
    """How the program ended, and what was sampled meanwhile."""

    exit_code: int  # as a shell reports it: 128 + number for a signal
    started_unix_ns: int
    ended_unix_ns: int
    summary: Summary
    missing: dict[str, dict[str, str]]  # reasons by device ("host") and metric
    devices: tuple[str, ...]
    no_devices: str | None
    log_problem: str | None


def launch(command: Sequence[str], settings: Settings) -> Ended:
    """Run ``command`` to its end. Its output, input and exit code are its own."""
    folder = Path(settings.folder)
    log, summary = TelemetryLog(folder / TELEMETRY_FILE), Summary()

    def sink(samples: list[Sample]) -> None:
        log.add(samples)
        summary.add(samples)

    host = HostSource()
    devices = device_source(host)
    sources: list[Source] = [host]
    if isinstance(devices, NvmlSource):
        sources.insert(0, devices)
    sampler = Sampler(sources, INTERVAL_S, sink, calm_after_s=CALM_AFTER_S)
    sampler.start()
    started_ns = time.time_ns()
    try:
        code = _run(command, settings, host)
    finally:
        sampler.stop()
        log.close()
    return Ended(
        exit_code=code,
        started_unix_ns=started_ns,
        ended_unix_ns=time.time_ns(),
        summary=summary,
        missing=_reasons([source.missing for source in sources]),
        devices=tuple(d.name for d in devices.devices) if isinstance(devices, NvmlSource) else (),
        no_devices=None if isinstance(devices, NvmlSource) else devices,
        log_problem=log.problem,
    )


def device_source(host: HostSource) -> NvmlSource | str:
    """The devices, or why there are none to look at."""
    try:
        return NvmlSource(own_pids=lambda: {p.pid for p in host.run_processes()})
    except NoDevices as why:
        return str(why)


def environment_of(settings: Settings) -> dict[str, str]:
    """The program's environment: ours, the settings, and the hooks in front of its path."""
    environ = dict(os.environ) | settings.environment()
    path = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = str(_INJECT) + (os.pathsep + path if path else "")
    environ.setdefault("KINETO_LOG_LEVEL", _QUIET_KINETO)
    return environ


def _run(command: Sequence[str], settings: Settings, host: HostSource) -> int:
    try:
        process = subprocess.Popen(list(command), env=environment_of(settings))
    except OSError as error:
        raise UsageError(
            f"{command[0]}: {error.strerror or error}", hint="check the command"
        ) from None
    host.follow(process.pid)
    with _signals_for(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _signals_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program by itself, as it shares our terminal; other signals are passed."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reasons(all_missing: list[Missing]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for missing in all_missing:
        for (device, metric), why in missing.reasons.items():
            found.setdefault("host" if device is None else device, {})[metric] = why
    return found
