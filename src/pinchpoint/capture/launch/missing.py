"""What a run did not record, and why: one sentence each, with the command that would."""

import errno
import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.capture.launch.early import NO_HOOKS
from pinchpoint.capture.launch.launcher import TEARDOWN, Ended
from pinchpoint.capture.settings import EARLY_AFTER_S, FIRST_AFTER_S, Settings
from pinchpoint.run_folder.documents import ProcessDocument, RunDocument, read
from pinchpoint.run_folder.layout import (
    FRAMEWORK_MARK,
    HOOKS_MARK,
    NOT_RECORDED_MARK,
    NOTEBOOK,
    NSYS,
    PROCESSES,
    RUN_FILE,
    SAMPLES,
)

_SIGNALS_FROM = 128  # a shell counts signals from here on: ended from outside, not failed
_OUT_OF_MEMORY = "the kernel sends it where memory runs out (dmesg tells), batch systems at limits"
# Of a disk, for this user, of a file: then the last figures are missing for that.
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_COPIES = (
    "the program trains in copies of its process (multiprocessing with fork), which could not be "
    "recorded, as the profiler had been used before they were made: start them anew, "
    'multiprocessing.set_start_method("spawn"), or leave the first process alone: pinchpoint run '
    "--after-seconds 3600 …"
)


def problems_of(
    folder: Path, processes: Sequence[ProcessDocument], settings: Settings, ended: Ended
) -> list[str]:
    """Everything that a person should know about what is missing, most important first."""
    found = [problem for p in processes for problem in p.problems]
    if ended.sampled.problem:
        found.append(ended.sampled.problem)
    if settings.tool == "nsys" and not list((folder / NSYS).glob("*.nsys-rep")):
        found.append(
            "nsys wrote no report: the program ended before its steady steps, or nsys refused "
            "(its own messages are above)"
        )
    if settings.tool == "torch":  # other tools write their reports of a program that failed, too
        found += _failed(processes, ended)
    if (folder / PROCESSES / NOT_RECORDED_MARK).exists() and not any(p.files for p in processes):
        found.append(_COPIES)
    recordings = [r for p in processes for r in p.files]
    expected = settings.tool == "torch" and not settings.only_when_slower
    if expected and not recordings and not found:
        why = _why_nothing(folder, processes, settings, ended)
        found += [] if why is None else [why]
    found += _without_kernels(processes, ended)
    if not any(full in problem for problem in found for full in _FULL):
        found += _cut_short(processes, ended)
    return list(dict.fromkeys(found))


def _failed(processes: Sequence[ProcessDocument], ended: Ended) -> list[str]:
    """A program that failed: what is missing is missing for that, whatever else is said of it."""
    code = ended.exit_code
    if code <= 0 or _signal_of(code) is not None:
        return []
    recorded = any(p.files for p in processes)
    answer = "what was recorded is from before" if recorded else "it came before any recording"
    return [f"the program failed with exit code {code} (what it printed is above); {answer}"]


def _cut_short(processes: Sequence[ProcessDocument], ended: Ended) -> list[str]:
    """Python writes the last figures as it ends, which a signal or ``os._exit`` does not let it."""
    counted = [p.steps.count for p in processes if not p.complete]
    if not any(counted):
        return []
    number = _signal_of(ended.exit_code)
    how = "before Python could end" if number is None else f"by {_named(number)}"
    return [
        f"the program was ended {how}: {max(counted)} steps were counted, the last of them up to a "
        "second before, and step times are those of its first ones"
    ]


def _signal_of(exit_code: int) -> signal.Signals | None:
    """The signal that ended a program, by the exit code that a shell gives it."""
    try:
        return signal.Signals(exit_code - _SIGNALS_FROM)
    except ValueError:
        return None


def _named(number: signal.Signals) -> str:
    return f"signal {number.value} ({number.name})"


def _why_nothing(
    folder: Path, processes: Sequence[ProcessDocument], settings: Settings, ended: Ended
) -> str | None:
    """None where there is nothing to record, and samples of the whole run answer for it."""
    seconds = (ended.ended_unix_ns - ended.started_unix_ns) / 1e9
    looked = any((folder / SAMPLES).glob("rank*.json"))
    if looked and not (folder / PROCESSES / FRAMEWORK_MARK).exists():
        return None
    steps = max((p.steps.count for p in processes), default=0)
    if steps:
        return (
            f"the program ended after {steps} steps, before they were steady enough to record; "
            "give it more steps, or record at once: pinchpoint run --after-steps 1 …"
        )
    if failures := sorted((folder / PROCESSES).glob("failed.*.txt")):
        return f"the hooks could not start: {failures[0].read_text(errors='replace').strip()[:300]}"
    if not (folder / PROCESSES / HOOKS_MARK).exists():
        return NO_HOOKS
    if (number := _signal_of(ended.exit_code)) is not None:
        kernel = f"; {_OUT_OF_MEMORY}" if number.name == "SIGKILL" else ""
        return (
            f"nothing was recorded: {_named(number)} ended the program {seconds:.3g} s after it "
            f"was started{kernel}"
        )
    if not (folder / PROCESSES / FRAMEWORK_MARK).exists():
        return (
            "the program ended before it could be looked at: it took less than a fifth of a second "
            "of its own, was killed within some, or wrote its end over (os._exit); give it more to "
            "do"
        )
    return _no_step_seen(folder, settings, seconds)


def _no_step_seen(folder: Path, settings: Settings, seconds: float) -> str:
    """What was seen of a loop that calls nothing a hook hears of, and what would record it."""
    seen = (
        f"the program imported torch or jax and ended {seconds:.3g} s after it was started, but "
        "no step was seen (an optimizer's step, a data loader's batch, a call of a torch module, a "
        "replay of a CUDA graph)"
    )
    mark = "mark its steps, pinchpoint.step() after each"
    if settings.after_s == 0:
        return f"nothing was recorded: {seen}, and no work after that lasted; {mark}"
    wait_s = settings.after_s or (EARLY_AFTER_S if settings.names else FIRST_AFTER_S)
    command = read(folder / RUN_FILE, RunDocument).document.command
    again = f"pinchpoint run --after-seconds 0 {shlex.join(command)}"
    if command == NOTEBOOK:
        again = "%%pinchpoint --after-seconds 0"
    return (
        f"nothing was recorded: {seen}; other work is recorded only once it has gone on for "
        f"{wait_s:g} s, imports and compilation apart, and this had not; {mark}, or record from "
        f"the first work on: {again}"
    )


def _without_kernels(processes: Sequence[ProcessDocument], ended: Ended) -> list[str]:
    """A recording without kernels from a program that worked on a device is worth nothing."""
    hollow = [r.file for p in processes for r in p.files if r.kernels == 0 and p.device is not None]
    if not hollow or not _device_worked(ended):
        return []
    if os.environ.get(TEARDOWN) == "1":
        return [
            f"{hollow[0]} holds no kernel although the device worked, and {TEARDOWN}=1 is set, "
            "with which only the first use of the profiler gives any; unset it and record again"
        ]
    return [
        f"{hollow[0]} holds no kernel although the device worked in this run: nothing ran on it "
        "just then (later: --after-steps or --after-seconds), or another tool has taken its "
        "tracing (ncu, nsys, compute-sanitizer, cuda-gdb, a DCGM profile; pinchpoint doctor)"
    ]


def _device_worked(ended: Ended) -> bool:
    for device in ended.sampled.summary.devices():
        busy = device.get("any_kernel_ratio")
        if isinstance(busy, dict) and busy["max"] > 0:
            return True
    return not ended.sampled.summary.devices()  # nobody looked: believe the program, which used it
