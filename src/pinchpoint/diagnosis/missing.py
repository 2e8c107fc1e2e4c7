"""What a rule answers where the recording lacks a table that it needs."""

from types import ModuleType

from pinchpoint.diagnosis.rule import RECORD_FOR, Outcome
from pinchpoint.diagnosis.spoken import recordable
from pinchpoint.trace import Trace

_ON_NVIDIA = "the same program on a device of NVIDIA"


def missing(trace: Trace, id_: str, rule: ModuleType) -> Outcome | None:
    """*Not checked*, because a table is absent or empty; None if all are there."""
    need = next((need for need in rule.NEEDS if _lacks(trace, need)), None)
    if need is None:
        return None
    if need == "kernel_counters" and not may_be_counted(trace):
        why = "hardware counters are read for devices of NVIDIA only"
        return Outcome(id_, "not checked", why=why, record=_ON_NVIDIA)
    if need == "kernel_counters" and not _lacks(trace, "host_ops") and _lacks(trace, "device_ops"):
        need = "device_ops"  # first of all there has to be a kernel
    record = recordable(trace, RECORD_FOR.get(need, rule.RECORD))
    why = f"the recording has no {need.replace('_', ' ')}"
    return Outcome(id_, "not checked", why=why, record=record)


def _lacks(trace: Trace, need: str) -> bool:
    table = getattr(trace, need)
    return table is None or not len(table)


def may_be_counted(trace: Trace) -> bool:
    """Whether Nsight Compute can profile a device of the recording, as far as that is known."""
    vendors = {device.vendor for device in trace.devices if device.vendor}
    return not vendors or "nvidia" in vendors
