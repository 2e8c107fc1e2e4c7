"""Asks one rule about one trace, or about one job."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.framework import framework_of, in_program
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, ON_NVIDIA, Record
from pinchpoint.diagnosis.registry import Known
from pinchpoint.diagnosis.rule import Framework, NotChecked, Outcome
from pinchpoint.trace import Trace

# What to record for a table that is missing, whatever the rule.
RECORD_FOR = dict.fromkeys(("device_ops", "api_calls", "host_ops"), CPU_AND_DEVICE)


def ask(known: Known, trace: Trace) -> Outcome:
    """One rule's answer; a rule that breaks costs only its own answer."""
    framework = framework_of(trace)
    lacking = _missing(trace, known)
    if lacking is not None:
        return _not_checked(known, lacking, framework)
    said = answer(known, lambda: known.check(trace), framework)
    advised = tuple(in_program(framework, known.rule, found) for found in said.findings)
    return replace(said, findings=advised)


def answer(
    known: Known, check: Callable[[], Iterable[Found]], framework: Framework = Framework.TORCH
) -> Outcome:
    """What a check of a rule says; advice is PyTorch's."""
    try:
        findings = tuple(check())
    except NotChecked as reason:
        return _not_checked(known, reason, framework)
    except Exception as error:  # a rule is judged by its own tests; the report must survive it
        return Outcome(known.id, "crashed", why=f"{type(error).__name__}: {error}")
    return Outcome(known.id, "found" if findings else "clear", findings)


def _not_checked(known: Known, reason: NotChecked, framework: Framework) -> Outcome:
    record = reason.record or known.rule.record
    if framework not in (Framework.TORCH, Framework.TORCH_WITHOUT_CUDA):
        record = record.elsewhere or record
    return Outcome(known.id, "not checked", why=reason.why, record=record.phrase, needs=record.need)


def _missing(trace: Trace, known: Known) -> NotChecked | None:
    """Why a table is absent or empty that the rule needs; None if all are there."""
    need = next((need for need in known.rule.needs if _lacks(trace, need)), None)
    if need is None:
        return None
    if need == "kernel_counters" and not may_be_counted(trace):
        return NotChecked("hardware counters are read for devices of NVIDIA only", ON_NVIDIA)
    if need == "kernel_counters" and not _lacks(trace, "host_ops") and _lacks(trace, "device_ops"):
        need = "device_ops"  # first of all there has to be a kernel
    record: Record | None = RECORD_FOR.get(need)
    return NotChecked(f"the recording has no {need.replace('_', ' ')}", record)


def _lacks(trace: Trace, need: str) -> bool:
    table = getattr(trace, need)
    return table is None or not len(table)


def may_be_counted(trace: Trace) -> bool:
    """Whether Nsight Compute can profile a device of the recording, as far as that is known."""
    vendors = {device.vendor for device in trace.devices if device.vendor}
    return not vendors or "nvidia" in vendors
